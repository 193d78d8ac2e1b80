"""Which ops an export holds: what a server must have to run it."""

import json
import pathlib

import pytest
import python_code
import tensorflow as tf
from graph_ops import op_names
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf import saved_model_pb2

# In a process of its own, where nothing has loaded ScaNN's library.
_REGISTERED = """
import json, sys
import tensorflow
from tensorflow.python.framework import op_def_registry
names = json.loads(sys.argv[1])
known = {n for n in names if op_def_registry.get(n) is not None}
import tensorflow_text
text = {n for n in names if op_def_registry.get(n) is not None} - known
print(json.dumps([sorted(known), sorted(text)]))
"""


@pytest.fixture(scope="module")
def ops(exported):
    """Version to the names of its ops."""
    return {version: op_names(f"{exported}/{version}") for version in (1, 2, 3)}


@pytest.fixture(scope="module")
def registered(ops):
    """The ops that TensorFlow has, and those that tensorflow_text adds."""
    names = json.dumps(sorted(set.union(*ops.values())))
    printed = python_code.run(_REGISTERED, names)
    return map(set, json.loads(printed.splitlines()[-1]))


def test_what_each_kind_of_export_needs(ops, registered):
    tensorflow, tensorflow_text = registered
    assert tensorflow_text == {
        "FastWordpieceTokenizeWithOffsets",
        "NormalizeUTF8",
    }
    for names in ops.values():
        assert "MatMul" in names
        # None of TensorFlow's own, which one for another processor lacks; nor
        # a batch normalisation, see `cpu_operations`.
        assert not [n for n in names if n[0] == "_" or "BatchNorm" in n]
    exact, scann, ivf = (ops[version] for version in (1, 2, 3))
    for names in (exact, ivf):
        assert names <= tensorflow | tensorflow_text
        assert names & tensorflow_text == tensorflow_text
        # One that a graph of plain ops must have.
        assert "DecodeCompressed" in names
    assert scann - tensorflow - tensorflow_text == {
        "Scann>ScannSearchBatched",
        "Scann>TensorsToScann",
    }


def test_functions_are_not_optimised_when_loaded(exported):
    path = pathlib.Path(exported, "1", "saved_model.pb")
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    graph = model.meta_graphs[0].graph_def
    calls = [
        node
        for nodes in (graph.node, *(f.node_def for f in graph.library.function))
        for node in nodes
        if node.op == "StatefulPartitionedCall"
    ]
    # Saving and restoring, too, go by such calls.
    assert len(calls) > 4
    for node in calls:
        config = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
        assert config.graph_options.rewrite_options.disable_meta_optimizer
    # Other functions of the process are, as before.
    options = tf.config.optimizer.get_experimental_options()
    assert not options.get("disable_meta_optimizer")
