"""The ops outside TensorFlow that a SavedModel needs: ScaNN's, if any."""

import importlib.util
import os

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from realm_tf.artifacts.saved_models import SAVED_MODEL_FILE
from realm_tf.errors import InputError

_SCANN_PREFIX = "Scann>"


def op_names(directory: str) -> set[str]:
    """The ops of a SavedModel's graph and functions.

    Args:
        directory: str. A version directory.

    Raises:
        InputError: if its saved_model.pb cannot be parsed.
    """
    path = os.path.join(directory, SAVED_MODEL_FILE)
    with tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(data)
    except DecodeError as error:
        raise InputError(
            f"{path} is not a SavedModel: it cannot be parsed ({error})."
        ) from error
    names = set()
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        names.update(node.op for node in graph.node)
        for function in graph.library.function:
            names.update(node.op for node in function.node_def)
    return names


def load_for(directory: str) -> None:
    """Registers what the SavedModel of a version directory needs.

    ScaNN's ops are registered without importing the package.

    Args:
        directory: str. A version directory.

    Raises:
        InputError: if it cannot be parsed, or the package of its ops is
            missing or made for another TensorFlow.
    """
    if not any(name.startswith(_SCANN_PREFIX) for name in op_names(directory)):
        return
    # find_spec on the parent does not run its __init__.
    spec = importlib.util.find_spec("scann")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "The SavedModel searches with ScaNN, but the package scann is "
            "not installed: `pip install scann` (Linux x86-64 only), or "
            "export with an index of kind ivf."
        )
    library = os.path.join(
        spec.submodule_search_locations[0], "scann_ops/cc/_scann_ops.so"
    )
    try:
        tf.load_op_library(library)
    except tf.errors.OpError as error:
        raise InputError(
            f"ScaNN's op library {library} does not load into TensorFlow "
            f"{tf.__version__}: {error.message}. Install the scann made for "
            "this TensorFlow."
        ) from error
