"""The HTTP side of `realm serve`: uvicorn in a thread of its own."""

import socket
import ssl
import threading
import time

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm_tf.errors import InputError
from realm_tf.serving.options import ServerOptions

# uvicorn's own log, beside ours: only what is a defect.
_LOG_LEVEL = "error"
# A connection on which nothing moves for so long, and no request is being
# answered, is closed; our choice.
_STALL_SECONDS = 20.0


class _Protocol(H11Protocol):
    """Closes connections that stall; uvicorn waits for ever for a request's
    first and last bytes, and for a client to read its answer."""

    stall_seconds = _STALL_SECONDS

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._timer = None
        self._look_again(None)

    def connection_lost(self, exc) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look_again(self, before) -> None:
        unsent = self.transport.get_write_buffer_size()
        now = (self.cycle, unsent)
        answering = self.cycle is not None and not self.cycle.response_complete
        if now == before and not answering:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(
            self.stall_seconds, self._look_again, now
        )


def bind(host: str, port: int, *, flag: str) -> socket.socket:
    """A socket on a port, which nobody can reach yet.

    Args:
        host: str. A name or address of this machine.
        port: int. 0: any free one.
        flag: str. The option that says the port, for errors.

    Raises:
        InputError: if the port is taken or the host is not ours.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # A port whose last connections are still closing is free.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise InputError(
            f"Cannot listen on {host} port {port} ({error.strerror}). Stop "
            f"the program that uses it, or choose another with {flag} (0 "
            "takes any free one)."
        ) from error
    return bound


class RestServer:
    """An ASGI application on a port, from a thread.

    Args:
        app: the application.
        bound: socket, of `bind`; this closes it.
        options: `ServerOptions`.

    Attributes:
        url: str. `"http://HOST:PORT"`.
    """

    def __init__(self, app, bound: socket.socket, options: ServerOptions):
        host, port = bound.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        scheme = "https" if options.tls_certificate else "http"
        self.url = f"{scheme}://{address}:{port}"
        self._config = uvicorn.Config(
            app,
            http=_Protocol,
            log_config=None,
            log_level=_LOG_LEVEL,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            ssl_certfile=options.tls_certificate,
            ssl_keyfile=options.tls_key,
            ssl_ca_certs=options.tls_client_ca,
            ssl_cert_reqs=(
                ssl.CERT_REQUIRED if options.tls_client_ca else ssl.CERT_NONE
            ),
        )
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [bound]},
            name="rest",
            daemon=True,
        )
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise RuntimeError("The HTTP server did not start.")

    def stop(self, *, grace_seconds: float) -> None:
        """Refuses new requests; running ones may finish. Does not wait.

        Args:
            grace_seconds: float. How long they may take.
        """
        self._config.timeout_graceful_shutdown = grace_seconds
        self._server.should_exit = True

    def join(self, timeout_seconds: float) -> None:
        """Waits for the last request.

        Args:
            timeout_seconds: float. At most so long.
        """
        self._thread.join(timeout_seconds)
