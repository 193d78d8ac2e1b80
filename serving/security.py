"""Who may talk to the server: TLS and API keys, for gRPC and REST alike.

Both are off unless asked for. A key is sent as `authorization: Bearer KEY` or
`x-api-key: KEY`, as gRPC metadata or as an HTTP header. Health checks
(grpc.health.v1) need none, so that a probe holds no secret; everything else
does, metrics and reflection too.
"""

import hashlib
import hmac
import ssl
from collections.abc import Iterable
from dataclasses import dataclass

import grpc

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.serving import locate

# 16 characters out of 64 are 96 bits, beyond any guessing over a network.
# Our choice.
MIN_KEY_LENGTH = 16
REFUSAL = (
    "This server needs an API key: send it as `authorization: Bearer KEY` or "
    "`x-api-key: KEY`."
)
_BEARER = "bearer "
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class ApiKeys:
    """The keys a server accepts.

    Args:
        keys: iterable of str.
    """

    def __init__(self, keys: Iterable[str]):
        # Digests have one length, so a comparison tells nothing of a key's.
        self._digests = [_digest(key) for key in keys]

    def accepts(
        self, authorization: str | None, x_api_key: str | None = None
    ) -> bool:
        """Whether a request carries one of the keys.

        Takes the same time whichever key it is, and how wrong it is.

        Args:
            authorization: str. The header of that name; `None` if not sent.
            x_api_key: str. The header `x-api-key`.
        """
        sent = x_api_key or ""
        if authorization and authorization[:7].lower() == _BEARER:
            sent = authorization[7:].strip()
        digest = _digest(sent)
        matches = [hmac.compare_digest(digest, d) for d in self._digests]
        return any(matches)


def read_api_keys(path: str) -> ApiKeys:
    """The keys of a file.

    Args:
        path: str. A text file with a key a line; empty lines and those that
            start with # do not count. Several keys let one be replaced
            while clients still use the other.

    Raises:
        InputError: if there is no such file, no key in it, or one is too
            short or has characters that a header cannot carry.
    """
    try:
        data = Path(path).read_bytes()
        lines = data.decode("utf-8").splitlines()
    except (*locate.storage_errors(path), UnicodeDecodeError) as error:
        raise InputError(
            f"--api-key-file {path} cannot be read ({error}): expected a "
            "text file with a key a line."
        ) from error
    keys = []
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        printable = key.isascii() and key.isprintable() and " " not in key
        if len(key) < MIN_KEY_LENGTH or not printable:
            # Never the key itself: errors end up in logs.
            raise InputError(
                f"--api-key-file {path}, line {number} is no key: expected "
                f"at least {MIN_KEY_LENGTH} printable ASCII characters "
                "without spaces, such as `openssl rand -hex 32` makes."
            )
        keys.append(key)
    if not keys:
        raise InputError(
            f"--api-key-file {path} holds no key: expected one a line, such "
            "as `openssl rand -hex 32` makes."
        )
    return ApiKeys(keys)


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files of a server.

    Args:
        certificate: str. Path of its certificate chain.
        key: str. Path of its private key, without a passphrase.
        client_ca: str. Path of the certificates that sign clients': those
            without one are turned away. Defaults to `None`: any client.
    """

    certificate: str
    key: str
    client_ca: str | None = None

    def check(self) -> None:
        """Refuses what TLS would only refuse at a client's first call.

        Raises:
            InputError: if a file is missing or broken, or key and
                certificate do not belong together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An empty passphrase, or OpenSSL would ask at the terminal.
            context.load_cert_chain(
                self.certificate, self.key, password=lambda: b""
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"--tls-certificate {self.certificate} with --tls-key "
                f"{self.key} cannot be used ({error}): expected a PEM "
                "certificate chain and its PEM private key without a "
                "passphrase."
            ) from error
        if self.client_ca is None:
            return
        try:
            context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--tls-client-ca {self.client_ca} cannot be used ({error}): "
                "expected a PEM file of certificates."
            ) from error

    def grpc_credentials(self):
        """`grpc.ServerCredentials` for a port."""
        return grpc.ssl_server_credentials(
            [
                (
                    Path(self.key).read_bytes(),
                    Path(self.certificate).read_bytes(),
                )
            ],
            root_certificates=self.client_ca
            and Path(self.client_ca).read_bytes(),
            require_client_auth=self.client_ca is not None,
        )

    def uvicorn_options(self) -> dict:
        """The same as arguments of `uvicorn.Config`."""
        options = {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        if self.client_ca is not None:
            options["ssl_ca_certs"] = self.client_ca
            options["ssl_cert_reqs"] = ssl.CERT_REQUIRED
        return options


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Answers gRPC calls without a key with UNAUTHENTICATED.

    Args:
        keys: `ApiKeys`.
    """

    def __init__(self, keys: ApiKeys):
        self._keys = keys

    def intercept_service(self, continuation, handler_call_details):
        """The call's own handler, or one that refuses it."""
        handler = continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(
            _OPEN_SERVICES
        ):
            return handler
        sent = {
            key: value
            for key, value in handler_call_details.invocation_metadata
            if isinstance(value, str)
        }
        if self._keys.accepts(sent.get("authorization"), sent.get("x-api-key")):
            return handler
        return _refusing(handler)


def _refusing(handler):
    """A handler of the same kind, streaming or not, that aborts."""

    def abort(request, context):
        context.abort(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    kind = kinds[handler.request_streaming, handler.response_streaming]
    return kind(
        abort,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
