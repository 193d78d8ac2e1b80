"""Directories that commands write whole or not at all, and read by a marker.

A command writes into `OUTPUT.partial`, adds `metadata.json`, then the marker
`COMPLETED`, and renames the directory to `OUTPUT`. Readers trust only the
marker, so a torn or interrupted directory is never taken for a whole one.
Object stores have no rename: there the marker comes last.
"""

import contextlib
import dataclasses
import errno
import json
import os
import tempfile
import time

import filelock

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Mirror
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import absolute
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import list_files
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import DiskFull
from realm_tf.errors import InputError
from realm_tf.version import __version__

MARKER = "COMPLETED"
METADATA = "metadata.json"
JOB = "job.json"
# Written after the checksums, or for people to edit.
_NOT_CHECKED = (JOB, METADATA, MARKER, "README.md")
# Its checksums are there, see `export.card`.
_HAS_A_CARD = "saved_model"
_DISK_FULL = [*map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))]


class BeingWritten(InputError):
    """Another process has the lock of a directory."""


@dataclasses.dataclass
class Stage:
    """A directory while it is being written.

    Args:
        directory: str. Where to write now, absolute; renamed at the end.
        metadata: dict. What is added to `metadata.json`, such as `counts` and
            `fingerprint`; at the end `checksums` of its files.
        parameters: dict. What the command was given.
        mirror: `Mirror`. Where the directory is kept besides, or `None`.
    """

    directory: str
    metadata: dict
    parameters: dict = dataclasses.field(default_factory=dict)
    mirror: Mirror | None = None

    def path(self, name: str) -> str:
        """The path of a file of this directory."""
        return os.path.join(self.directory, name)

    def save(self) -> None:
        """Keeps what is there on the object store, if the output is on one."""
        if self.mirror is not None:
            self.mirror.save()


@contextlib.contextmanager
def write(
    output: str,
    *,
    kind: str,
    parameters: dict | None = None,
    parents: dict | None = None,
    resumable: bool = False,
    by_workers: bool = False,
):
    """Opens a directory to write and completes it when the block ends well.

    Args:
        output: str. The directory to make. It must not exist, or only as
            the rest of a run that did not finish.
        kind: str. What the directory holds, such as `"blocks"`.
        parameters: dict. JSON values that determine the content.
        parents: dict. Name to fingerprint of what the command read.
        resumable: bool. Keep the files of an interrupted run of the same
            job (same kind, parameters, parents and version), so that what is
            already there can be skipped. Defaults to `False`: an interrupted
            run leaves nothing.
        by_workers: bool. Whether other machines write files of it, too. On an
            object store they are then written in place, else in a local
            directory that is copied there. Defaults to `False`.

    Yields:
        A `Stage`.

    Raises:
        InputError: if `output` exists already or cannot be made, another
            process writes it, an interrupted run was of another job, or
            (`DiskFull`) the disk is full.
    """
    output = str(output).rstrip("/")
    job = {
        "kind": kind,
        "parameters": parameters or {},
        "parents": parents or {},
        "version": __version__,
    }
    directory = unfinished(output)
    in_place = directory == output
    with contextlib.ExitStack() as stack:
        if not in_place:
            stack.enter_context(locked(output))
        started = time.time()
        _prepare(output, directory, job, resumable)
        stage = Stage(absolute(directory), {}, job["parameters"])
        try:
            if in_place and not by_workers:
                local = stack.enter_context(tempfile.TemporaryDirectory())
                stage.directory = local
                stage.mirror = Mirror(local, directory)
            yield stage
            _complete(stage, directory, job, started)
        except BaseException as error:
            if not resumable:
                remove(directory)
            if is_disk_full(error):
                raise DiskFull(
                    f"{directory}: no space is left on the disk. Free some and "
                    "give the same command again, or choose another --output."
                ) from error
            raise
        if not in_place:
            os.rename(directory, output)


def _complete(stage, directory, job, started):
    """Adds what is not of the command itself, the marker last."""
    if job["kind"] != _HAS_A_CARD:
        names = {*list_files(stage.directory)} - {*_NOT_CHECKED}
        stage.metadata["checksums"] = fingerprints.of_files(
            stage.directory, sorted(names)
        )
    stage.save()
    seconds = round(time.time() - started, 1)
    metadata = {**job, **stage.metadata, "seconds": seconds}
    write_text(
        os.path.join(directory, METADATA),
        # Counts keep their order.
        json.dumps(dict(sorted(metadata.items())), indent=2),
    )
    remove(os.path.join(directory, JOB))
    write_text(os.path.join(directory, MARKER), "")


def unfinished(output: str) -> str:
    """Where a directory is until it is complete."""
    return output if is_remote(output) else f"{output.rstrip('/')}.partial"


def differences(made: dict, job: dict) -> list[str]:
    """How what was made or begun differs from what would be made now.

    Args:
        made: dict. Metadata, or what `interrupted_job` gives.
        job: dict. `parameters`, as of `write`, and `parents`: of those that are
            known.

    Returns:
        list of str, such as `"steps=1 (now 2)"` and `"another model"`.
    """
    before, now = made["parameters"], as_json(job["parameters"])
    found = [
        f"{name}={before.get(name)} (now {now.get(name)})"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    for name, fingerprint in as_json(job["parents"]).items():
        if made["parents"].get(name) != fingerprint:
            found.append(f"another {name}")
    return found


def _prepare(output, directory, job, resumable):
    begun = interrupted_job(directory)
    if Path(output).exists() and (
        directory != output
        # Only the rest of an interrupted run is ours to remove.
        or (begun is None and list(Path(output).iterdir()))
    ):
        raise InputError(
            f"{output} exists already: choose another --output, or remove it."
        )
    if begun is None or (not resumable and begun["kind"] == job["kind"]):
        remove(directory)
    elif begun != as_json(job):
        # Hours of work, perhaps.
        what = [
            f"{name} {begun[name]} (now {job[name]})"
            for name in ("kind", "version")
            if begun[name] != job[name]
        ]
        what = what or differences(begun, job) or ["other inputs"]
        raise InputError(
            f"{directory} was begun with {', '.join(what)}: give the same "
            "command again to go on with it, or remove it to begin again."
        )
    Path(directory).mkdir(parents=True, exist_ok=True)
    write_text(
        os.path.join(directory, JOB),
        json.dumps(job, sort_keys=True, indent=2),
    )


def as_json(value):
    """`value` as it is when it was written and read again."""
    return json.loads(json.dumps(value))


def interrupted_job(directory: str) -> dict | None:
    """What a directory was begun with, by a run that did not finish.

    Args:
        directory: str. `OUTPUT.partial`, or a remote OUTPUT.

    Returns:
        dict of `kind`, `parameters`, `parents` and `version`; `None` if
        there is none.
    """
    path = Path(os.path.join(directory, JOB))
    if not path.exists():
        return None
    return json.loads(path.read_text())


def read(directory: str, *, kind: str = "") -> dict:
    """The metadata of a complete stage directory.

    Args:
        directory: str.
        kind: str. What it must hold. Defaults to `""`: whatever it is.

    Returns:
        dict, the content of `metadata.json`.

    Raises:
        InputError: if it is missing, incomplete, damaged or of another kind.
    """
    directory = str(directory).rstrip("/")
    if not is_complete(directory):
        if Path(f"{directory}.partial").exists():
            raise InputError(
                f"{directory} is not complete: the run that writes it was "
                "interrupted or is still going. Start that command again."
            )
        what = (
            "is not complete" if Path(directory).exists() else "does not exist"
        )
        of_kind = f" of kind {kind!r}" if kind else ""
        raise InputError(
            f"{directory} {what}: expected a directory{of_kind} with the marker "
            f"{MARKER}."
        )
    path = os.path.join(directory, METADATA)
    try:
        metadata = read_json(path)
        found = metadata["kind"]
        if not all(
            isinstance(metadata.get(name, {}), dict)
            for name in ("counts", "parameters", "parents")
        ):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is missing or damaged, though {MARKER} is beside it: "
            "make the directory again."
        ) from error
    if kind not in ("", found):
        raise InputError(f"{directory} holds {found!r}, expected {kind!r}.")
    return metadata


def read_json(path: str):
    """The content of a JSON file of ours.

    What its objects do not hold raises InputError where it is looked up.

    Raises:
        OSError or ValueError: if it is missing or no JSON.
    """
    return json.loads(
        Path(path).read_text(), object_hook=lambda found: _Said(found, path)
    )


class _Said(dict):
    """An object of a JSON file."""

    def __init__(self, found=(), path="a copy"):
        super().__init__(found)
        self._path = path

    def __missing__(self, name):
        raise InputError(
            f"{self._path} says nothing of {name!r}: make its directory again "
            "with this version of realm."
        )


def is_complete(directory: str) -> bool:
    """Whether `directory` was written to its end."""
    return Path(os.path.join(str(directory), MARKER)).exists()


@contextlib.contextmanager
def locked(output: str, *, wait: bool = False):
    """Keeps other processes of this machine from writing one directory.

    The lock goes with the process, however that ends.

    Args:
        output: str. The directory, which need not be there.
        wait: bool. Whether to wait for the process that has it. Defaults to
            `False`.

    Raises:
        BeingWritten: if another process has it.
        InputError: if the lock cannot be made.
    """
    path = f"{output}.lock"
    lock = filelock.FileLock(path, blocking=wait)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise BeingWritten(
            f"{output} is being written by another process: wait for it, or "
            "choose another directory."
        ) from error
    except OSError as error:
        raise InputError(
            f"{output} cannot be written: {error.strerror or error}. "
            "Choose another directory."
        ) from error
    try:
        yield
    finally:
        # While it is held: `FileLock` refuses a file that is no longer there.
        remove(path)
        lock.release()


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that a disk is full."""
    while error is not None:
        # TensorFlow's errors say it in words only.
        if any(text in str(error) for text in _DISK_FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
