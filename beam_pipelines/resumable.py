"""Shards that are complete by themselves, so that a killed run can go on.

Every file appears whole or not at all. A shard that is there is not made
again. A shard of records has a summary in its file, counts and a digest; the
summaries of all shards make up that of the corpus. Neither depends on how
often a run was killed.

A mistake in the input is not raised in a worker, where runners print it with
their own tracebacks and some try again: `reporting` writes it down, all steps
stop, and `raise_error` raises it where the pipeline was started.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

import pyarrow

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import TEMPORARY
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.errors import Resumable
from realm_tf.progress import SECONDS_BETWEEN_LINES
from realm_tf.progress import Progress

_ERROR = "error.txt"


def clean(directory: str) -> None:
    """Removes what a killed run was writing, and the mistake it has found."""
    for name in _names(directory):
        if name == _ERROR or name.endswith(TEMPORARY):
            remove(os.path.join(directory, name))


def _names(directory):
    return [each.name for each in Path(directory).iterdir()]


@contextlib.contextmanager
def reporting(directory: str):
    """Writes an `InputError` of the block down, for `raise_error`.

    What is `Resumable` is the engine's: it may try the element again.
    """
    try:
        yield
    except Resumable:
        raise
    except InputError as error:
        # Several workers may find a mistake at the same time.
        write_text(os.path.join(directory, _ERROR), str(error))


def has_error(directory: str) -> bool:
    """Whether some worker has reported an error."""
    return Path(os.path.join(directory, _ERROR)).exists()


def raise_error(directory: str) -> None:
    """Raises the `InputError` that a worker has reported, if any."""
    if has_error(directory):
        raise InputError(Path(os.path.join(directory, _ERROR)).read_text())


@contextlib.contextmanager
def nothing_left_of_a_mistake(stage: Stage):
    """Removes a stage's directory if an `InputError` is raised.

    Nobody will go on with it, unless the error is `Resumable`.
    """
    try:
        yield
    except Resumable:
        raise
    except InputError:
        remove(stage.directory)
        raise


@dataclasses.dataclass(frozen=True)
class Shard:
    """A range of rows and the file that they go to.

    Args:
        path: str. The file to write.
        start: int. The first row.
        limit: int. The row after the last.
    """

    path: str
    start: int
    limit: int


def plan_shards(stem: str, ending: str, limits: Sequence[int]) -> list[Shard]:
    """Names the shards of rows, in the order of the rows.

    Args:
        stem: str. What paths begin with.
        ending: str. What they end with.
        limits: sequence of int. The first row of each shard, and the row
            after the last of all.
    """
    count = len(limits) - 1
    return [
        Shard(
            record_files.shard_name(stem, number, count, ending), start, limit
        )
        for number, (start, limit) in enumerate(itertools.pairwise(limits))
    ]


def missing_shards(shards: list[Shard]) -> list[Shard]:
    """Those that no earlier run has completed."""
    folders = {os.path.dirname(each.path) for each in shards}
    present = {
        os.path.join(folder, name)
        for folder in folders
        for name in _names(folder)
    }
    return [each for each in shards if each.path not in present]


@contextlib.contextmanager
def watching(show: Callable[[], None]):
    """Calls what says how far workers elsewhere are, every ten seconds."""
    over = threading.Event()

    def watch():
        while not over.wait(SECONDS_BETWEEN_LINES):
            show()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


class ShardProgress(Progress):
    """Says how far all workers are, by the shards that are complete.

    Args:
        command: str. As of `Progress`.
        what: str. As of `Progress`.
        shards: list of `Shard`. Of all runs.
    """

    def __init__(self, command: str, what: str, shards: list[Shard]):
        # Without what else a shard says: this travels to all workers.
        self._shards = [Shard(x.path, x.start, x.limit) for x in shards]
        super().__init__(
            command,
            what,
            shards[-1].limit,
            before=self._num_complete(),
            # Workers on other machines know this clock, too.
            clock=time.time,
        )

    def __call__(self, num_begun: int) -> None:
        """Prints a line if it is time to.

        Args:
            num_begun: int. Rows done of the shard that this worker writes.
        """
        if self.is_due():
            self.show(min(self._num_complete() + num_begun, self._total))

    def _num_complete(self):
        missing = missing_shards(self._shards)
        num_missing = sum(shard.limit - shard.start for shard in missing)
        return self._shards[-1].limit - num_missing


@dataclasses.dataclass
class Summary:
    """Numbers of the records of a shard, or of all shards.

    Args:
        shard_rows: list of int. Records of each.
        counts: Counter. Added up over shards.
        longest: int. The largest of all shards.
        digests: list of str. SHA-256 of the records of each shard.
    """

    shard_rows: list[int]
    counts: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    longest: int = 0
    digests: list[str] = dataclasses.field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """Of the records in their order."""
        return fingerprints.fingerprint(*self.digests)


def merge_summaries(paths: Iterable[str]) -> Summary:
    """Reads the summaries of all shards of records, in their order."""
    found = Summary([])
    for path in paths:
        each = record_files.read_summary(path)
        found.shard_rows += each["shard_rows"]
        found.counts.update(each["counts"])
        found.longest = max(found.longest, each["longest"])
        found.digests.append(each["digest"])
    return found


def write_records(
    shard: Shard,
    tables: list[pyarrow.Table],
    *,
    counts: dict,
    longest: int = 0,
    directory: str | None = None,
) -> None:
    """Writes a shard of records with its summary.

    Args:
        shard: `Shard`.
        tables: list of `pyarrow.Table`. The records, in their order.
        counts: dict. Of the `Summary`.
        longest: int. Of the `Summary`. Defaults to `0`.
        directory: str. See `paths.writing`.

    Raises:
        RuntimeError: if there are not as many records as it should hold.
    """
    table = pyarrow.concat_tables(tables)
    if table.num_rows != shard.limit - shard.start:
        raise RuntimeError(
            f"{shard.path}: expected {shard.limit - shard.start} records, "
            f"found {table.num_rows}."
        )
    summary = {
        "shard_rows": [table.num_rows],
        "counts": counts,
        "longest": longest,
        "digest": record_files.digest(table),
    }
    record_files.write(
        shard.path, [table], summary=summary, directory=directory
    )
