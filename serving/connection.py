"""A client's connection: its channel, what it is secured by, what fails."""

import json
import pathlib
import ssl
from collections.abc import Callable

import grpc

# The most that gRPC allows.
MAX_ATTEMPTS = 5
_ADVICE = {
    "NOT_FOUND": "Ask for a model and a version that it serves.",
    "UNAUTHENTICATED": "Give a key that it accepts.",
    "PERMISSION_DENIED": "Give a key that it accepts.",
    "RESOURCE_EXHAUSTED": "Ask again later, or fewer questions at once.",
    "UNIMPLEMENTED": "It should be a gRPC port of `realm serve` or of "
    "TensorFlow Serving.",
}
# How gRPC 1.85 words a failed handshake, which has no code of its own.
_TLS_SIGNS = ("handshake failed", "verification check failed")
_NO_CAUSES = ("OK", "Invalid certificate verification context", "")


def channel_options(max_attempts: int) -> tuple[tuple, ...]:
    """How a channel sends large messages, and requests again.

    Nothing was computed where a server says UNAVAILABLE or
    RESOURCE_EXHAUSTED, and every call of this client only reads. Four pauses
    of at most 1.5 s together: a server that is busy for a moment is waited
    for, one that is not there is told soon (our choice).

    Args:
        max_attempts: int. How often a request is sent at most.

    Raises:
        ValueError: if gRPC cannot do as many.
    """
    if not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise ValueError(
            f"`max_attempts` must be between 1 and {MAX_ATTEMPTS}. "
            f"Received: max_attempts={max_attempts}"
        )
    policy = {
        "maxAttempts": max_attempts,
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    again = {"retryPolicy": policy} if max_attempts > 1 else {}
    config = {"methodConfig": [{"name": [{}], **again}]}
    return (
        # Block texts of a large batch pass gRPC's default of 4 MB. The limit
        # is TF Serving's (main.cc: the largest int32).
        ("grpc.max_receive_message_length", 2**31 - 1),
        ("grpc.max_send_message_length", 2**31 - 1),
        ("grpc.service_config", json.dumps(config)),
        # gRPC waits a second before it connects again, and fails what is
        # called meanwhile: all attempts would be spent on that.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
    )


def _check_pem(load: Callable, *paths: str, expected: str) -> None:
    """Refuses files that gRPC would only fail over at the first call."""
    try:
        load(*paths)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{' and '.join(paths)} cannot be used for TLS "
            f"({getattr(error, 'strerror', error)}): expected {expected} in PEM form."
        ) from error


def credentials(
    *,
    tls: bool,
    tls_ca: str | None,
    client_certificate: str | None,
    client_key: str | None,
) -> grpc.ChannelCredentials | None:
    """What a secure channel needs.

    Args:
        tls: bool. As this and the other arguments, see `client.RealmClient`.

    Returns:
        `grpc.ChannelCredentials`; `None` for a plain channel.

    Raises:
        ValueError: if a file cannot be used or an argument lacks another.
    """
    if (client_certificate is None) != (client_key is None):
        raise ValueError(
            "`client_certificate` and `client_key` go together. Received: "
            f"client_certificate={client_certificate!r}, "
            f"client_key={client_key!r}"
        )
    if not tls and tls_ca is None:
        if client_key is not None:
            raise ValueError(
                "`client_certificate` is of use over TLS only: give `tls_ca`, "
                "or `tls=True` for the public authorities."
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls_ca is not None:
        _check_pem(
            context.load_verify_locations, tls_ca, expected="certificates"
        )
    if client_key is not None:
        _check_pem(
            # An empty passphrase, or OpenSSL would ask at the terminal.
            lambda *paths: context.load_cert_chain(*paths, password=b""),
            client_certificate,
            client_key,
            expected="a certificate and its key without a passphrase",
        )
    paths = (tls_ca, client_key, client_certificate)
    return grpc.ssl_channel_credentials(
        *(path and pathlib.Path(path).read_bytes() for path in paths)
    )


def headers(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that carries a key.

    Args:
        api_key: str. Or `None`.

    Returns:
        tuple of (name, value), empty without a key.

    Raises:
        ValueError: if a header cannot carry it.
    """
    if api_key is None:
        return ()
    # gRPC would tell the key in its error.
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError(
            "`api_key` must be printable ASCII characters without spaces; "
            "it is not shown here."
        )
    return (("authorization", f"Bearer {api_key}"),)


def _explain_unavailable(details: str, target: str) -> str:
    # gRPC tells the way down to the cause, which comes last.
    causes = [part for part in details.split(": ") if part not in _NO_CAUSES]
    reason = causes[-1].rpartition(":")[2].rstrip("].") if causes else ""
    if any(sign in details for sign in _TLS_SIGNS):
        return (
            f"The server at {target} and this client found no TLS connection "
            f"({reason}). Give the authority that signed its certificate, use "
            "a name that the certificate holds, or leave TLS away if the "
            "server has none."
        )
    port = target.rpartition(":")[2]
    return (
        f"No server answers at {target} ({reason}). Start one with `realm "
        f"serve --saved-model DIR --grpc-port {port}`, or correct the "
        "address; one that speaks TLS needs a client that does."
    )


def explain(
    code: str, details: str, *, target: str, timeout_seconds: float
) -> str:
    """What went wrong with a call and what to do about it.

    Args:
        code: str. The gRPC status name.
        details: str. What gRPC or the server said.
        target: str. The server's address.
        timeout_seconds: float. How long the call was allowed to take.

    Returns:
        str, a sentence or two.
    """
    if code == "UNAVAILABLE":
        return _explain_unavailable(details, target)
    if code == "DEADLINE_EXCEEDED":
        return (
            f"The server at {target} gave no answer within "
            f"{timeout_seconds:g} s; ask fewer questions at once or allow "
            "more time."
        )
    advice = f" {_ADVICE[code]}" if code in _ADVICE else ""
    stop = "." if advice and details[-1:] not in (*".!?", "") else ""
    return f"The server at {target} refused ({code}): {details}{stop}{advice}"
