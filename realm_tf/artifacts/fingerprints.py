"""Digests that say whether two things are the same."""

import hashlib
from collections.abc import Iterable

from realm_tf.artifacts.paths import Path


def fingerprint(*parts: bytes | str) -> str:
    """A short digest that says whether two things are the same.

    Args:
        *parts: bytes or str. Order and boundaries count.

    Returns:
        str, 16 hexadecimal digits of a SHA-256.
    """
    return fingerprint_all(parts)


def fingerprint_all(parts: Iterable[bytes | str]) -> str:
    """As `fingerprint`, of parts that need not be in memory at once."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:16]


def sha256(path: str) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
