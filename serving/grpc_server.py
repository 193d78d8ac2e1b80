"""The gRPC side of `realm serve`: port, services, limits."""

from concurrent import futures

import grpc
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.errors import InputError
from realm_tf.serving import locate
from realm_tf.serving import security
from realm_tf.serving import service
from realm_tf.serving import service_descriptors
from realm_tf.serving.health import HealthService
from realm_tf.serving.request_handler import RequestHandler

# Threads beyond the requests that may be pending, so that one too many is
# refused, not kept waiting, and health checks are answered. Our choice.
_NUM_SPARE_THREADS = 16
# As TF Serving (main.cc) for answers: the largest int32.
_MAX_SENT_BYTES = 2**31 - 1


class GrpcServer:
    """TF Serving's services, grpc.health.v1 and reflection on a port.

    Args:
        handler: `RequestHandler`.
        host: str. Where to listen.
        port: int. 0: any free one.
        max_message_bytes: int. The largest message it reads.
        tls: `security.TlsFiles`. Defaults to `None`: unencrypted.
        api_keys: `security.ApiKeys`. Defaults to `None`: everybody may ask.

    Attributes:
        target: str. `"HOST:PORT"`.

    Raises:
        InputError: if the port is taken.
    """

    def __init__(
        self,
        handler: RequestHandler,
        *,
        host: str,
        port: int,
        max_message_bytes: int,
        tls: security.TlsFiles | None = None,
        api_keys: security.ApiKeys | None = None,
    ):
        # TensorFlow computes outside the interpreter lock, in threads of its
        # own; these wait for it, or for a batch.
        num_threads = handler.limits.max_pending + _NUM_SPARE_THREADS
        self._threads = futures.ThreadPoolExecutor(num_threads, "grpc")
        self._server = grpc.server(
            self._threads,
            interceptors=[security.ApiKeyInterceptor(api_keys)]
            if api_keys
            else [],
            options=(
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", _MAX_SENT_BYTES),
                # Or a second server on the port would get half of the calls.
                ("grpc.so_reuseport", 0),
            ),
        )
        address = f"[{host}]" if ":" in host else host
        self.target = f"{address}:{self._listen(address, host, port, tls)}"
        self._health = HealthService(handler)
        self._add_services(handler)
        self._server.start()

    def _listen(self, address: str, host: str, port: int, tls) -> int:
        wanted = f"{address}:{port}"
        try:
            if tls is None:
                return self._server.add_insecure_port(wanted)
            return self._server.add_secure_port(wanted, tls.grpc_credentials())
        except RuntimeError as error:
            raise InputError(
                locate.port_message(host, port, str(error))
            ) from error

    def _add_services(self, handler: RequestHandler) -> None:
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            service.PredictionService(handler), self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            service.ModelService(handler), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [
            *service_descriptors.register(),
            health.SERVICE_NAME,
            reflection.SERVICE_NAME,
        ]
        reflection.enable_server_reflection(names, self._server)

    def stop(self, *, grace_seconds: float):
        """Refuses new calls and lets running ones finish.

        Args:
            grace_seconds: float. Calls still running after it are
                cancelled.

        Returns:
            threading.Event, set when none is left.
        """
        self._health.stop()
        return self._server.stop(grace_seconds)

    def close(self) -> None:
        """Lets the threads go, after `stop`."""
        self._threads.shutdown(wait=False)
