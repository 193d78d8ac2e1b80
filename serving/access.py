"""API keys, and filters that limit a key to a part of the corpus.

A client sends a key as `authorization: Bearer KEY` or
`x-api-key: KEY`, as gRPC metadata or as an HTTP header. Health checks and the
page's own files need no key; everything else does, metrics too.
"""

import dataclasses
import hmac
import re
from collections.abc import Mapping

import grpc
import numpy as np

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.export import signatures
from realm_tf.serving.request_error import RequestError

# 16 characters out of 64 are 96 bits, beyond any guessing over a network.
# Our choice.
MIN_KEY_LENGTH = 16
_BEARER = "bearer "
# Conditions, as `export.field_table` reads them.
_FILTER = re.compile(r"([^;<>=!]*[^;<>=!\s]\s*([<>!]?=|[<>])[^;]*(;\s*|$))+")


def key_of(headers: Mapping[str, str], keys: Mapping[str, str]) -> str | None:
    """Which of the keys a request carries; `None` if none.

    Args:
        headers: mapping of lower-case name to value.
        keys: mapping. As of `read_api_keys`.
    """
    sent = headers.get("x-api-key") or ""
    authorization = headers.get("authorization") or ""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        sent = authorization[len(_BEARER) :].strip()
    given = sent.encode("utf-8", "surrogateescape")
    # All of them: the time says nothing of which one it is.
    equal = [key for key in keys if hmac.compare_digest(given, key.encode())]
    return equal[0] if equal else None


def read_api_keys(path: str) -> dict[str, str]:
    """The keys of a file, and what each may see.

    Args:
        path: str. A text file with a key a line, and after a space the filter
            of what is found for it; empty lines and those that start with # do
            not count. Several keys let one be replaced while clients still use
            the other.

    Returns:
        dict of key to filter, `""` where it may see everything.

    Raises:
        InputError: if there is no such file, no key in it, or one is too
            short, has characters that a header cannot carry, stands there
            twice, or is followed by what is no filter.
    """
    try:
        lines = Path(path).read_bytes().decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--api-key-file {path} cannot be read ({error}): expected a "
            "text file with a key a line."
        ) from error
    keys = {}
    for number, line in enumerate(lines, start=1):
        key, _, filter = line.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        is_new_key = (
            len(key) >= MIN_KEY_LENGTH
            and key.isascii()
            and key.isprintable()
            and key not in keys
        )
        if not is_new_key or (filter.strip() and not _FILTER.fullmatch(filter)):
            # Never the key itself: errors end up in logs.
            raise InputError(
                f"--api-key-file {path}, line {number}: expected at least "
                f"{MIN_KEY_LENGTH} printable ASCII characters that stand in no "
                "line before, such as `openssl rand -hex 32` makes, and after "
                "a space nothing or a filter such as tags=hr;date>=2024."
            )
        keys[key] = filter.strip()
    if not keys:
        raise InputError(
            f"--api-key-file {path} holds no key: expected one a line, such "
            "as `openssl rand -hex 32` makes."
        )
    return keys


def restricted(request, filter: str, signature_defs: Mapping):
    """The request that finds no block outside of a filter.

    Args:
        request: `PredictRequest` that fits its signature.
        filter: str. What must hold of every block, whatever is asked for.
        signature_defs: mapping. Name to `SignatureDef` of the model.

    Returns:
        `PredictRequest` of the signature that takes a filter.

    Raises:
        RequestError: PERMISSION_DENIED, if there is none.
    """
    name = request.signature or signatures.DEFAULT
    if name in signatures.WITHOUT_BLOCKS:
        return request
    filtered = name
    if not name.endswith(signatures.FILTERED):
        filtered = f"{name}{signatures.FILTERED}"
    if filtered not in signature_defs:
        raise RequestError(
            grpc.StatusCode.PERMISSION_DENIED,
            f"This key sees a part of the documents, and signature {name!r} of "
            "this model takes no filter: export a corpus that was made with "
            "--fields.",
        )
    own = request.inputs.get(signatures.FILTER)
    sizes = [len(array) for array in request.inputs.values() if array.ndim]
    if own is None:
        own = np.full(max(sizes, default=0), b"", object)
    # All conditions must hold, so that no other can take this one back.
    both = [filter.encode() + b";" + each for each in own.ravel()]
    both = np.array(both, dtype=object).reshape(own.shape)
    return dataclasses.replace(
        request,
        signature=filtered,
        inputs={**request.inputs, signatures.FILTER: both},
    )
