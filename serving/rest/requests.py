"""What an HTTP request asks for: its path taken apart, its body read.

References:
    tensorflow/serving, tensorflow_serving/model_servers/
    http_rest_api_util.cc: the paths and the words of their errors.
"""

import dataclasses
import re
import zlib
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request

from realm_tf.serving.rest import json_text as rest_json

_TARGET = r"/v1/models/([^/:]+)(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_POST_PATH = re.compile(_TARGET + ":(classify|regress|predict)")
_GET_PATH = re.compile(_TARGET + "(?:/(metadata))?")
_MAX_VERSION = 2**63 - 1
# `zlib` for a gzip header and nothing else.
_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS


@dataclasses.dataclass(frozen=True)
class ModelPath:
    """What a path under /v1/models asks for.

    Args:
        name: str. The model.
        version: int. `None` if the path has none.
        label: str. `None` if the path has none.
        verb: str. `"predict"`, `"classify"`, `"regress"`, `"metadata"` or
            `"status"`.
    """

    name: str
    version: int | None
    label: str | None
    verb: str

    @property
    def choice(self) -> dict:
        """The version as keyword arguments of a `RequestHandler`."""
        return {"version": self.version, "label": self.label}


def parse_path(method: str, path: str) -> ModelPath:
    """Takes a path apart as TF Serving does.

    Args:
        method: str. `"GET"` or `"POST"`.
        path: str. As sent: escapes such as %20 are still there.

    Returns:
        `ModelPath`.

    Raises:
        RequestError: if there is no such path.
    """
    if method == "GET" and path == "/v1/models":
        raise rest_json.invalid("Missing model name in request.")
    pattern = _POST_PATH if method == "POST" else _GET_PATH
    match = pattern.fullmatch(path)
    if match is None:
        raise rest_json.invalid(f"Malformed request: {method} {path}")
    name, version, label, verb = match.groups()
    if version is not None and int(version) > _MAX_VERSION:
        raise rest_json.invalid(
            f"Failed to convert version: {version} to numeric."
        )
    return ModelPath(
        name=unquote(name),
        version=None if version is None else int(version),
        label=None if label is None else unquote(label),
        verb=verb or "status",
    )


def unpack(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    """A request's body without its Content-Encoding.

    Args:
        body: bytes.
        encoding: str. The header; empty for none.
        max_bytes: int. The longest body, unpacked.

    Returns:
        bytes.

    Raises:
        HTTPException: 413 if it is longer, 415 if the encoding is another
            than gzip, 400 if it is broken.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise HTTPException(
            415,
            f"Content-Encoding {encoding!r} is not supported: send gzip or "
            "none.",
        )
    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        unpacked = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise HTTPException(
            400, f"The body is not gzip, as its header says: {error}."
        ) from error
    if len(unpacked) > max_bytes:
        raise _too_large(max_bytes)
    if not unpacker.eof or unpacker.unused_data:
        raise HTTPException(
            400, "The gzip body is cut off, or more follows it."
        )
    return unpacked


def _too_large(max_bytes: int) -> HTTPException:
    return HTTPException(
        413, f"The request body is longer than {max_bytes} bytes."
    )


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, refused as soon as it is known to be too long."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(body)
