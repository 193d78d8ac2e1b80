"""A server that answers: its ports, its model and its end."""

import contextlib
import time
from collections.abc import Callable

from realm_tf.serving import rest_server
from realm_tf.serving import security
from realm_tf.serving.grpc_server import GrpcServer
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.rest_api import RestApi
from realm_tf.serving.versions import Versions

# How long running requests may go on after SIGTERM; our choice, under the
# 30 s after which Kubernetes kills.
GRACE_SECONDS = 20.0
# How long cancelled ones, or a version that is being loaded, may take to end.
_CANCEL_SECONDS = 5.0


class RunningServer:
    """A server that answers until it is stopped.

    Args:
        options: `ServerOptions`.
        load: function of a version directory, the servable that is served or
            `None`, and the `ServingMetrics`, that returns a servable.

    Attributes:
        target: str. `"HOST:PORT"`, what a gRPC client connects to.
        rest_url: str. `"http://HOST:PORT"`; `None` without REST.
        handler: `RequestHandler`.

    Raises:
        InputError: if the model does not load, a port is taken or a file
            cannot be used.
    """

    def __init__(self, options: ServerOptions, load: Callable):
        api_keys = None
        if options.api_key_file:
            api_keys = security.read_api_keys(options.api_key_file)
        metrics = ServingMetrics()
        self._grpc = None
        self._rest = None
        self.rest_url = None
        with contextlib.ExitStack() as on_failure:
            self._log = RequestLog(
                options.log_file, log_questions=options.log_questions
            )
            on_failure.callback(self._log.close)
            if not options.no_rest:
                bound = rest_server.bind(
                    options.host, options.rest_port, flag="--rest-port"
                )
                on_failure.callback(bound.close)
            self._versions = Versions(
                options.model_name,
                options.saved_model,
                load=lambda *version: load(*version, metrics),
                poll_seconds=options.file_system_poll_wait_seconds,
                on_event=self._on_event,
            )
            on_failure.callback(self._versions.stop)
            self._versions.start()
            self.handler = RequestHandler(
                self._versions,
                options=options,
                metrics=metrics,
                log=self._log,
                api_keys=api_keys,
            )
            self._grpc = GrpcServer(self.handler, options)
            # Events came to nobody while it was made.
            self._grpc.update_health()
            self.target = self._grpc.target
            if not options.no_rest:
                app = RestApi(self.handler).app()
                self._rest = rest_server.RestServer(app, bound, options)
                self.rest_url = self._rest.url
            on_failure.pop_all()

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *exception_info) -> None:
        self.stop()

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
        ended = self._versions.stop(timeout_seconds=_CANCEL_SECONDS)
        if self._rest is not None:
            self._rest.join(_CANCEL_SECONDS)
        self._log.close()
        return ended

    def _on_event(self, event: str, **fields) -> None:
        self._log.event(event, **fields)
        # Those who watch it learn whether a question would be answered.
        if self._grpc is not None:
            self._grpc.update_health()

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
