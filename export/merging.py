"""Merges the equal nodes of a SavedModel's graph.

Keras writes a constant anew wherever it needs one, and a size wherever it asks
for it: about 4 of 10 nodes compute what another one does. A process that loads
the graph prepares each node before its first answer.
"""

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

from realm_tf.artifacts.paths import Path


def merge_nodes(directory: str) -> None:
    """Rewrites the graph so that of equal nodes one is left.

    Nodes are equal if operation, attributes and inputs are; those with a state
    or a random value stay. What the graph computes is the same to the bit.

    Args:
        directory: str. Of a SavedModel whose ops are all registered.
    """
    path = Path(directory) / "saved_model.pb"
    saved = SavedModel.FromString(path.read_bytes())
    for meta_graph in saved.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            _merge(function)
    path.write_bytes(saved.SerializeToString(deterministic=True))
    # It describes the graph as it was; nothing reads it.
    (Path(directory) / "fingerprint.pb").unlink()


def _merge(function):
    """Merges the nodes of a `FunctionDef`, until all differ."""
    while names := _duplicates(function.node_def):
        kept = [n for n in function.node_def if n.name not in names]
        for node in kept:
            inputs = [_renamed(name, names) for name in node.input]
            waits = dict.fromkeys(i for i in inputs if i.startswith("^"))
            del node.input[:]
            node.input.extend(i for i in inputs if i not in waits)
            node.input.extend(waits)
        del function.node_def[:]
        function.node_def.extend(kept)
        for results in (function.ret, function.control_ret):
            for key, name in results.items():
                results[key] = _renamed(name, names)


def _duplicates(nodes):
    """Name of a node to that of an equal one before it."""
    names, first = {}, {}
    for node in nodes:
        if not _is_pure(node.op):
            continue
        attributes = (
            (name, value.SerializeToString(deterministic=True))
            for name, value in sorted(node.attr.items())
        )
        key = node.op, node.device, *node.input, *attributes
        if first.setdefault(key, node.name) != node.name:
            names[node.name] = first[key]
    return names


def _is_pure(op):
    definition = op_def_registry.get(op)
    # Functions have none.
    return definition and not definition.is_stateful and op != "Placeholder"


def _renamed(name, names):
    """An input (`node`, `node:output:0` or `^node`) with its node renamed."""
    control = "^" if name.startswith("^") else ""
    node, colon, output = name.removeprefix("^").partition(":")
    return f"{control}{names.get(node, node)}{colon}{output}"
