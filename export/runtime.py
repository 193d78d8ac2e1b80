"""Runs a SavedModel: the one place where `ask`, `serve`, `verify` and `corpus` do.

The package tensorflow brings TensorFlow's C API as a shared library
(libtensorflow_cc, tensorflow/c/c_api.h). It loads and runs a SavedModel without
TensorFlow's Python code, whose import takes longer than both. Python's session
takes its place only where that library is missing.

Imports nothing of realm, so that the fresh process of `realm verify` can load
it by its path.

A session frees variables, tables and ScaNN searchers when it is deleted, which
`tf.saved_model.load` does not; TF Serving isolates versions in the same way.
"""

import contextlib
import glob
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
from google.protobuf.message import DecodeError

if __package__:
    from realm_tf.export import c_session
else:
    # Loaded by its path.
    import c_session

DTYPES, NUMBERS, STRING = c_session.DTYPES, c_session.NUMBERS, c_session.STRING
RunError = c_session.RunError


@contextlib.contextmanager
def without_tensorflow() -> Iterator[None]:
    """Lets modules of messages (`tensorflow/**/*_pb2.py`) be imported alone.

    They are in the package tensorflow, whose `__init__` imports everything. In
    this context the package is an empty one, unless it has been imported. A
    later import of TensorFlow finds the same messages.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tensorflow")
    sys.modules["tensorflow"] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


with without_tensorflow():
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.config_pb2 import RunOptions
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

# Prefix of the files of variables, as TensorFlow's checkpoints have one.
VARIABLES = os.path.join("variables", "variables")
# The variables of `RealmModule.corpus`: those that other blocks would change.
CORPUS = "corpus/"


class LoadError(ValueError):
    """A SavedModel that does not load; the message says why."""


class Runtime:
    """A SavedModel in a session of its own.

    Any number of threads may use it at once; they compute without Python's
    lock.

    Args:
        directory: str. The version directory.
        index: str. Kind of search, of the export's card: `"scann"` needs
            ScaNN's op. Defaults to `None`.
        optimized: bool. Whether each signature's graph is optimized at its
            first run. That takes seconds, and later runs are faster. Defaults to
            `True`.

    Attributes:
        signature_defs: dict of name to `SignatureDef`.

    Raises:
        LoadError: if it does not load, or needs ops that are not installed.
    """

    def __init__(
        self,
        directory: str,
        *,
        index: str | None = None,
        optimized: bool = True,
    ):
        session = c_session.CSession if c_session.library() else _PythonSession
        try:
            for path in _op_libraries(index):
                session.load_library(path)
            self._session = session(directory, _config(optimized))
            meta_graph = MetaGraphDef.FromString(self._session.meta_graph)
        except (RunError, DecodeError) as error:
            raise LoadError(
                f"The SavedModel {directory} does not load: {error}"
            ) from error
        self.signature_defs = dict(meta_graph.signature_def)
        self._lock = threading.Lock()
        # Runs, and one more while it is open: the last of them frees it.
        self._users = 1
        self._closed = False

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def run(
        self,
        signature: str,
        inputs: Mapping,
        *,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: str.
            inputs: mapping of name to array or list that fits the signature;
                strings as bytes or str.
            timeout_seconds: float. Cancels the run after this long.
                Defaults to no limit.

        Returns:
            dict of output name to array; strings as bytes in an array of dtype
            object.

        Raises:
            RunError: if the inputs do not fit, the graph fails on them, time
                runs out, or the runtime is closed.
        """
        definition = self.signature_defs[signature]
        feeds = _feeds(definition, inputs)
        # Always all outputs: each subset would be a graph of its own in the
        # session, compiled on first use and kept for ever.
        fetches = [info.name for info in definition.outputs.values()]
        options = RunOptions()
        if timeout_seconds is not None:
            # 0 would mean no limit.
            options.timeout_in_ms = max(1, int(timeout_seconds * 1000))
        with self._lock:
            if self._closed:
                raise RunError(c_session.CANCELLED, "It is closed.")
            self._users += 1
        try:
            values = self._session.run(fetches, feeds, options)
        finally:
            self._leave()
        return dict(zip(definition.outputs, values, strict=True))

    def close(self) -> None:
        """Cancels what runs; frees the memory when all of it has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._session.cancel()
        self._leave()

    def _leave(self):
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._session.free()


def misfit(info, array: np.ndarray) -> str:
    """What is wrong with a value of an input; empty if nothing is.

    Args:
        info: `TensorInfo` of the input.
        array: numpy array; strings in an array of dtype object.
    """
    shape = "<unknown>"
    fits = True
    if not info.tensor_shape.unknown_rank:
        sizes = [dim.size for dim in info.tensor_shape.dim]
        shape = tuple(None if size < 0 else size for size in sizes)
        fits = len(sizes) == array.ndim and all(
            size in (None, found)
            for size, found in zip(shape, array.shape, strict=True)
        )
    if fits and NUMBERS.get(array.dtype) == info.dtype:
        return ""
    return (
        f"must be {dtype_name(DTYPES.get(info.dtype))} of shape {shape} (None "
        f"is any size), received {dtype_name(array.dtype)} of {array.shape}."
    )


def dtype_name(dtype: np.dtype | None) -> str:
    """What messages call a dtype of `DTYPES`."""
    return "string" if dtype == STRING else str(dtype)


def _feeds(definition, inputs):
    """Tensor name to an array of the input's dtype and shape."""
    if set(inputs) != set(definition.inputs):
        raise RunError(
            c_session.INVALID_ARGUMENT,
            f"expected the inputs {sorted(definition.inputs)}, received "
            f"{sorted(inputs)}.",
        )
    feeds = {}
    for name, value in inputs.items():
        info = definition.inputs[name]
        try:
            # A number that is too large would become infinity.
            with np.errstate(over="raise"):
                array = _converted(value, DTYPES.get(info.dtype))
            problem = misfit(info, array)
        except (TypeError, ValueError, ArithmeticError) as error:
            problem = f"must be {dtype_name(DTYPES.get(info.dtype))}: {error}"
        if problem:
            raise RunError(
                c_session.INVALID_ARGUMENT, f"input {name} {problem}"
            )
        feeds[info.name] = array
    return feeds


def _converted(value, dtype):
    """An array of a dtype, where no value becomes another; strings as bytes."""
    if dtype is None:
        return np.asarray(value)
    if dtype != STRING:
        return np.asarray(value).astype(dtype, casting="same_kind")
    array = np.asarray(value, object)
    texts = [
        each.encode() if isinstance(each, str) else bytes(memoryview(each))
        for each in array.flat
    ]
    return np.array([*texts, None], object)[:-1].reshape(array.shape)


def _config(optimized):
    """Lets a version load fast beside one that is busy.

    Threads of its own: its many small ops need not queue behind the other's
    large ones. Grappler goes over the graph once: its default of two passes
    takes twice as long, for nothing (the quick start's export).
    """
    config = ConfigProto(allow_soft_placement=True)
    config.session_inter_op_thread_pool.add()
    rewriting = config.graph_options.rewrite_options
    rewriting.meta_optimizer_iterations = RewriterConfig.ONE
    rewriting.disable_meta_optimizer = not optimized
    return config


def _op_libraries(index):
    """Paths of the libraries of ops beside TensorFlow's own.

    As their own packages name them: TensorFlow knows a library by its path.

    Raises:
        LoadError: if ScaNN is needed and missing.
    """
    found = _files("tensorflow_text", "python/ops/*.so")
    if index == "scann":
        scann = _files("scann", "scann_ops/cc/_scann_ops.so")
        if not scann:
            raise LoadError(
                "The SavedModel searches with ScaNN, but the package scann is "
                "not installed: `pip install scann` (Linux x86-64 only), or "
                "export with an index of kind ivf."
            )
        found += scann
    return found


def _files(package, pattern):
    # find_spec does not run the package's __init__.
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    folder = glob.escape(os.path.dirname(spec.origin))
    return sorted(glob.glob(os.path.join(folder, pattern)))


class _PythonSession:
    """A session of Python's TensorFlow; see `c_session.CSession`."""

    def __init__(self, directory, config):
        import tensorflow as tf

        self._errors = tf.errors.OpError
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [c_session.TAG], directory
            )
        except (tf.errors.OpError, LookupError, OSError, RuntimeError) as error:
            self._session.close()
            code = getattr(error, "error_code", c_session.INVALID_ARGUMENT)
            raise RunError(code, str(error)) from error
        self.meta_graph = meta_graph.SerializeToString()
        # Requests must not grow the graph.
        self._session.graph.finalize()

    @staticmethod
    def load_library(path):
        import tensorflow as tf

        try:
            tf.load_op_library(path)
        except tf.errors.OpError as error:
            raise RunError(error.error_code, error.message) from error

    def run(self, fetches, feeds, options):
        try:
            values = self._session.run(fetches, feeds, options=options)
        except self._errors as error:
            raise RunError(error.error_code, error.message) from error
        except RuntimeError as error:
            raise RunError(c_session.CANCELLED, str(error)) from error
        # A scalar string comes back as plain bytes.
        return [
            np.asarray(v, object) if isinstance(v, bytes) else np.asarray(v)
            for v in values
        ]

    def cancel(self):
        self._session.close()

    def free(self):
        self._session = None
