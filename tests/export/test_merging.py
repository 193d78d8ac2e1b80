"""Equal nodes of a graph become one, and it computes the same."""

import backends
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from realm_tf.export.merging import merge_nodes

pytestmark = backends.exports


class _Graph(tf.Module):
    def __init__(self):
        self.total = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def run(self, values):
        squares = tf.square(values) + 1.0
        again = tf.square(values) + 1.0
        draws = [tf.random.uniform([]) for _ in range(2)]
        # The same op on the same variable, twice on purpose.
        self.total.assign_add(1.0)
        self.total.assign_add(1.0)
        _, looped = tf.while_loop(
            lambda i, _: i < 3,
            lambda i, v: (i + 1, tf.square(v) / 2.0 + tf.square(v) / 2.0),
            (0, values),
        )
        return {
            "sum": squares * again,
            "looped": looped,
            "draws": tf.stack(draws),
            "total": self.total.read_value(),
        }


def _ops(path):
    saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta_graph,) = saved.meta_graphs
    return [
        node.op
        for function in meta_graph.graph_def.library.function
        for node in function.node_def
    ]


def _run(path, values):
    # Kept: its variables go with it.
    loaded = tf.saved_model.load(str(path))
    found = loaded.signatures["serving_default"](values=tf.constant(values))
    return {name: value.numpy() for name, value in found.items()}


def test_equal_nodes_become_one(tmp_path):
    graph = _Graph()
    tf.saved_model.save(graph, str(tmp_path), signatures=graph.run)
    values = np.array([0.3, -1.7], "float32")
    before, ops = _run(tmp_path, values), _ops(tmp_path)
    merge_nodes(str(tmp_path))
    after, left = _run(tmp_path, values), _ops(tmp_path)
    for name in ("sum", "looped", "total"):
        np.testing.assert_array_equal(after[name], before[name], name)
    assert after["total"] == 2
    assert ops.count("Square") == 4 and left.count("Square") == 2
    # What draws or assigns is done as often as before.
    assert after["draws"][0] != after["draws"][1]
    for op in ("RandomUniform", "AssignAddVariableOp"):
        assert left.count(op) == ops.count(op) == 2
    assert len(left) < len(ops)
