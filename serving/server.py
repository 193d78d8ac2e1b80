"""Serves a SavedModel with TF Serving's gRPC and REST APIs.

gRPC: PredictionService, ModelService and grpc.health.v1. REST: the /v1/models
paths, /monitoring/prometheus/metrics, probes, and a web page at /.
"""

import contextlib
import logging
import os
import signal
import threading
import time

from realm_tf.artifacts import saved_models
from realm_tf.serving.options import ServerOptions

# How long running requests may go on after SIGTERM; our choice, under the
# 30 s after which Kubernetes kills.
GRACE_SECONDS = 20.0
# How long cancelled ones, or a version that is being loaded, may take to end.
_CANCEL_SECONDS = 5.0


class RunningServer:
    """A server that answers until it is stopped.

    Args:
        options: `ServerOptions`.
        versions: `Versions`.
        watcher: `VersionWatcher`, started.
        metrics: `ServingMetrics`.
        log: `RequestLog`.
        bound: socket for REST, of `rest_server.bind`; `None` without.

    Attributes:
        target: str. `"HOST:PORT"`, what a gRPC client connects to.
        rest_url: str. `"http://HOST:PORT"`; `None` without REST.
        handler: `RequestHandler`.

    Raises:
        InputError: if the gRPC port is taken.
    """

    def __init__(
        self, options: ServerOptions, *, versions, watcher, metrics, log, bound
    ):
        from realm_tf.serving import rest_api
        from realm_tf.serving import security
        from realm_tf.serving.grpc_server import GrpcServer
        from realm_tf.serving.request_handler import RequestHandler
        from realm_tf.serving.rest_server import RestServer
        from realm_tf.serving.versions import State

        self._versions = versions
        self._watcher = watcher
        self._log = log
        self.handler = RequestHandler(
            versions, options=options, metrics=metrics, log=log
        )
        metrics.watch(
            model=options.model_name,
            list_versions=lambda: (
                (version.number, version.state is State.AVAILABLE)
                for version in versions.status(options.model_name)
            ),
            count_pending=lambda: self.handler.num_pending,
        )
        api_keys = None
        if options.api_key_file:
            api_keys = security.read_api_keys(options.api_key_file)
        self._grpc = GrpcServer(self.handler, options, api_keys=api_keys)
        self.target = self._grpc.target
        self._rest = None
        self.rest_url = None
        if bound is not None:
            app = rest_api.make_app(self.handler, api_keys=api_keys)
            self._rest = RestServer(app, bound, options)
            self.rest_url = self._rest.url

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *exception_info) -> None:
        self.stop()

    def update_health(self) -> None:
        """Tells those who watch it whether a question would be answered."""
        self._grpc.health.update()

    def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> bool:
        """Refuses new requests, lets running ones finish, frees the model.

        Args:
            grace_seconds: float. Requests still running after it are
                cancelled. Defaults to 20.

        Returns:
            bool, whether nothing is left: not if a version that is being
            loaded does not end.
        """
        deadline = time.monotonic() + grace_seconds
        self.handler.is_draining = True
        if self._rest is not None:
            self._rest.stop(grace_seconds=grace_seconds)
        self._grpc.stop(grace_seconds=grace_seconds).wait()
        if self._rest is not None:
            self._rest.join(max(0.0, deadline - time.monotonic()))
        # Requests that outlived the grace must not hold up the exit.
        self._versions.stop(grace_seconds=0)
        self._grpc.close()
        if self._rest is not None:
            self._rest.join(_CANCEL_SECONDS)
        ended = self._watcher.stop(timeout_seconds=_CANCEL_SECONDS)
        self._log.close()
        return ended

    def describe(self) -> str:
        """Where it listens and what it serves, for people and scripts."""
        where = self.target
        if self.rest_url is not None:
            where += f" and {self.rest_url}"
        name = self._versions.name
        with self._versions.use(name) as (version, servable):
            return (
                f"{where}, model {name}, version {version} "
                f"({servable.directory})"
            )


def _make_loader(options: ServerOptions, metrics):
    """The function that loads a version."""
    from realm_tf.serving.batching import BatchingServable
    from realm_tf.serving.servable import SavedModelServable

    # Enough to prepare one batch while another runs; our choice.
    num_threads = options.max_running or max(2, (os.cpu_count() or 1) // 4)

    def load(directory: str, version: int):
        return BatchingServable(
            SavedModelServable(directory),
            max_rows=options.max_merged_size,
            timeout_seconds=options.batch_timeout_seconds,
            num_threads=num_threads,
            observe=metrics.count_batch,
        )

    return load


def start_server(
    options: ServerOptions, *, only_serves: bool = False
) -> RunningServer:
    """Loads a model, warms it up and serves it from this process.

    Args:
        options: `ServerOptions`.
        only_serves: bool. Whether this process does nothing else: see
            `memory.keep_imports`. Defaults to `False`.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if the model is not there or does not load, a port is
            taken or a file cannot be used.
    """
    from realm_tf.serving import rest_server
    from realm_tf.serving import security
    from realm_tf.serving.request_log import RequestLog

    # The quick mistakes first: loading takes long.
    options.check()
    saved_models.find_version(options.saved_model)
    security.check_tls(options)
    if options.api_key_file:
        security.read_api_keys(options.api_key_file)
    # gRPC would share a port silently where its owner allows it.
    rest_server.bind(
        options.host, options.grpc_port, flag="--grpc-port"
    ).close()
    from realm_tf.serving import memory
    from realm_tf.serving.metrics import ServingMetrics
    from realm_tf.serving.version_watcher import VersionWatcher
    from realm_tf.serving.versions import Versions

    with contextlib.ExitStack() as on_failure:
        log = RequestLog(options.log_file, log_questions=options.log_questions)
        on_failure.callback(log.close)
        bound = None
        if not options.no_rest:
            bound = rest_server.bind(
                options.host, options.rest_port, flag="--rest-port"
            )
            on_failure.callback(bound.close)
        metrics = ServingMetrics()
        running = None

        def on_event(event) -> None:
            log.event(event)
            if running is not None:
                running.update_health()

        versions = Versions(options.model_name, on_event=on_event)
        load = _make_loader(options, metrics)
        if only_serves:
            memory.keep_imports()
        on_failure.callback(versions.stop, grace_seconds=0)
        watcher = VersionWatcher(
            options.saved_model,
            versions=versions,
            load=load,
            poll_seconds=options.file_system_poll_wait_seconds,
            on_event=on_event,
        )
        on_failure.callback(watcher.stop, timeout_seconds=0)
        watcher.start()
        running = RunningServer(
            options,
            versions=versions,
            watcher=watcher,
            metrics=metrics,
            log=log,
            bound=bound,
        )
        on_failure.pop_all()
    return running


def start(saved_model: str, **options) -> RunningServer:
    """Loads a SavedModel, warms it up and serves it from this process.

    Args:
        saved_model: str. Its base directory, whose newest version is served,
            or a version directory.
        **options: As of `ServerOptions`. Those that default to something
            else here: any free ports, nothing is logged, and versions that
            are exported later are not looked for.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: As `start_server`.

    Example:

    ```python
    with start("exported", grpc_port=8500) as server:
        RealmClient(server.target).ask(["Who wrote Frankenstein?"])
    ```
    """
    defaults = {
        "grpc_port": 0,
        "rest_port": 0,
        "file_system_poll_wait_seconds": 0.0,
        "log_file": "",
    }
    return start_server(
        ServerOptions(saved_model=saved_model, **{**defaults, **options})
    )


def serve_until_signal(options: ServerOptions) -> None:
    """Serves until SIGTERM or Ctrl-C; for the main thread of a process.

    Prints one line when it is ready. Ends the process where something is
    left that does not end.

    Args:
        options: `ServerOptions`.

    Raises:
        InputError: As `start_server`.
    """
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A traceback for every message that is no protobuf, between the lines
    # of the log.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    running = start_server(options, only_serves=True)
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    previous = [
        signal.signal(number, lambda *_: stopped.set()) for number in signals
    ]
    ended = False
    try:
        print(f"realm serve: ready at {running.describe()}", flush=True)
        stopped.wait()
    finally:
        # A second signal ends the process at once.
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        ended = running.stop()
    if not ended:
        # A load that is stuck would also hold up the interpreter's end.
        os._exit(0)
