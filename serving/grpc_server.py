"""The gRPC side of `realm serve`: port, services, grpc.health.v1."""

import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.serving import security
from realm_tf.serving.grpc_services import GrpcServices
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_handler import RequestHandler

# Threads beyond the requests that may be pending, so that one too many is
# refused, not kept waiting, and health checks are answered. Our choice.
_NUM_SPARE_THREADS = 16
_CHANNEL_OPTIONS = (
    # As TF Serving (main.cc) for answers: the largest int32.
    ("grpc.max_send_message_length", 2**31 - 1),
    # Or a second server on the port would get half of the calls.
    ("grpc.so_reuseport", 0),
    # Clients that say nothing, or are gone without a word (our choice).
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
# The empty name is the server as a whole.
_HEALTH_NAMES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


class GrpcServer:
    """The services on a port.

    Args:
        handler: `RequestHandler`.
        options: `ServerOptions`.

    Attributes:
        target: str. `"HOST:PORT"`.

    Raises:
        RuntimeError: if the port has been taken since it was looked at.
    """

    def __init__(self, handler: RequestHandler, options: ServerOptions):
        self._handler = handler
        # TensorFlow computes outside the interpreter lock, in threads of its
        # own; these wait for it, or for a batch.
        threads = futures.ThreadPoolExecutor(
            options.max_pending + _NUM_SPARE_THREADS, "grpc"
        )
        self._server = grpc.server(
            threads,
            options=(
                *_CHANNEL_OPTIONS,
                ("grpc.max_receive_message_length", options.max_message_bytes),
            ),
        )
        host = f"[{options.host}]" if ":" in options.host else options.host
        wanted = f"{host}:{options.grpc_port}"
        credentials = security.grpc_credentials(options)
        if credentials is None:
            port = self._server.add_insecure_port(wanted)
        else:
            port = self._server.add_secure_port(wanted, credentials)
        self.target = f"{host}:{port}"
        self._health = health.HealthServicer()
        self._updating_health = threading.Lock()
        self.update_health()
        services = GrpcServices(handler)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            services, self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            services, self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.start()

    def update_health(self) -> None:
        """grpc.health.v1: SERVING while a request would be answered."""
        # Or one thread would overwrite what another has seen later.
        with self._updating_health:
            status = (
                health_pb2.HealthCheckResponse.SERVING
                if self._handler.is_ready()
                else health_pb2.HealthCheckResponse.NOT_SERVING
            )
            for name in _HEALTH_NAMES:
                self._health.set(name, status)

    def stop(self, *, grace_seconds: float):
        """Refuses new calls and lets running ones finish.

        Args:
            grace_seconds: float. Calls still running after it are
                cancelled.

        Returns:
            threading.Event, set when none is left.
        """
        self._health.enter_graceful_shutdown()
        return self._server.stop(grace_seconds)
