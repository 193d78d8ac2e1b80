"""The options of `realm serve`, and the checks that need no model."""

import importlib.util
import socket
import ssl
from dataclasses import dataclass
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.artifacts import saved_models
from realm_tf.errors import InputError
from realm_tf.serving.client import check_tls

# As TF Serving's --port and --rest_api_port.
GRPC_PORT = 8500
REST_PORT = 8501
# Threads of a port beyond the requests that may be pending, so that one too
# many is refused and does not wait, and status and probes are answered. Our
# choice.
_NUM_SPARE_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a server. Defaults other than ports are our choice."""

    saved_model: Annotated[str, tyro.conf.arg(aliases=("--corpus",))]
    """corpus or base directory, whose newest version the server follows, or
    version directory"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 lets other machines in: use --api-key-file
    and --tls then"""
    grpc_port: int = GRPC_PORT
    """0 takes any free one and prints it"""
    rest_port: int = REST_PORT
    """port of the REST API, the metrics, the probes and the web page; 0 takes
    any free one and prints it"""
    allowed_hosts: tuple[str, ...] = ()
    """host names that the REST port accepts, beside addresses, localhost,
    --host and this machine's name"""
    tls: tuple[str, str] | None = None
    """PEM files: the server's certificate chain, and its private key without a
    passphrase"""
    tls_client_ca: str | None = None
    """PEM certificates; clients must have one that they sign"""
    api_key_file: str | None = None
    """keys, one a line; requests other than health checks must carry one
    (authorization: Bearer KEY or x-api-key: KEY). A filter after a key, such as
    KEY tags=hr, limits what the key can find"""
    max_pending: int = 128
    """most requests at once, running or waiting; more are refused"""
    max_merged_size: int = 32
    """most questions of concurrent requests in one batch; 1 runs each request by
    itself"""
    mcp: Literal["http", "stdio"] | None = None
    """offer tools to assistants by the Model Context Protocol: at /mcp of the REST
    port (http), or on standard input and output without any port (stdio); needs
    `pip install 'realm-tf[mcp]'`"""
    log_questions: bool = False
    """also log questions, and error messages, which may quote them"""

    @property
    def num_threads(self) -> int:
        """The threads of a port."""
        return self.max_pending + _NUM_SPARE_THREADS

    def check(self) -> None:
        """Refuses options that no server can use, before a model is loaded.

        Raises:
            InputError: if a value is out of range, an option needs another,
                there is no SavedModel, a TLS file cannot be used, or the gRPC
                port is taken.
        """
        for name in ("max_pending", "max_merged_size"):
            value = getattr(self, name)
            if value < 1:
                raise InputError(
                    f"--{name.replace('_', '-')} is {value}: expected at "
                    "least 1."
                )
        # To a socket it would mean every address.
        if not self.host:
            raise InputError("--host is empty: expected a name or an address.")
        if self.tls_client_ca and not self.tls:
            raise InputError("--tls-client-ca needs --tls.")
        if self.mcp and importlib.util.find_spec("mcp") is None:
            raise InputError(
                "--mcp needs the package mcp: `pip install 'realm-tf[mcp]'`."
            )
        saved_models.find_version(self.saved_model)
        check_tls(ssl.PROTOCOL_TLS_SERVER, ca=self.tls_client_ca, own=self.tls)
        # gRPC would share a port silently where its owner allows it.
        if self.mcp != "stdio":
            bind(self.host, self.grpc_port, flag="--grpc-port").close()


def bind(host: str, port: int, *, flag: str) -> socket.socket:
    """A socket on a port, which does not listen yet.

    Args:
        host: str. A name or address of this machine.
        port: int. 0: any free one.
        flag: str. The option of the port, for errors.

    Raises:
        InputError: if the port is taken or the host is not this machine.
    """
    # Only of this protocol asyncio sends the end of an answer at once; else it
    # waits until the client, 40 ms later, confirms the beginning (TCP_NODELAY).
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A port whose last connections are still closing is free.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise InputError(
            f"Cannot listen on {host} port {port} ({error}). Stop the program "
            f"that uses it, or choose another with {flag} (0 takes any free "
            "one)."
        ) from error
    return bound
