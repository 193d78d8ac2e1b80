"""Digests that say whether two things are the same."""

import hashlib
import os
from collections.abc import Iterable

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import inside
from realm_tf.errors import InputError


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


def of_files(directory: str, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of files of a directory, by name."""
    return {name: sha256(os.path.join(directory, name)) for name in names}


def check_files(
    directory: str, digests: dict[str, str], *, source: str, mend: str
) -> None:
    """Compares files with what `of_files` gave when they were written.

    Args:
        directory: str.
        digests: dict. As of `of_files`.
        source: str. The file that holds the digests, for errors.
        mend: str. What to do about another content, a sentence.

    Raises:
        InputError: if a file is missing or another.
    """
    problems = []
    for name, digest in digests.items():
        file = inside(directory, name, source=source)
        if not Path(file).exists() or sha256(file) != digest:
            problems.append(f"{file} is missing or not as it was written.")
    if problems:
        raise InputError(f"{' '.join(problems)} {mend}")


def sha256(path: str) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
