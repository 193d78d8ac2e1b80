"""Directories that stages read and write, and the only module on paths.

A stage writes into `OUTPUT.partial`, adds `metadata.json`, then the marker
`COMPLETED`, and renames the directory to `OUTPUT`. Readers trust only the
marker, so a torn or interrupted stage is never taken for a whole one. Object
stores (`gs://`) have no rename: there the files are written in place and the
marker comes last.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterable

from realm_tf.errors import InputError
from realm_tf.version import __version__

MARKER = "COMPLETED"
METADATA = "metadata.json"
JOB = "job.json"


def is_remote(path: str) -> bool:
    """Whether `path` is on an object store rather than a local disk."""
    return "://" in str(path)


def _gfile():
    # Only remote paths need TensorFlow.
    import tensorflow as tf

    return tf.io.gfile


def join(directory: str, name: str) -> str:
    """`directory` and `name` as one path, local or remote."""
    return f"{str(directory).rstrip('/')}/{name}"


def exists(path: str) -> bool:
    """Whether a file or directory is there."""
    if is_remote(path):
        return _gfile().exists(path)
    return os.path.exists(path)


def is_file(path: str) -> bool:
    """Whether `path` is there and no directory."""
    if is_remote(path):
        return _gfile().exists(path) and not _gfile().isdir(path)
    return os.path.isfile(path)


def read_text(path: str) -> str:
    """The content of a UTF-8 file."""
    if is_remote(path):
        with _gfile().GFile(path, "r") as file:
            return file.read()
    return pathlib.Path(path).read_text(encoding="utf-8")


def read_bytes(path: str) -> bytes:
    """The content of a file."""
    if is_remote(path):
        with _gfile().GFile(path, "rb") as file:
            return file.read()
    return pathlib.Path(path).read_bytes()


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file; a local one appears whole or not at all."""
    if is_remote(path):
        with _gfile().GFile(path, "w") as file:
            file.write(text)
        return
    temporary = f"{path}.tmp"
    pathlib.Path(temporary).write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def open_for_reading(path: str):
    """A binary file to read, local or remote, for use with `with`."""
    return _gfile().GFile(path, "rb") if is_remote(path) else open(path, "rb")


def open_for_writing(path: str):
    """A binary file to write, local or remote, for use with `with`."""
    return _gfile().GFile(path, "wb") if is_remote(path) else open(path, "wb")


def list_names(directory: str) -> list[str]:
    """Names in a directory, sorted."""
    if is_remote(directory):
        return sorted(n.rstrip("/") for n in _gfile().listdir(directory))
    return sorted(os.listdir(directory))


def list_files(directory: str) -> list[str]:
    """Paths of all files below a directory, relative to it, sorted."""
    walk = _gfile().walk if is_remote(directory) else os.walk
    root = str(directory).rstrip("/")
    return sorted(
        join(folder, name)[len(root) + 1 :]
        for folder, _, names in walk(root)
        for name in names
    )


def file_size(path: str) -> int:
    """Bytes of a file."""
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def make_directory(path: str) -> None:
    """Makes a directory and its parents."""
    if is_remote(path):
        _gfile().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a file or a whole directory, if it is there."""
    if is_remote(path):
        if _gfile().exists(path):
            if _gfile().isdir(path):
                _gfile().rmtree(path)
            else:
                _gfile().remove(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


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
    with open_for_reading(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclasses.dataclass
class Stage:
    """A stage's output while it is being written.

    Args:
        directory: str. Where to write now; renamed when the stage ends.
        metadata: dict. What the stage adds to `metadata.json`, such as
            `counts` and `fingerprint`.
        parameters: dict. What the stage was given.
    """

    directory: str
    metadata: dict
    parameters: dict = dataclasses.field(default_factory=dict)

    def path(self, name: str) -> str:
        """The path of a file of this stage."""
        return join(self.directory, name)


@contextlib.contextmanager
def write(
    output: str,
    *,
    kind: str,
    parameters: dict | None = None,
    parents: dict | None = None,
    resumable: bool = False,
):
    """Opens a stage directory and completes it when the block ends well.

    Args:
        output: str. The directory to make. It must not exist, or only as
            the rest of a run that did not finish.
        kind: str. What the directory holds, such as `"blocks"`.
        parameters: dict. JSON values that determine the content.
        parents: dict. Name to fingerprint of what the stage read.
        resumable: bool. Keep the files of an interrupted run of the same
            job (same kind, parameters and parents), so that the stage can
            skip what is already there. Defaults to `False`: an interrupted
            run leaves nothing.

    Yields:
        A `Stage`.

    Raises:
        InputError: if `output` exists already or cannot be made.
    """
    output = str(output).rstrip("/")
    job = {
        "kind": kind,
        "parameters": parameters or {},
        "parents": parents or {},
        "version": __version__,
    }
    job_text = json.dumps(job, sort_keys=True, indent=2)
    in_place = is_remote(output)
    if exists(join(output, MARKER)):
        raise InputError(
            f"{output} exists already and is complete. Remove it or choose "
            "another --output."
        )
    if exists(output) and not (in_place and _is_rest(output)):
        raise InputError(
            f"{output} exists and was not made by realm (no {MARKER} in it). "
            "Choose another --output."
        )
    directory = output if in_place else f"{output}.partial"
    job_path = join(directory, JOB)
    if exists(directory) and not (
        resumable and exists(job_path) and read_text(job_path) == job_text
    ):
        remove(directory)
    try:
        make_directory(directory)
        write_text(job_path, job_text)
    except OSError as error:
        raise InputError(
            f"{directory} cannot be written: {error.strerror or error}. "
            "Choose another --output."
        ) from error
    started = time.time()
    stage = Stage(directory, {}, job["parameters"])
    try:
        yield stage
    except BaseException:
        if not resumable:
            remove(directory)
        raise
    metadata = {
        **job,
        **stage.metadata,
        "seconds": round(time.time() - started, 1),
    }
    write_text(
        join(directory, METADATA),
        json.dumps(metadata, sort_keys=True, indent=2),
    )
    remove(job_path)
    write_text(join(directory, MARKER), "")
    if not in_place:
        os.rename(directory, output)


def _is_rest(directory):
    # What an interrupted run left in place, or nothing at all; whatever else
    # is there is not ours to remove.
    return exists(join(directory, JOB)) or not list_names(directory)


def read(directory: str, *, kind: str | tuple[str, ...]) -> dict:
    """The metadata of a complete stage directory.

    Args:
        directory: str. A directory that a stage wrote.
        kind: str, or tuple of them. What it must hold, or one of what.

    Returns:
        dict, the content of `metadata.json`.

    Raises:
        InputError: if it is missing, incomplete or of another kind.
    """
    directory = str(directory).rstrip("/")
    kinds = (kind,) if isinstance(kind, str) else kind
    expected = " or ".join(map(repr, kinds))
    if not exists(join(directory, MARKER)):
        if exists(f"{directory}.partial"):
            raise InputError(
                f"{directory} is not complete: the run that writes it was "
                "interrupted or is still going. Start that command again."
            )
        what = "is not complete" if exists(directory) else "does not exist"
        raise InputError(
            f"{directory} {what}: expected a directory of kind {expected} "
            f"with the marker {MARKER}."
        )
    metadata = read_metadata(directory)
    if metadata["kind"] not in kinds:
        raise InputError(
            f"{directory} holds {metadata['kind']!r}, expected {expected}."
        )
    return metadata


def read_metadata(directory: str) -> dict:
    """The metadata of a complete stage directory of any kind.

    Raises:
        InputError: if it is missing or not what a stage wrote.
    """
    path = join(directory, METADATA)
    try:
        metadata = json.loads(read_text(path) if exists(path) else "")
        metadata["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is missing or damaged, though {MARKER} stands beside "
            "it: make the directory again."
        ) from error
    return metadata


def is_complete(directory: str) -> bool:
    """Whether `directory` was written to its end."""
    return exists(join(str(directory), MARKER))
