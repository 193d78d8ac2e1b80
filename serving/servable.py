"""One loaded version of a SavedModel: the seam between model and protocol.

A version owns one `tf.compat.v1.Session`. Closing the session frees its
variables, tables and ScaNN searchers, which `tf.saved_model.load` does not;
TF Serving isolates versions in the same way.
"""

import contextlib
import functools
import importlib.util
import logging
import os
import threading
import time
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of its graphs
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from realm_tf import stages
from realm_tf.errors import InputError
from serving.locate import SAVED_MODEL_FILE
from serving.locate import find_version

DEFAULT_SIGNATURE = "serving_default"
_TAG = "serve"
_INIT_SIGNATURE = "__saved_model_init_op"
_SCANN_PREFIX = "Scann>"
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        code: grpc.StatusCode. As TF Serving would answer.
        message: str. What was wrong and what was expected.
    """

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def _invalid(message: str) -> RequestError:
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(names)) + "}"


def _op_names(directory: str) -> set[str]:
    """The ops of a SavedModel's graph and functions."""
    path = stages.join(directory, SAVED_MODEL_FILE)
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


def load_scann_ops() -> None:
    """Registers ScaNN's ops without importing the package.

    Raises:
        InputError: if the package is missing or made for another TensorFlow.
    """
    # find_spec on the parent does not run its __init__.
    spec = importlib.util.find_spec("scann")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "The SavedModel searches with ScaNN, but the package scann is "
            "not installed: `pip install scann` (Linux x86-64 only), or "
            "export with an index of kind brute_force."
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


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Hides the loader's advice to use TF 2's, which leaks searchers."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@functools.cache
def _quieten_session() -> None:
    """Runs a first session where its log is not seen.

    A process' first session logs two lines about an optimisation that is
    off, whatever TF_CPP_MIN_LOG_LEVEL says. Only where that asks for quiet.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0":
        return
    graph = tf.Graph()
    with graph.as_default():
        one = tf.constant(1)
    stderr = os.dup(2)
    with open(os.devnull, "wb") as devnull:
        os.dup2(devnull.fileno(), 2)
    try:
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(one)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


class SavedModelServable:
    """A SavedModel, loaded and ready for concurrent requests.

    Args:
        path: str. The base directory, whose highest version is loaded, or a
            version directory.

    Attributes:
        directory: str. The version directory.
        version: int.
        signature_defs: dict of name to `SignatureDef`, as in the SavedModel.

    Raises:
        InputError: if there is no SavedModel, or it needs ops that are not
            installed.
    """

    def __init__(self, path: str):
        self.directory, self.version = find_version(path)
        ops = _op_names(self.directory)
        if any(name.startswith(_SCANN_PREFIX) for name in ops):
            load_scann_ops()
        _quieten_session()
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(),
            config=tf.compat.v1.ConfigProto(allow_soft_placement=True),
        )
        try:
            with _errors_only():
                meta_graph = tf.compat.v1.saved_model.loader.load(
                    self._session, [_TAG], self.directory
                )
        except (tf.errors.OpError, RuntimeError, ValueError, OSError) as error:
            self._session.close()
            raise InputError(
                f"The SavedModel {self.directory} does not load: {error}"
            ) from error
        # Requests must not grow the graph.
        self._session.graph.finalize()
        self.signature_defs = dict(meta_graph.signature_def)
        self._idle = threading.Condition()
        self._running = 0
        self._closed = False

    def __enter__(self) -> "SavedModelServable":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def signature(self, name: str = ""):
        """A signature that can be run.

        Args:
            name: str. Empty means `serving_default`.

        Returns:
            `SignatureDef`.

        Raises:
            RequestError: if there is none of that name.
        """
        name = name or DEFAULT_SIGNATURE
        if name not in self.signature_defs or name == _INIT_SIGNATURE:
            known = _names(set(self.signature_defs) - {_INIT_SIGNATURE})
            raise RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{name}" not found. Expected one of '
                f"{known}.",
            )
        return self.signature_defs[name]

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        output_filter: Iterable[str] = (),
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature; any number of threads may do so at once.

        Args:
            inputs: mapping of name to array; strings as bytes in an array
                of dtype object.
            signature: str. Defaults to `serving_default`.
            output_filter: names of the outputs wanted. Defaults to all.
            timeout_seconds: float. Cancels the run after this long.
                Defaults to no limit.

        Returns:
            dict of output name to array.

        Raises:
            RequestError: if the request does not fit the signature, the
                graph fails on it, time runs out or the servable is closed.
        """
        definition = self.signature(signature)
        self._check_inputs(definition, inputs)
        wanted = list(output_filter)
        self._check_outputs(definition, wanted)
        options = None
        if timeout_seconds is not None:
            # 0 would mean no limit.
            options = tf.compat.v1.RunOptions(
                timeout_in_ms=max(1, int(timeout_seconds * 1000))
            )
        # Always all outputs: each subset would be a graph of its own in the
        # session, compiled on first use and kept for ever.
        fetches = {k: info.name for k, info in definition.outputs.items()}
        feeds = {definition.inputs[k].name: v for k, v in inputs.items()}
        with self._run_allowed():
            try:
                values = self._session.run(fetches, feeds, options=options)
            except tf.errors.OpError as error:
                raise RequestError(
                    _STATUS_BY_NUMBER[error.error_code], error.message
                ) from error
        return {
            # A scalar string comes back as plain bytes.
            name: np.asarray(
                values[name],
                dtype=tf.as_dtype(
                    definition.outputs[name].dtype
                ).as_numpy_dtype,
            )
            for name in wanted or fetches
        }

    def warm_up(self) -> float:
        """Runs every signature once, so that no user waits for it.

        The first run of a signature optimises its graph and builds the
        ScaNN searcher, about 1.5 s per million blocks.

        Returns:
            float, seconds.

        Raises:
            InputError: if the model fails on it.
        """
        started = time.monotonic()
        for name, definition in self.signature_defs.items():
            shapes = [i.tensor_shape for i in definition.inputs.values()]
            if name == _INIT_SIGNATURE or any(s.unknown_rank for s in shapes):
                continue
            inputs = {
                key: _example(info) for key, info in definition.inputs.items()
            }
            try:
                self.run(inputs, signature=name)
            except RequestError as error:
                raise InputError(
                    f"The SavedModel {self.directory} fails on a first "
                    f"request to {name}: {error.message}"
                ) from error
        return time.monotonic() - started

    def close(self, *, grace_seconds: float | None = None) -> None:
        """Refuses new runs, waits for running ones, frees the memory.

        Args:
            grace_seconds: float. How long to wait; runs still going then
                are cancelled. Defaults to no limit.
        """
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._running, grace_seconds)
        self._session.close()

    @contextlib.contextmanager
    def _run_allowed(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise RequestError(
                    grpc.StatusCode.UNAVAILABLE,
                    f"Version {self.version} is being unloaded.",
                )
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _check_inputs(self, definition, inputs: Mapping) -> None:
        expected = definition.inputs
        extra = set(inputs) - set(expected)
        missing = set(expected) - set(inputs)
        if extra or missing:
            raise _invalid(
                f"input size does not match signature: expected the inputs "
                f"{_names(expected)}, received {_names(inputs)}. Sent "
                f"extra: {_names(extra)}. Missing but required: "
                f"{_names(missing)}."
            )
        for name, value in inputs.items():
            dtype = tf.as_dtype(expected[name].dtype)
            if tf.as_dtype(value.dtype) != dtype:
                raise _invalid(
                    f"input {name} must be of dtype {dtype.name}, received "
                    f"{tf.as_dtype(value.dtype).name}."
                )
            shape = tf.TensorShape(expected[name].tensor_shape)
            if not shape.is_compatible_with(value.shape):
                raise _invalid(
                    f"input {name} must be of shape {shape} (None is any "
                    f"size), received {value.shape}."
                )

    def _check_outputs(self, definition, wanted: list[str]) -> None:
        for position, name in enumerate(wanted):
            if name not in definition.outputs:
                raise _invalid(
                    f"output tensor alias not found in signature: {name}. "
                    "Outputs expected to be in the set "
                    f"{_names(definition.outputs)}."
                )
            if name in wanted[:position]:
                raise _invalid(f"duplicate output tensor alias: {name}.")


def _example(info) -> np.ndarray:
    """A small valid value for a signature's input: a word or ones."""
    dtype = tf.as_dtype(info.dtype)
    shape = [max(1, dim.size) for dim in info.tensor_shape.dim]
    if dtype == tf.string:
        return np.full(shape, b"what", dtype=object)
    return np.ones(shape, dtype=dtype.as_numpy_dtype)
