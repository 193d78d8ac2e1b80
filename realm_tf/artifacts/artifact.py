"""Directories that stages write whole or not at all, and read by a marker.

A stage writes into `OUTPUT.partial`, adds `metadata.json`, then the marker
`COMPLETED`, and renames the directory to `OUTPUT`. Readers trust only the
marker, so a torn or interrupted stage is never taken for a whole one. Object
stores (`gs://`) have no rename: there the files are written in place and the
marker comes last.
"""

import contextlib
import dataclasses
import json
import os
import time

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.version import __version__

MARKER = "COMPLETED"
METADATA = "metadata.json"
JOB = "job.json"


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
        return os.path.join(self.directory, name)


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
    if Path(os.path.join(output, MARKER)).exists():
        raise InputError(
            f"{output} exists already and is complete. Remove it or choose "
            "another --output."
        )
    if Path(output).exists() and not (in_place and _is_rest(output)):
        raise InputError(
            f"{output} exists and was not made by realm (no {MARKER} in it). "
            "Choose another --output."
        )
    directory = output if in_place else f"{output}.partial"
    job_path = os.path.join(directory, JOB)
    if Path(directory).exists() and not (
        resumable
        and Path(job_path).exists()
        and Path(job_path).read_text() == job_text
    ):
        remove(directory)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
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
        os.path.join(directory, METADATA),
        json.dumps(metadata, sort_keys=True, indent=2),
    )
    remove(job_path)
    write_text(os.path.join(directory, MARKER), "")
    if not in_place:
        os.rename(directory, output)


def _is_rest(directory):
    # What an interrupted run left in place, or nothing at all; whatever else
    # is there is not ours to remove.
    return Path(os.path.join(directory, JOB)).exists() or not list(
        Path(directory).iterdir()
    )


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
    if not Path(os.path.join(directory, MARKER)).exists():
        if Path(f"{directory}.partial").exists():
            raise InputError(
                f"{directory} is not complete: the run that writes it was "
                "interrupted or is still going. Start that command again."
            )
        what = (
            "is not complete" if Path(directory).exists() else "does not exist"
        )
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
    path = os.path.join(directory, METADATA)
    try:
        metadata = json.loads(
            Path(path).read_text() if Path(path).exists() else ""
        )
        metadata["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is missing or damaged, though {MARKER} stands beside "
            "it: make the directory again."
        ) from error
    return metadata


def is_complete(directory: str) -> bool:
    """Whether `directory` was written to its end."""
    return Path(os.path.join(str(directory), MARKER)).exists()
