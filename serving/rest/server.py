"""The HTTP side of `realm serve`: uvicorn in a thread of its own."""

import socket
import threading

import uvicorn

from realm_tf.errors import InputError
from realm_tf.serving import security

# uvicorn's own log, beside ours: only what is a defect.
_LOG_LEVEL = "error"


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self.answered = threading.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets=sockets)
        self.answered.set()


def bind(host: str, port: int) -> socket.socket:
    """A socket on the port, which nobody can reach yet.

    Args:
        host: str. A name or address of this machine.
        port: int. 0: any free one.

    Raises:
        InputError: if the port is taken or the host is not ours.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"--rest-port {port} is not between 0 and 65535.")
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        bound = socket.socket(family, kind, number)
        try:
            # A port whose last connections are still closing is free.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise InputError(
            f"Cannot listen on {host} port {port} ({error.strerror}). Stop "
            "the program that uses it, choose another with --rest-port (0 "
            "takes any free one), or leave REST out with --no-rest."
        ) from error
    return bound


class RestServer:
    """An ASGI application on a port, from a thread.

    Args:
        app: the application.
        bound: socket, of `bind`; this closes it.
        tls: `security.TlsFiles`. Defaults to `None`: unencrypted.

    Attributes:
        url: str. `"http://HOST:PORT"`.
    """

    def __init__(
        self,
        app,
        bound: socket.socket,
        *,
        tls: security.TlsFiles | None = None,
    ):
        host, port = bound.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{address}:{port}"
        self._config = uvicorn.Config(
            app,
            log_config=None,
            log_level=_LOG_LEVEL,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            **(tls.uvicorn_options() if tls else {}),
        )
        self._server = _Server(self._config)
        self._thread = threading.Thread(
            target=self._run, args=(bound,), name="rest", daemon=True
        )
        self._error: BaseException | None = None
        self._thread.start()
        self._server.answered.wait()
        if not self._server.started:
            self._thread.join()
            raise RuntimeError("The HTTP server did not start.") from (
                self._error
            )

    def _run(self, bound: socket.socket) -> None:
        try:
            self._server.run(sockets=[bound])
        # uvicorn leaves by SystemExit where it cannot start.
        except (Exception, SystemExit) as error:
            self._error = error
        finally:
            bound.close()
            self._server.answered.set()

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
