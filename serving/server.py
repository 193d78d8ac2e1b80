"""Serves a SavedModel with TF Serving's gRPC and REST APIs.

gRPC: PredictionService, ModelService and grpc.health.v1. REST: the /v1/models
paths, /monitoring/prometheus/metrics, probes, and a web page at /.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable

from realm_tf.serving import access
from realm_tf.serving import memory
from realm_tf.serving import metrics
from realm_tf.serving.batching import BatchingServable
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.grpc_server import GrpcServer
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.options import bind
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.rest_server import RestServer
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.versions import Versions

# Time for running requests after SIGTERM; our choice, below the 30 s after
# which Kubernetes kills.
GRACE_SECONDS = 20.0
# Time for cancelled requests, or a version that is being loaded, to end.
_CANCEL_SECONDS = 5.0
# Time between two looks for new versions, as TF Serving's default.
_POLL_SECONDS = 1.0
# How often the main thread looks for a signal.
_SIGNAL_SECONDS = 0.1
# Time for a question to wait for others of its batch; our choice.
_BATCH_TIMEOUT_SECONDS = 0.002
# Batches in TensorFlow at once: enough to prepare one while another runs; our
# choice.
_NUM_BATCH_THREADS = max(2, (os.cpu_count() or 1) // 4)


class RunningServer:
    """A server that answers until it is stopped.

    Args:
        options: `ServerOptions`.
        load: function of a version directory and the `ServingMetrics` that
            returns a servable. Defaults to `None`: it loads a SavedModel and
            merges concurrent requests.

    Attributes:
        target: str. `"HOST:PORT"` for gRPC clients.
        rest_url: str. `"http://HOST:PORT"`.
        handler: `RequestHandler`.

    Raises:
        InputError: if the model does not load, a port is taken or a file
            cannot be used.
    """

    def __init__(self, options: ServerOptions, load: Callable | None = None):
        api_keys = None
        if options.api_key_file:
            api_keys = access.read_api_keys(options.api_key_file)
        counted = metrics.ServingMetrics()
        self._options = options
        self._grpc = None
        load = load or self._load
        with contextlib.ExitStack() as on_failure:
            by_port = options.mcp != "stdio"
            if by_port:
                bound = bind(
                    options.host, options.rest_port, flag="--rest-port"
                )
                on_failure.callback(bound.close)
            self._versions = Versions(
                options.saved_model,
                load=lambda directory: load(directory, counted),
                poll_seconds=_POLL_SECONDS,
                on_event=self._on_event,
            )
            on_failure.callback(self._versions.stop)
            self._versions.start()
            self.handler = RequestHandler(
                self._versions,
                options=options,
                metrics=counted,
                api_keys=api_keys,
            )
            if by_port:
                self._grpc = GrpcServer(self.handler, options)
                # Versions may have changed before the health service was there.
                self._grpc.update_health()
                self.target = self._grpc.target
                self._rest = RestServer(self.handler, bound)
                self.rest_url = self._rest.url
            on_failure.pop_all()

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *exception_info) -> None:
        self.stop()

    def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> bool:
        """Refuses new requests, lets running ones finish, frees the model.

        Args:
            grace_seconds: float. Requests that still run after it are
                cancelled. Defaults to 20.

        Returns:
            bool, whether everything has ended: not if a version that is being
            loaded does not end.
        """
        deadline = time.monotonic() + grace_seconds
        self.handler.is_draining = True
        if self._grpc is not None:
            self._rest.stop(grace_seconds=grace_seconds)
            stopped = self._grpc.stop(grace_seconds=grace_seconds)
            while self.handler.num_pending:
                if stopped.wait(_SIGNAL_SECONDS):
                    break
            # Who watches the health does not end; answers on their way do.
            rest = min(grace_seconds, _CANCEL_SECONDS)
            self._grpc.stop(grace_seconds=rest).wait()
            self._rest.join(max(0.0, deadline - time.monotonic()))
        # Requests that outlived the grace must not hold up the exit.
        ended = self._versions.stop(timeout_seconds=_CANCEL_SECONDS)
        if self._grpc is not None:
            self._rest.join(_CANCEL_SECONDS)
        return ended

    def describe(self) -> str:
        """Addresses and model, for people and scripts."""
        with self._versions.use(MODEL_NAME) as (version, servable):
            return (
                f"{self.target} and {self.rest_url}, model {MODEL_NAME}, "
                f"version {version} ({servable.directory})"
            )

    def _load(self, directory, counted):
        return BatchingServable(
            SavedModelServable(directory),
            max_rows=self._options.max_merged_size,
            timeout_seconds=_BATCH_TIMEOUT_SECONDS,
            num_threads=_NUM_BATCH_THREADS,
            observe=counted.count_batch,
        )

    def _on_event(self, event: str, **fields) -> None:
        metrics.log_event(event, **fields)
        # Probes of the health service learn whether questions are answered.
        if self._grpc is not None:
            self._grpc.update_health()


def start(saved_model: str, **options) -> RunningServer:
    """Loads a SavedModel, warms it up and serves it from this process.

    Args:
        saved_model: str. Base directory, of which the newest version is
            served, or version directory.
        **options: As of `ServerOptions`; ports default to any free ones.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if the model is not there or does not load, a port is
            taken or a file cannot be used.

    Example:

    ```python
    with start("exported", grpc_port=8500) as server:
        RealmClient(server.target).ask(["Who wrote Frankenstein?"])
    ```
    """
    ports = {"grpc_port": 0, "rest_port": 0}
    chosen = ServerOptions(saved_model=saved_model, **{**ports, **options})
    chosen.check()
    return RunningServer(chosen)


def serve_until_signal(options: ServerOptions) -> None:
    """Serves until SIGTERM or Ctrl-C; for the main thread of a process.

    Prints one line when it is ready, and writes the log to stderr. Ends the
    process if a load does not end. With `mcp="stdio"` it prints nothing else
    than the protocol, and ends with its standard input.

    Args:
        options: `ServerOptions`, checked.

    Raises:
        InputError: As `start`.
    """
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # It writes a traceback for every message that is no protobuf, between the
    # lines of the log.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    memory.keep_imports()
    with metrics.logged_to_stderr():
        if options.mcp == "stdio":
            from realm_tf.serving import mcp_server

            with RunningServer(options) as running:
                mcp_server.make(running.handler).run("stdio")
        else:
            _serve_until_signal(options)


def _serve_until_signal(options):
    running = RunningServer(options)
    received = []
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        print(f"realm serve: ready at {running.describe()}", flush=True)
        # A signal that the kernel hands to another thread wakes no lock of this
        # one, and its handler runs only when this one is awake.
        while not received:
            time.sleep(_SIGNAL_SECONDS)
    finally:
        # A second signal ends the process at once.
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        ended = running.stop()
    if not ended:
        # A load that is stuck would also hold up the interpreter's end.
        os._exit(0)
