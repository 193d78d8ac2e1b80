"""Who may talk to the server: TLS and API keys, for gRPC and REST alike.

Both are off unless asked for. A key is sent as `authorization: Bearer KEY` or
`x-api-key: KEY`, as gRPC metadata or as an HTTP header. Health checks need
none, so that a probe holds no secret; everything else but the page's own files
does, metrics too.
"""

import hashlib
import hmac
import ssl
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

import grpc

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.saved_models import storage_errors
from realm_tf.errors import InputError
from realm_tf.serving.options import ServerOptions

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

    def accepts(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries one of the keys.

        Takes the same time whichever key it is, and how wrong it is.

        Args:
            headers: mapping of lower-case name to value.
        """
        sent = headers.get("x-api-key") or ""
        authorization = headers.get("authorization") or ""
        if authorization[: len(_BEARER)].lower() == _BEARER:
            sent = authorization[len(_BEARER) :].strip()
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
        lines = Path(path).read_bytes().decode("utf-8").splitlines()
    except (*storage_errors(path), UnicodeDecodeError) as error:
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


def check_tls(options: ServerOptions) -> None:
    """Refuses what TLS would only refuse at a client's first call.

    Args:
        options: `ServerOptions`.

    Raises:
        InputError: if a file is missing or broken, or key and certificate
            do not match.
    """
    if not options.tls_certificate:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An empty passphrase, or OpenSSL would ask at the terminal.
        context.load_cert_chain(
            options.tls_certificate, options.tls_key, password=b""
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"--tls-certificate {options.tls_certificate} with --tls-key "
            f"{options.tls_key} cannot be used ({error}): expected a PEM "
            "certificate chain and its PEM private key without a passphrase."
        ) from error
    if not options.tls_client_ca:
        return
    try:
        context.load_verify_locations(options.tls_client_ca)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--tls-client-ca {options.tls_client_ca} cannot be used "
            f"({error}): expected a PEM file of certificates."
        ) from error


def grpc_credentials(options: ServerOptions):
    """`grpc.ServerCredentials` for a port; `None` without TLS."""
    if not options.tls_certificate:
        return None
    ca = options.tls_client_ca
    chain = Path(options.tls_certificate).read_bytes()
    return grpc.ssl_server_credentials(
        [(Path(options.tls_key).read_bytes(), chain)],
        root_certificates=Path(ca).read_bytes() if ca else None,
        require_client_auth=ca is not None,
    )


def uvicorn_options(options: ServerOptions) -> dict:
    """The same as arguments of `uvicorn.Config`."""
    if not options.tls_certificate:
        return {}
    found = {
        "ssl_certfile": options.tls_certificate,
        "ssl_keyfile": options.tls_key,
    }
    if options.tls_client_ca:
        found["ssl_ca_certs"] = options.tls_client_ca
        found["ssl_cert_reqs"] = ssl.CERT_REQUIRED
    return found


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Answers gRPC calls without a key with UNAUTHENTICATED.

    Args:
        keys: `ApiKeys`.
        on_refused: function of a method's name and a client's address.
    """

    def __init__(self, keys: ApiKeys, on_refused: Callable[[str, str], None]):
        self._keys = keys
        self._on_refused = on_refused

    def intercept_service(self, continuation, handler_call_details):
        """The call's own handler, or one that refuses it."""
        method = handler_call_details.method
        sent = {
            key: value
            for key, value in handler_call_details.invocation_metadata
            if isinstance(value, str)
        }
        if method.startswith(_OPEN_SERVICES) or self._keys.accepts(sent):
            return continuation(handler_call_details)

        def abort(request, context):
            self._on_refused(method.rpartition("/")[2], context.peer())
            context.abort(grpc.StatusCode.UNAUTHENTICATED, REFUSAL)

        # All other services answer one message by one.
        return grpc.unary_unary_rpc_method_handler(abort)
