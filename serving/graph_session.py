"""A SavedModel's graph and model, loaded once for one or more states.

The session that holds them frees variables, tables and ScaNN searchers when it
is closed, which `tf.saved_model.load` does not; TF Serving isolates versions in
the same way.
"""

import functools
import importlib.util
import logging
import os
import threading

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of its graphs
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.core.protobuf import saved_model_pb2

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.saved_models import SAVED_MODEL_FILE
from realm_tf.errors import InputError
from realm_tf.export import checkpoint
from realm_tf.serving.corpus_states import CorpusStates

_TAG = "serve"
_CLOSED = "what is served is being unloaded."
# What a damaged file, or a graph of another kind, leads to.
_LOADING_ERRORS = (
    tf.errors.OpError,
    DecodeError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
)


class GraphSession:
    """A SavedModel in a session, with a state of its blocks or several.

    Where an export is made for changing blocks, what belongs to them can be read
    again from another export of the same graph and model. Closed with its last
    state.

    Args:
        directory: str. The version directory.
        card: dict. Of the export.

    Attributes:
        signature_defs: dict of name to `SignatureDef`.
        first: the state that the SavedModel itself holds, open.

    Raises:
        InputError: if it does not load, or needs ops that are not installed.
    """

    def __init__(self, directory: str, card: dict):
        if card.get("index") == "scann":
            _load_scann_ops()
        _quieten_session()
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(), config=_session_config()
        )
        self._states = None
        self.first = ()
        # Its advice is to use TF 2's loader, which leaks searchers.
        logger = tf.get_logger()
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            options = {}
            # Variables would stay where handles are looked up: on the CPU.
            if card.get("room") and self._is_on_cpu():
                self._states = CorpusStates(
                    self._session,
                    _meta_graph(directory),
                    reading=tf.compat.v1.RunOptions(inter_op_thread_pool=1),
                )
                self.first = self._states.first
                options["input_map"] = self._states.input_map
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [_TAG], directory, **options
            )
        except _LOADING_ERRORS as error:
            self._session.close()
            raise InputError(
                f"The SavedModel {directory} does not load: {error}"
            ) from error
        finally:
            logger.setLevel(level)
        # Requests must not grow the graph.
        self._session.graph.finalize()
        self.signature_defs = dict(meta_graph.signature_def)
        self._lock = threading.Lock()
        self._open = {self.first}

    def read(self, directory: str) -> tuple[str, ...] | None:
        """Opens the state of another export of the same graph and model.

        Args:
            directory: str. The version directory.

        Returns:
            The state, or `None` if this one holds no other.

        Raises:
            InputError: if its variables cannot be read, or this is closed
                meanwhile.
        """
        if self._states is None:
            return None
        try:
            state = self._states.read(directory)
        except (tf.errors.OpError, RuntimeError) as error:
            # Without the places in Python where the graph was made.
            reason, *_ = str(error.__context__ or error).splitlines()
            if not self._open:
                reason = _CLOSED
            raise InputError(
                f"The SavedModel {directory} does not load: its "
                f"{checkpoint.PREFIX} cannot be read: {reason}"
            ) from error
        with self._lock:
            if self._open:
                self._open.add(state)
                return state
        raise InputError(f"The SavedModel {directory} does not load: {_CLOSED}")

    def run(self, fetches: dict, feeds: dict, *, state, options) -> dict:
        """Runs the graph with a state; as `tf.compat.v1.Session.run`."""
        if self._states is not None:
            feeds = {**feeds, **self._states.feeds(state)}
        return self._session.run(fetches, feeds, options=options)

    def close(self, state) -> None:
        """Frees a state; with the last one all, and cancels what runs."""
        with self._lock:
            self._open.remove(state)
            if self._open:
                self._states.free(state)
            else:
                self._session.close()

    def _is_on_cpu(self) -> bool:
        devices = self._session.list_devices()
        return all(device.device_type == "CPU" for device in devices)


def _meta_graph(directory):
    content = Path(os.path.join(directory, SAVED_MODEL_FILE)).read_bytes()
    (meta_graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return meta_graph


def _session_config():
    """Made so that a version is soon ready beside one that is busy.

    Threads of its own: its many small ops need not queue behind the other's
    large ones; and one more, for reading a state while others are asked. Grappler
    goes once over the graph: answers are a seventh faster for it, while loading
    and warming up takes 2 s longer, and 4 s where it goes twice, as is its habit
    (the quick start's export, two cores).
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.session_inter_op_thread_pool.add()
    config.session_inter_op_thread_pool.add(num_threads=1)
    config.graph_options.rewrite_options.meta_optimizer_iterations = (
        rewriter_config_pb2.RewriterConfig.ONE
    )
    return config


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


def _load_scann_ops() -> None:
    """Registers ScaNN's ops without importing the package.

    Raises:
        InputError: if it is missing or made for another TensorFlow.
    """
    # find_spec on the parent does not run its __init__.
    spec = importlib.util.find_spec("scann")
    if spec is None:
        raise InputError(
            "The SavedModel searches with ScaNN, but the package scann is "
            "not installed: `pip install scann` (Linux x86-64 only), or "
            "export with an index of kind ivf."
        )
    (folder,) = spec.submodule_search_locations
    try:
        tf.load_op_library(f"{folder}/scann_ops/cc/_scann_ops.so")
    except tf.errors.OpError as error:
        raise InputError(
            f"The package scann does not load into TensorFlow "
            f"{tf.__version__}: {error.message}. Install the scann made for "
            "this TensorFlow."
        ) from error
