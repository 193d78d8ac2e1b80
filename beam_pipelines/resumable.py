"""Shards that are complete by themselves, so that a killed run can go on.

Every file appears whole or not at all. A shard of records is two files: the
records, and after them their summary (counts and a digest), which says that
the shard is complete. One that is there is not made again, and the summaries
of all shards make up that of the corpus: neither depends on how often a run
was killed.

A mistake in the input is not raised in a worker, where runners print it with
their own tracebacks and some try again: `reporting` writes it down, all steps
stop, and `raise_error` raises it where the pipeline was started.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable
from collections.abc import Sequence

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.paths import TEMPORARY
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.paths import writing
from realm_tf.errors import DiskFull
from realm_tf.errors import InputError
from realm_tf.progress import Progress

_ERROR = "error.txt"
_MODULUS = 1 << 256


def clean(directory: str) -> None:
    """Removes what a killed run was writing, and the mistake it has found."""
    for name in _names(directory):
        if name == _ERROR or name.endswith(TEMPORARY):
            remove(os.path.join(directory, name))


def _names(directory):
    return [each.name for each in Path(directory).iterdir()]


@contextlib.contextmanager
def reporting(directory: str):
    """Writes an `InputError` of the block down, for `raise_error`."""
    try:
        yield
    except InputError as error:
        # Several workers may find a mistake at the same time.
        with writing(os.path.join(directory, _ERROR)) as path:
            write_text(path, str(error))


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

    Nobody will go on with it, but where the disk was full.
    """
    try:
        yield
    except DiskFull:
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
        summary_path: str. Written after the file: the shard is complete.
            Defaults to `None`: it is complete when the file is there.
    """

    path: str
    start: int
    limit: int
    summary_path: str | None = None

    @property
    def files(self) -> list[str]:
        """Paths of what is there when the shard is complete."""
        return [path for path in (self.path, self.summary_path) if path]


def plan_shards(
    stem: str, ending: str, limits: Sequence[int], summaries: str | None = None
) -> list[Shard]:
    """Names the shards of rows, in the order of the rows.

    Args:
        stem: str. What paths begin with.
        ending: str. What they end with.
        limits: sequence of int. The first row of each shard, and the row
            after the last of all.
        summaries: str. As `stem`, of the summaries. Defaults to `None`: none.
    """
    found = []
    for number, (start, limit) in enumerate(itertools.pairwise(limits)):
        name = f"-{number:05d}-of-{len(limits) - 1:05d}"
        summary = summaries and f"{summaries}{name}.json"
        found.append(Shard(f"{stem}{name}{ending}", start, limit, summary))
    return found


def missing_shards(shards: list[Shard]) -> list[Shard]:
    """Those that no earlier run has completed."""
    folders = {os.path.dirname(path) for each in shards for path in each.files}
    present = {
        os.path.join(folder, name)
        for folder in folders
        for name in _names(folder)
    }
    return [each for each in shards if not present.issuperset(each.files)]


class ShardProgress(Progress):
    """Says how far all workers are, by the shards that are complete.

    Args:
        command: str. As of `Progress`.
        what: str. As of `Progress`.
        shards: list of `Shard`. Of all runs.
    """

    def __init__(self, command: str, what: str, shards: list[Shard]):
        self._shards = shards
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
    """What is known of the records of a shard, or of all shards.

    Args:
        shard_rows: list of int. Records of each.
        counts: Counter. Added up over shards.
        longest: Counter. Of which the largest counts.
        digest: int. The sum of the SHA-256 of the records.
    """

    shard_rows: list[int]
    counts: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    longest: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )
    digest: int = 0

    @property
    def fingerprint(self) -> str:
        """Of the records in their order, whatever the bounds of the shards."""
        return fingerprints.fingerprint(f"{self.digest % _MODULUS:064x}")


def merge_summaries(paths: Iterable[str]) -> Summary:
    """Reads the summaries of all shards, in their order."""
    found = Summary([])
    for path in paths:
        each = json.loads(Path(path).read_text())
        found.shard_rows += each["shard_rows"]
        found.counts.update(each["counts"])
        found.longest |= collections.Counter(each["longest"])
        found.digest += each["digest"]
    return found


class RecordShard:
    """A shard of records that is being written; see `writing_records`.

    Attributes:
        summary: `Summary` of the records so far.
    """

    def __init__(self, writer):
        self._writer = writer
        self.summary = Summary([0])

    def write(self, record: bytes, *, place: bytes = b"") -> None:
        """Adds a record.

        Args:
            record: bytes.
            place: bytes. What tells its place from others', where the record
                does not.
        """
        self._writer.write(record)
        self.summary.shard_rows[0] += 1
        digest = hashlib.sha256(place + record).digest()
        self.summary.digest += int.from_bytes(digest, "big")


@contextlib.contextmanager
def writing_records(
    shard: Shard,
    *,
    directory: str | None = None,
    compression_level: int | None = None,
):
    """Yields a `RecordShard`: TFRecord, gzip, and a summary after it.

    Args:
        shard: `Shard`.
        directory: str. See `writing`.
        compression_level: int. Defaults to zlib's.

    Raises:
        RuntimeError: if not as many records were written as it should hold.
    """
    import tensorflow as tf

    options = tf.io.TFRecordOptions(
        compression_type="GZIP", compression_level=compression_level
    )
    with (
        writing(shard.path, directory=directory) as path,
        tf.io.TFRecordWriter(path, options=options) as writer,
    ):
        records = RecordShard(writer)
        yield records
        # Before it is renamed: nothing trusts a shard that lacks a record.
        (found,) = records.summary.shard_rows
        if found != shard.limit - shard.start:
            raise RuntimeError(
                f"{shard.path}: expected {shard.limit - shard.start} records, "
                f"found {found}."
            )
    summary = json.dumps(vars(records.summary))
    write_text(shard.summary_path, summary)
