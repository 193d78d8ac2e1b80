"""One loaded version of a SavedModel: the seam between model and protocol.

A version owns one `tf.compat.v1.Session`. Closing the session frees its
variables, tables and ScaNN searchers, which `tf.saved_model.load` does not;
TF Serving isolates versions in the same way.
"""

import contextlib
import functools
import json
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

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.saved_models import find_version
from realm_tf.errors import InputError
from realm_tf.serving import custom_ops
from realm_tf.serving import memory
from realm_tf.serving import signatures
from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import unavailable

_TAG = "serve"
_INIT_SIGNATURE = "__saved_model_init_op"
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def _read_card(directory: str) -> dict:
    """The card of a version directory, if it has one, its files checked."""
    from realm_tf.export import card as export_card

    path = os.path.join(directory, export_card.FILE)
    if not Path(path).exists():
        return {}
    try:
        card = json.loads(Path(path).read_bytes())
        problems = export_card.check_files(directory)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read ({error!r}): expected the card that "
            "`realm export` writes; export again."
        ) from error
    if problems:
        raise InputError(f"{' '.join(problems)} Export or copy it again.")
    return card


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


def _session_config():
    """Made so that a version is soon ready beside one that is busy.

    Threads of its own: its many small ops need not queue behind the other's
    large ones. Without Grappler: a fifth of the time to load and warm up is
    its, and answers are not faster for it.
    """
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=True, use_per_session_threads=True
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
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


class SavedModelServable:
    """A SavedModel, loaded and ready for concurrent requests.

    Args:
        path: str. The base directory, whose highest version is loaded, or a
            version directory.

    Attributes:
        directory: str. The version directory.
        version: int.
        signature_defs: dict of name to `SignatureDef`, as in the SavedModel.
        card: dict. What `realm export` says of the model: `"index"` (kind),
            `"num_blocks"`, `"evidence_license"`, `"example_questions"`,
            `"files"`; empty if it has no card.

    Raises:
        InputError: if there is no SavedModel, a file is not the one that was
            exported, or it needs ops that are not installed.
    """

    def __init__(self, path: str):
        self.directory, self.version = find_version(path)
        self.card = _read_card(self.directory)
        custom_ops.load_for(self.directory)
        _quieten_session()
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(), config=_session_config()
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
            known = signatures.list_names(
                set(self.signature_defs) - {_INIT_SIGNATURE}
            )
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
        wanted = list(output_filter)
        definition = self.check(
            inputs, signature=signature, output_filter=wanted
        )
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
        with self._run_allowed() as session:
            try:
                values = session.run(fetches, feeds, options=options)
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

    def check(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        output_filter: Iterable[str] = (),
    ):
        """Refuses what `run` would refuse before it runs anything.

        Arguments as of `run`.

        Returns:
            `SignatureDef`.

        Raises:
            RequestError: if the request does not fit the signature.
        """
        definition = self.signature(signature)
        signatures.check_inputs(definition, inputs)
        signatures.check_outputs(definition, list(output_filter))
        return definition

    def warm_up(self) -> float:
        """Runs the model's warm-up requests, so that no user waits for it.

        The first run of a signature optimises its graph and builds the ScaNN
        searcher, about 1.5 s per million blocks.

        Returns:
            float, seconds.

        Raises:
            InputError: if the model fails on it.
        """
        # Reads tensors by means of this module.
        from realm_tf.serving import warmup

        started = time.monotonic()
        for name, inputs in warmup.read_requests(self.directory):
            try:
                self.run(inputs, signature=name)
            except RequestError as error:
                raise InputError(
                    f"The SavedModel {self.directory} fails on a first "
                    f"request to {name or DEFAULT_SIGNATURE}: {error.message}"
                ) from error
        return time.monotonic() - started

    def close(self, *, grace_seconds: float | None = None) -> None:
        """Refuses new runs, waits for running ones, frees the memory.

        Args:
            grace_seconds: float. How long to wait; runs still going then
                are cancelled. Defaults to no limit.
        """
        with self._idle:
            session, self._session = self._session, None
            self._idle.wait_for(lambda: not self._running, grace_seconds)
        if session is None:
            return
        session.close()
        # With the session goes its graph.
        del session
        memory.hand_back()

    @contextlib.contextmanager
    def _run_allowed(self) -> Iterator[tf.compat.v1.Session]:
        with self._idle:
            session = self._session
            if session is None:
                raise unavailable(f"Version {self.version} is being unloaded.")
            self._running += 1
        try:
            yield session
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()
