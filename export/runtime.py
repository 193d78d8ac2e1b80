"""Runs a SavedModel: the one place where `ask`, `serve` and `verify` do.

Imports nothing of realm, so that the fresh process of `realm verify` can load
it by its path.

A TensorFlow session frees variables, tables and ScaNN searchers when it closes,
which `tf.saved_model.load` does not; TF Serving isolates versions in the same
way. Exports that differ in their blocks alone share a session: each has a state,
the variables of its blocks.

A graph refers to a variable by a handle that is made once. Here the handles of
the blocks' variables are looked up under names that are fed to every run. So
each run reads one state from beginning to end, whatever is loaded meanwhile. A
state that is freed lasts until the last run that looked it up has ended.
"""

import contextlib
import functools
import importlib.util
import logging
import os
import threading

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of its graphs
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow.core.protobuf import saved_model_pb2

# Prefix of the files of variables, as TensorFlow's checkpoints have one.
VARIABLES = os.path.join("variables", "variables")
# The variables of `RealmModule.corpus`: those that other blocks would change.
CORPUS = "corpus/"
_TAG = "serve"
# What TensorFlow takes for "a new one each time that the op runs"
# (resource_variable_ops.cc); freed when nothing refers to it.
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
# Apart from all names of an export's graph.
_SCOPE = "corpus_states"
# Errors of a damaged file, or of another kind of graph.
_LOADING_ERRORS = (
    tf.errors.OpError,
    DecodeError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
)


class LoadError(ValueError):
    """A SavedModel, or a state, that does not load; the message says why."""


class RunError(Exception):
    """A run that failed.

    Args:
        code: int. Canonical status code, as of gRPC.
        message: str.
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


class Runtime:
    """A SavedModel, loaded once for one state of its blocks or several.

    Closed with its last state. Any number of threads may use it at once.

    Args:
        directory: str. The version directory.
        index: str. Kind of search, of the export's card: `"scann"` needs
            ScaNN's op.
        has_room: bool. Whether the export is made for blocks that change (the
            card's `room`). Defaults to `False`.

    Attributes:
        signature_defs: dict of name to `SignatureDef`.
        first: the state that the SavedModel itself holds, open.

    Raises:
        LoadError: if it does not load, or needs ops that are not installed.
    """

    def __init__(self, directory: str, *, index: str, has_room: bool = False):
        if index == "scann":
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
            if has_room and self._is_on_cpu():
                self._states = _States(self._session, _meta_graph(directory))
                self.first = self._states.first
                options["input_map"] = self._states.input_map
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [_TAG], directory, **options
            )
        except _LOADING_ERRORS as error:
            self._session.close()
            raise LoadError(
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
            The state, or `None` if this runtime holds only its own.

        Raises:
            LoadError: if the variables cannot be read, or the runtime is
                closed meanwhile.
        """
        if self._states is None:
            return None
        try:
            state = self._states.read(directory)
        except (tf.errors.OpError, RuntimeError) as error:
            # Without the places in Python where the graph was made.
            reason, *_ = str(error.__context__ or error).splitlines()
            raise LoadError(
                f"The SavedModel {directory} does not load: its {VARIABLES} "
                f"cannot be read: {reason}"
            ) from error
        with self._lock:
            if self._open:
                self._open.add(state)
                return state
        raise LoadError(
            f"The SavedModel {directory} does not load: what is served is "
            "being unloaded."
        )

    def run(
        self,
        signature: str,
        inputs,
        *,
        state: tuple[str, ...] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: str.
            inputs: mapping of name to array or list that fits the signature;
                strings as bytes or str.
            state: an open state. Defaults to `None`: `first`.
            timeout_seconds: float. Cancels the run after this long.
                Defaults to no limit.

        Returns:
            dict of output name to array; strings as bytes in an array of dtype
            object.

        Raises:
            RunError: if the graph fails on the inputs, time runs out, or the
                state or the runtime is closed.
        """
        definition = self.signature_defs[signature]
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
        if self._states is not None:
            feeds.update(self._states.feeds(state or self.first))
        try:
            values = self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            raise RunError(error.error_code, error.message) from error
        except RuntimeError as error:
            if self._open:
                raise
            raise RunError(tf.errors.CANCELLED, str(error)) from error
        return {
            # A scalar string comes back as plain bytes.
            name: np.asarray(
                values[name], dtype=tf.as_dtype(info.dtype).as_numpy_dtype
            )
            for name, info in definition.outputs.items()
        }

    def close(self, state: tuple[str, ...]) -> None:
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


class _States:
    """Makes, fills and frees states in a session.

    Args:
        session: `tf.compat.v1.Session`. Its graph is about to get the export's.
        meta_graph: `MetaGraphDef`. The export's.

    Attributes:
        first: tuple of str. A state whose variables have no values yet: runs
            without `feeds` read and write it, as the loader does.
        input_map: dict. For `import_meta_graph`.
    """

    def __init__(self, session, meta_graph):
        self._session = session
        nodes, keys = zip(*_variables(meta_graph), strict=True)
        dtypes = [node.attr["dtype"].type for node in nodes]
        with session.graph.as_default(), tf.name_scope(_SCOPE):
            self._made = [
                tf.compat.v1.get_session_handle(
                    tf.raw_ops.VarHandleOp(
                        dtype=dtype,
                        shape=node.attr["shape"].shape,
                        shared_name=_ANONYMOUS,
                    )
                )
                for node, dtype in zip(nodes, dtypes, strict=True)
            ]
            self.first = self._new()
            self._names = tf.compat.v1.placeholder_with_default(
                tf.constant(self.first), [len(nodes)]
            )
            names = tf.unstack(self._names)
            handles = [
                tf.raw_ops.GetSessionTensor(handle=name, dtype=tf.resource)
                for name in names
            ]
            self._prefix = tf.compat.v1.placeholder(tf.string, [])
            values = tf.raw_ops.RestoreV2(
                prefix=self._prefix,
                tensor_names=keys,
                shape_and_slices=[""] * len(keys),
                dtypes=dtypes,
            )
            self._filled = tf.group(
                *(
                    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
                    for handle, value in zip(handles, values, strict=True)
                )
            )
            self._freed = tf.group(
                *(tf.raw_ops.DeleteSessionTensor(handle=name) for name in names)
            )
        self.input_map = {
            f"{node.name}:0": handle
            for node, handle in zip(nodes, handles, strict=True)
        }

    def read(self, directory: str) -> tuple[str, ...]:
        """A state of the same graph's export in a version directory.

        Raises:
            tf.errors.OpError: if its variables cannot be read.
        """
        state = self._new()
        prefix = os.path.join(directory, VARIABLES)
        try:
            self._session.run(
                self._filled,
                {self._prefix: prefix, **self.feeds(state)},
                # Of threads of its own: see `_session_config`.
                options=tf.compat.v1.RunOptions(inter_op_thread_pool=1),
            )
        except BaseException:
            # With a session that was closed meanwhile all is freed.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                self.free(state)
            raise
        return state

    def feeds(self, state: tuple[str, ...]) -> dict:
        """The feeds of a run that reads a state."""
        return {self._names: state}

    def free(self, state: tuple[str, ...]) -> None:
        """Lets a state go."""
        self._session.run(self._freed, self.feeds(state))

    def _new(self) -> tuple[str, ...]:
        # Unlike its Python object, the name does not go with a reference.
        return tuple(
            made.get_raw_handle() for made in self._session.run(self._made)
        )


def _meta_graph(directory):
    path = os.path.join(directory, "saved_model.pb")
    with tf.io.gfile.GFile(path, "rb") as file:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read())
    (meta_graph,) = saved_model.meta_graphs
    return meta_graph


def _variables(meta_graph):
    """(node, key in the checkpoint) of each variable of the blocks.

    The graph's function that restores has both, as in all of TensorFlow's
    SavedModels.
    """
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    restore = nodes[meta_graph.saver_def.restore_op_name]
    functions = {
        function.signature.name: function
        for function in meta_graph.graph_def.library.function
    }
    function = functions[restore.attr["f"].func.name]
    inside = {node.name: node for node in function.node_def}

    def maker(tensor):
        return inside[tensor.partition(":")[0]]

    handle_of = {
        given.name: nodes[name]
        for given, name in zip(
            function.signature.input_arg, restore.input, strict=True
        )
    }
    for assign in function.node_def:
        if assign.op != "AssignVariableOp":
            continue
        argument, value = assign.input
        while maker(value).op == "Identity":
            value = maker(value).input[0]
        # RestoreV2 gives a tensor for each of its names.
        names = maker(maker(value).input[1]).attr["value"].tensor.string_val
        key = names[int(value.rpartition(":")[2])].decode()
        if key.startswith(CORPUS):
            yield handle_of[argument], key


def _session_config():
    """Lets a version load fast beside one that is busy.

    Threads of its own: its many small ops need not queue behind the other's
    large ones; and one more, for reading a state during requests. Grappler goes
    over the graph once: answers are a seventh faster for it, while loading and
    warming up takes 2 s longer. Its default of two passes takes 4 s (the quick
    start's export, two cores).
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
    """Runs a first session with its log hidden.

    A process' first session logs two lines about an optimisation that is
    off, whatever TF_CPP_MIN_LOG_LEVEL says. Only if that asks for quiet.
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
        LoadError: if it is missing or made for another TensorFlow.
    """
    # find_spec on the parent does not run its __init__.
    spec = importlib.util.find_spec("scann")
    if spec is None:
        raise LoadError(
            "The SavedModel searches with ScaNN, but the package scann is "
            "not installed: `pip install scann` (Linux x86-64 only), or "
            "export with an index of kind ivf."
        )
    (folder,) = spec.submodule_search_locations
    try:
        tf.load_op_library(f"{folder}/scann_ops/cc/_scann_ops.so")
    except tf.errors.OpError as error:
        raise LoadError(
            f"The package scann does not load into TensorFlow "
            f"{tf.__version__}: {error.message}. Install the scann made for "
            "this TensorFlow."
        ) from error
