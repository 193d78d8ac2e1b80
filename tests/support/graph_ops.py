"""The ops of a SavedModel."""

import pathlib

from tensorflow.core.protobuf import saved_model_pb2


def op_names(directory):
    """Those of its graph and functions."""
    path = pathlib.Path(directory, "saved_model.pb")
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    graph = meta_graph.graph_def
    return {
        node.op
        for nodes in (graph.node, *(f.node_def for f in graph.library.function))
        for node in nodes
    }
