"""Serves SavedModels with TF Serving's gRPC and REST APIs.

  realm serve --saved-model DIR
  realm serve --model-config-file models.config

gRPC: PredictionService, ModelService, grpc.health.v1 and reflection. REST: the
/v1/models paths, /monitoring/prometheus/metrics, and a web page at /. Prints
one line when it is ready; SIGTERM or Ctrl-C lets running requests finish and
ends it.
"""

import argparse
import contextlib
import dataclasses
import logging
import os
import signal
import threading
import time

from realm_tf.serving import locate
from realm_tf.serving import options as options_module
from realm_tf.serving.options import DEFAULT_MODEL_NAME
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.versions.config import ModelSettings

# How long running requests may go on after SIGTERM; our choice, under the
# 30 s after which Kubernetes kills.
GRACE_SECONDS = 20.0
# How long cancelled ones may take to end.
_CANCEL_SECONDS = 5.0
add_arguments = options_module.add_arguments


class RunningServer:
    """A server that answers until it is stopped.

    Args:
        manager: `ModelManager`, started.
        options: `ServerOptions`.
        metrics: `ServingMetrics`.
        log: `RequestLog`.
        bound: socket for REST, of `rest_server.bind`; `None` without.
        config_file: `ModelConfigFile`, started; `None` without.
        default_model: str. What the web page asks. Defaults to `"realm"`.

    Attributes:
        target: str. `"HOST:PORT"`, what a gRPC client connects to.
        rest_url: str. `"http://HOST:PORT"`; `None` without REST.
        handler: `RequestHandler`.

    Raises:
        InputError: if the gRPC port is taken.
    """

    def __init__(
        self,
        manager,
        options: ServerOptions,
        *,
        metrics,
        log,
        bound=None,
        config_file=None,
        default_model: str = DEFAULT_MODEL_NAME,
    ):
        from realm_tf.serving.grpc_server import GrpcServer
        from realm_tf.serving.health import versions
        from realm_tf.serving.request_handler import RequestHandler

        self._manager = manager
        self._log = log
        self._config_file = config_file
        self._rest = None
        self.handler = RequestHandler(
            manager, limits=options.limits, metrics=metrics, log=log
        )
        metrics.watch_versions(
            lambda: (
                (name, *version)
                for name in self.handler.names()
                for version in versions(self.handler, name)
            )
        )
        self._grpc = GrpcServer(
            self.handler,
            host=options.host,
            port=options.grpc_port,
            max_message_bytes=options.max_message_bytes,
            tls=options.tls,
            api_keys=options.api_keys,
        )
        self.target = self._grpc.target
        self.rest_url = None
        if bound is not None:
            self._rest = self._start_rest(options, bound, default_model)
            self.rest_url = self._rest.url

    def _start_rest(self, options: ServerOptions, bound, default_model: str):
        from realm_tf.serving.rest import app as rest
        from realm_tf.serving.rest.server import RestServer

        app = rest.make_app(
            self.handler,
            max_body_bytes=options.max_message_bytes,
            api_key=options.api_keys,
            default_model=default_model,
        )
        return RestServer(app, bound, tls=options.tls)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *exception_info) -> None:
        self.stop()

    def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Refuses new requests, lets running ones finish, frees the models.

        Args:
            grace_seconds: float. Requests still running after it are
                cancelled. Defaults to 20.
        """
        deadline = time.monotonic() + grace_seconds
        if self._rest is not None:
            self._rest.stop(grace_seconds=grace_seconds)
        self._grpc.stop(grace_seconds=grace_seconds).wait()
        if self._rest is not None:
            self._rest.join(max(0.0, deadline - time.monotonic()))
        if self._config_file is not None:
            self._config_file.stop(grace_seconds=0)
        # Requests that outlived the grace must not hold up the exit.
        self._manager.stop(grace_seconds=0)
        self._grpc.close()
        if self._rest is not None:
            self._rest.join(_CANCEL_SECONDS)
        self._log.close()

    def describe(self) -> str:
        """Where it listens and what it serves, for people and scripts."""
        where = self.target
        if self.rest_url is not None:
            where += f" and {self.rest_url}"
        models = []
        for name in self.handler.names():
            with self._manager.use(name) as (version, servable):
                models.append(
                    f"model {name}, version {version} ({servable.directory})"
                )
        return f"{where}, {'; '.join(models)}"


def _make_loader(options: ServerOptions, metrics):
    """The function that loads a version for the manager."""
    from realm_tf.serving.batching.batching_servable import BatchingServable
    from realm_tf.serving.servable import SavedModelServable

    class MeasuredServable(SavedModelServable):
        def warm_up(self) -> float:
            seconds = super().warm_up()
            metrics.count_warm_up(self.directory, seconds)
            return seconds

    def observe(batch) -> None:
        metrics.count_batch(
            batch, thread_pool_name=options.batching.thread_pool_name
        )

    def load(directory: str, version: int):
        started = time.monotonic()
        try:
            servable = MeasuredServable(directory)
        except BaseException:
            metrics.count_load(directory, None)
            raise
        metrics.count_load(directory, time.monotonic() - started)
        if options.batching is None:
            return servable
        return BatchingServable(servable, options.batching, observe=observe)

    return load


def _follow_config(settings, options: ServerOptions, manager, log):
    """The started `ModelConfigFile`, if the options ask for one."""
    from realm_tf.serving.versions.config_file import ModelConfigFile

    if options.config_path is None or not options.config_poll_seconds:
        return None
    config_file = ModelConfigFile(
        options.config_path,
        manager=manager,
        settings=settings,
        poll_seconds=options.config_poll_seconds,
        on_event=log.event,
    )
    config_file.start()
    return config_file


def start_server(
    settings: list[ModelSettings],
    options: ServerOptions,
    *,
    only_serves: bool = False,
) -> RunningServer:
    """Loads models, warms them up and serves them from this process.

    Args:
        settings: list of `ModelSettings`.
        options: `ServerOptions`.
        only_serves: bool. Whether this process does nothing else: see
            `memory.keep_imports`. Defaults to `False`.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if a model is not there or does not load, or a port is
            taken.
    """
    # The quick mistakes first: loading takes long.
    locate.check_port(options.host, options.grpc_port)
    from realm_tf.serving import memory
    from realm_tf.serving.metrics import ServingMetrics
    from realm_tf.serving.request_log import RequestLog
    from realm_tf.serving.rest import server as rest_server
    from realm_tf.serving.versions.manager import ModelManager

    with contextlib.ExitStack() as on_failure:
        log = RequestLog(options.log_path, log_questions=options.log_questions)
        on_failure.callback(log.close)
        bound = None
        if options.rest_port is not None:
            bound = rest_server.bind(options.host, options.rest_port)
            on_failure.callback(bound.close)
        metrics = ServingMetrics()
        manager = ModelManager(
            settings,
            load=_make_loader(options, metrics),
            poll_seconds=options.poll_seconds,
            allow_labels_for_unavailable=options.allow_unavailable_labels,
            on_event=log.event,
        )
        if only_serves:
            memory.keep_imports()
        on_failure.callback(manager.stop, grace_seconds=0)
        manager.start()
        running = RunningServer(
            manager,
            options,
            metrics=metrics,
            log=log,
            bound=bound,
            config_file=_follow_config(settings, options, manager, log),
            default_model=settings[0].name,
        )
        on_failure.pop_all()
    return running


def start(
    saved_model: str,
    *,
    host: str = "127.0.0.1",
    grpc_port: int = 0,
    rest_port: int | None = None,
    model_name: str = DEFAULT_MODEL_NAME,
    options: ServerOptions | None = None,
) -> RunningServer:
    """Loads a SavedModel, warms it up and serves it from this process.

    Versions that are exported later are not looked for, and nothing is
    logged, unless `options` say so.

    Args:
        saved_model: str. Its base directory, whose highest version is
            served, or a version directory.
        host: str. Where to listen. Defaults to `"127.0.0.1"`.
        grpc_port: int. Defaults to 0: any free port.
        rest_port: int. 0: any free port. Defaults to `None`: no REST.
        model_name: str. The name clients ask for. Defaults to `"realm"`.
        options: `ServerOptions`. All else; host and ports are those above.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if there is no SavedModel, it does not load, or a port
            is taken.

    Example:

    ```python
    with start("exported", grpc_port=8500) as server:
        RealmClient(server.target).ask(["Who wrote Frankenstein?"])
    ```
    """
    return start_server(
        options_module.single_model(saved_model, model_name),
        dataclasses.replace(
            options or ServerOptions(),
            host=host,
            grpc_port=grpc_port,
            rest_port=rest_port,
        ),
    )


def _until_signal(running: RunningServer) -> None:
    """Says that it is ready, waits for SIGTERM or SIGINT and stops."""
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    previous = [
        signal.signal(number, lambda *_: stopped.set()) for number in signals
    ]
    try:
        print(f"realm serve: ready at {running.describe()}", flush=True)
        stopped.wait()
    finally:
        # A second signal ends the process at once.
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        running.stop()


def run(args: argparse.Namespace, extra: list[str]) -> int:
    """Runs `realm serve`, from the main thread."""
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A traceback for every message that is no protobuf, between the lines
    # of the log.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    settings = options_module.read_settings(args)
    options = options_module.read_options(args)
    running = start_server(settings, options, only_serves=True)
    _until_signal(running)
    return 0
