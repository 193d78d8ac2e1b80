"""grpc.health.v1: whether all models have a version that answers."""

import threading

from grpc_health.v1 import health
from grpc_health.v1 import health_pb2

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions.table import State

# The empty name is the server as a whole.
SERVICES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)
# How often those who watch are told; a check looks for itself. Our choice.
_WATCH_SECONDS = 1.0


class HealthService(health.HealthServicer):
    """SERVING while every model has an AVAILABLE version.

    Args:
        handler: `RequestHandler`.
    """

    def __init__(self, handler):
        super().__init__()
        self._handler = handler
        self._changing = threading.Lock()
        self._status = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._update_until_stopped, name="health", daemon=True
        )
        self.update()
        self._thread.start()

    def Check(self, request, context):
        """The state of now."""
        self.update()
        return super().Check(request, context)

    def update(self) -> None:
        """Looks at the models."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if all_available(self._handler)
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        with self._changing:
            if status == self._status:
                return
            self._status = status
            for name in SERVICES:
                # Ignored after the shutdown began.
                self.set(name, status)

    def stop(self) -> None:
        """NOT_SERVING from now on."""
        self.enter_graceful_shutdown()
        self._stopping.set()
        self._thread.join()

    def _update_until_stopped(self) -> None:
        while not self._stopping.wait(_WATCH_SECONDS):
            self.update()


def all_available(handler) -> bool:
    """Whether every configured model can be used."""
    return all(_is_available(handler, name) for name in handler.names())


def _is_available(handler, name: str) -> bool:
    return any(available for _, available in versions(handler, name))


def versions(handler, name: str) -> list[tuple[int, bool]]:
    """The versions of a model and whether each answers.

    Args:
        handler: `RequestHandler`.
        name: str. The model; one that is gone meanwhile has none.
    """
    try:
        statuses = handler.status(name)
    except RequestError:
        return []
    return [(s.version, s.state == State.AVAILABLE) for s in statuses]
