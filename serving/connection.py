"""A client's connection: its channel, what it is secured by, what fails."""

import ipaddress
import json
import os
import pathlib
import ssl

import grpc

from realm_tf.errors import InputError

# The most that gRPC allows.
MAX_ATTEMPTS = 5
# In the order in which gRPC reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
# What gRPC says on the way down to the cause.
_NO_CAUSES = ("OK", "Invalid certificate verification context", "")


def channel_options(target: str, max_attempts: int) -> tuple[tuple, ...]:
    """How a channel sends large messages, and requests again.

    Nothing was computed where a server says UNAVAILABLE or
    RESOURCE_EXHAUSTED, and every call of this client only reads. Four pauses
    of at most 1.5 s together: a server that is busy for a moment is waited
    for, one that is not there is told soon (our choice).

    Args:
        target: str. The server's address. To this machine no proxy leads,
            whatever the environment says.
        max_attempts: int. How often a request is sent at most.

    Raises:
        InputError: if gRPC cannot do as many.
    """
    if not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InputError(
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
        ("grpc.enable_http_proxy", int(not _is_this_machine(target))),
    )


def _is_this_machine(target):
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _proxy(target):
    """Which variable names a proxy that gRPC asks for a server, or `""`."""
    if _is_this_machine(target):
        return ""
    return next((name for name in _PROXIES if os.environ.get(name)), "")


def check_tls(
    context: ssl.SSLContext,
    *,
    ca: str | None,
    certificate: str | None,
    key: str | None,
) -> None:
    """Refuses files that TLS would only fail over at the first call.

    Args:
        context: ssl.SSLContext.
        ca: str. Path of the certificates to trust, or `None`.
        certificate: str. Path of the own certificate chain, or `None`.
        key: str. Path of its key, or `None`.

    Raises:
        InputError: if one is given without the other, or cannot be used.
    """
    if (certificate is None) != (key is None):
        raise InputError(
            "A TLS certificate and its key go together. Received: "
            f"certificate={certificate!r}, key={key!r}"
        )
    files = ca
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        if key is not None:
            files = f"{certificate} with {key}"
            # An empty passphrase, or OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, password=b"")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{files} cannot be used for TLS "
            f"({getattr(error, 'strerror', error)}): expected certificates in "
            "PEM form, and a key without a passphrase."
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
        InputError: if a file cannot be used or an argument lacks another.
    """
    check_tls(
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        ca=tls_ca,
        certificate=client_certificate,
        key=client_key,
    )
    if not tls and tls_ca is None:
        if client_key is not None:
            raise InputError(
                "A client's certificate is of use over TLS only: say which "
                "authority to trust."
            )
        return None
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
        InputError: if a header cannot carry it.
    """
    if api_key is None:
        return ()
    # gRPC would tell the key in its error.
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InputError(
            "`api_key` must be printable ASCII characters without spaces; "
            "it is not shown here."
        )
    return (("authorization", f"Bearer {api_key}"),)


def explain(
    error: grpc.RpcError, *, target: str, timeout_seconds: float
) -> str:
    """What went wrong with a call and what to do about it.

    Args:
        error: grpc.RpcError. Of the call.
        target: str. The server's address.
        timeout_seconds: float. How long the call was allowed to take.

    Returns:
        str, a sentence or two.
    """
    code = error.code().name
    details = error.details() or ""
    if code == "UNAVAILABLE":
        # The cause comes last.
        causes = [c for c in details.split(": ") if c not in _NO_CAUSES]
        reason = causes[-1].rpartition(":")[2].rstrip("].") if causes else ""
        port = target.rpartition(":")[2]
        proxy = _proxy(target)
        by_proxy = (
            f" It was asked through the proxy of the variable {proxy}; name "
            "the host in no_proxy to reach it without."
        )
        return (
            f"No server answers at {target} ({reason}). Start one with `realm "
            f"serve --saved-model DIR --grpc-port {port}`, or correct the "
            "address. Either both sides speak TLS or neither; the client has "
            "to trust the authority that signed the server's certificate, "
            f"which has to hold the name in the address.{by_proxy * bool(proxy)}"
        )
    if code == "DEADLINE_EXCEEDED":
        return (
            f"The server at {target} gave no answer within "
            f"{timeout_seconds:g} s; ask fewer questions at once or allow "
            "more time."
        )
    return f"The server at {target} refused ({code}): {details}"
