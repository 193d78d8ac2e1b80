"""Directories that commands write whole or not at all, and read by a marker.

A command writes into `OUTPUT.partial`, adds `metadata.json`, then the marker
`COMPLETED`, and renames the directory to `OUTPUT`. Readers trust only the
marker, so a torn or interrupted directory is never taken for a whole one.
Object stores (`gs://`) have no rename: there the files are written in place
and the marker comes last.
"""

import contextlib
import dataclasses
import functools
import json
import os
import time
from typing import ClassVar

from realm_tf.artifacts.disk import is_disk_full
from realm_tf.artifacts.disk import locked
from realm_tf.artifacts.disk import seconds_spent
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.version import __version__

MARKER = "COMPLETED"
METADATA = "metadata.json"
JOB = "job.json"


class Artifact:
    """A directory that a command wrote, opened and checked once.

    Nothing is read before it is needed: the output of a command that has not
    run yet is named by the same object that is later opened. Functions hand
    these objects on; a path becomes one where it enters, on the command line
    or in a Python call.

    Args:
        path: str or path. The directory, local or remote.

    Attributes:
        path: str. The directory, without a slash at its end.
    """

    kinds: ClassVar[tuple[str, ...]] = ()
    metavar: ClassVar[str] = "DIR"

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path).rstrip("/")

    @classmethod
    def of(cls, value):
        """`value` as an object of this class, opened already or a path."""
        if isinstance(value, cls) or value is None:
            return value
        return cls(value)

    @functools.cached_property
    def metadata(self) -> dict:
        """The content of metadata.json.

        Raises:
            InputError: if the directory is missing, incomplete or of another
                kind.
        """
        return read(self.path, kind=self.kinds)

    @property
    def is_complete(self) -> bool:
        """Whether the directory was written to its end."""
        return is_complete(self.path)

    @property
    def kind(self) -> str:
        """What the directory holds: one of `kinds`."""
        return self.metadata["kind"]

    @property
    def fingerprint(self) -> str:
        """Digest of what decides the content, 16 hexadecimal digits."""
        return self.metadata["fingerprint"]

    @property
    def parents(self) -> dict:
        """Name to fingerprint of what the directory was made from."""
        return self.metadata["parents"]

    @property
    def parameters(self) -> dict:
        """What determined the content besides the parents."""
        return self.metadata["parameters"]

    @property
    def counts(self) -> dict:
        """What was counted while the directory was made."""
        return self.metadata.get("counts", {})

    def file(self, name: str) -> str:
        """The path of a file in the directory."""
        return os.path.join(self.path, name)

    def summary(self) -> str:
        """What the directory holds, in some words."""
        return self.kind

    def __fspath__(self):
        return self.path

    def __str__(self):
        return self.path

    def __reduce__(self):
        # To a worker goes the path alone, not what has been read.
        return type(self), (self.path,)

    def __eq__(self, other):
        return type(self) is type(other) and self.path == other.path

    def __hash__(self):
        return hash((type(self), self.path))

    def __repr__(self):
        name = type(self).__name__
        if not self.is_complete:
            return f"{name}({self.path!r}, not made yet)"
        found = [self.summary()]
        if "fingerprint" in self.metadata:
            found.append(f"fingerprint {self.fingerprint}")
        return f"{name}({self.path!r}: {', '.join(found)})"


@dataclasses.dataclass
class Stage:
    """A directory while it is being written.

    Args:
        directory: str. Where to write now; renamed at the end.
        metadata: dict. What is added to `metadata.json`, such as `counts` and
            `fingerprint`.
        parameters: dict. What the command was given.
    """

    directory: str
    metadata: dict
    parameters: dict = dataclasses.field(default_factory=dict)

    def path(self, name: str) -> str:
        """The path of a file of this directory."""
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
    """Opens a directory to write and completes it when the block ends well.

    Args:
        output: str. The directory to make. It must not exist, or only as
            the rest of a run that did not finish.
        kind: str. What the directory holds, such as `"blocks"`.
        parameters: dict. JSON values that determine the content.
        parents: dict. Name to fingerprint of what the command read.
        resumable: bool. Keep the files of an interrupted run of the same
            job (same kind, parameters and parents), so that what is already
            there can be skipped. Defaults to `False`: an interrupted run
            leaves nothing.

    Yields:
        A `Stage`.

    Raises:
        InputError: if `output` exists already or cannot be made, another
            process writes it, or the disk is full.
    """
    output = str(output).rstrip("/")
    job = {
        "kind": kind,
        "parameters": parameters or {},
        "parents": parents or {},
        "version": __version__,
    }
    in_place = is_remote(output)
    directory = output if in_place else f"{output}.partial"
    with contextlib.nullcontext() if in_place else locked(output):
        before = _prepare(output, directory, job, resumable)
        started = time.time()
        stage = Stage(directory, {}, job["parameters"])
        try:
            yield stage
            metadata = {
                **job,
                **stage.metadata,
                "seconds": round(before + time.time() - started, 1),
            }
            write_text(
                stage.path(METADATA),
                # Counts keep their order.
                json.dumps(dict(sorted(metadata.items())), indent=2),
            )
            remove(stage.path(JOB))
            write_text(stage.path(MARKER), "")
        except BaseException as error:
            if not resumable:
                remove(directory)
            if is_disk_full(error):
                raise InputError(
                    f"{directory}: no space is left on the disk. Free some and "
                    "give the same command again, or choose another --output."
                ) from error
            raise
        if not in_place:
            os.rename(directory, output)


def _prepare(output, directory, job, resumable):
    """Makes the directory; the seconds that a run before spent in it."""
    if is_complete(output):
        raise InputError(
            f"{output} exists already and is complete. Remove it or choose "
            "another --output."
        )
    if Path(output).exists() and not (
        directory == output and _is_rest(directory)
    ):
        raise InputError(
            f"{output} exists and was not made by realm (no {MARKER} in it). "
            "Choose another --output."
        )
    rest = interrupted_job(directory) if resumable else None
    before = rest.pop("seconds_before", 0.0) if rest else 0.0
    if rest is None or rest != as_json(job):
        remove(directory)
        before = 0.0
    elif not is_remote(directory):
        before += seconds_spent(directory, since=JOB)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        write_text(
            os.path.join(directory, JOB),
            json.dumps(
                {**job, "seconds_before": round(before, 1)},
                sort_keys=True,
                indent=2,
            ),
        )
    except OSError as error:
        raise InputError(
            f"{directory} cannot be written: {error.strerror or error}. "
            "Choose another --output."
        ) from error
    return before


def as_json(value):
    """`value` as it is when it was written and read again."""
    return json.loads(json.dumps(value))


def interrupted_job(directory: str) -> dict | None:
    """What a directory was begun with, by a run that did not finish.

    Args:
        directory: str. `OUTPUT.partial`, or a remote OUTPUT.

    Returns:
        dict of `kind`, `parameters`, `parents`, `version` and
        `seconds_before`; `None` if there is none or it is damaged.
    """
    path = Path(os.path.join(directory, JOB))
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None


def _is_rest(directory):
    # What an interrupted run left in place, or nothing at all; whatever else
    # is there is not ours to remove.
    return Path(os.path.join(directory, JOB)).exists() or not list(
        Path(directory).iterdir()
    )


def read(directory: str | Artifact, *, kind: str | tuple[str, ...]) -> dict:
    """The metadata of a complete stage directory.

    Args:
        directory: str or `Artifact`, which reads it once.
        kind: str, or tuple of them. What it must hold, or one of what.

    Returns:
        dict, the content of `metadata.json`.

    Raises:
        InputError: if it is missing, incomplete or of another kind.
    """
    kinds = (kind,) if isinstance(kind, str) else kind
    if isinstance(directory, Artifact) and directory.kind in kinds:
        return directory.metadata
    directory = str(directory).rstrip("/")
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
        metadata = json.loads(Path(path).read_text())
        metadata["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is missing or damaged, though {MARKER} is beside it: "
            "make the directory again."
        ) from error
    return metadata


def is_complete(directory: str) -> bool:
    """Whether `directory` was written to its end."""
    return Path(os.path.join(str(directory), MARKER)).exists()
