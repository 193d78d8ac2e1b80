"""Directories of texts in records: what blocks and passages share."""

import itertools
from collections.abc import Iterator
from typing import ClassVar

from realm_tf.artifacts import matching
from realm_tf.artifacts import schema
from realm_tf.errors import InputError


class Texts:
    """Texts as they were cut, or packed for training."""

    what: ClassVar[str]
    record: ClassVar[type]

    @property
    def is_packed(self) -> bool:
        """Whether they are arrays of wordpieces, without texts."""
        return self.kind != self.kinds[0]

    def __len__(self):
        return self.metadata[f"num_{self.what}"]

    def read(self, start: int = 0, limit: int | None = None) -> Iterator:
        """Yields records in their order, with their texts.

        Args:
            start: int. Number of the first. Defaults to `0`.
            limit: int. The number after the last. Defaults to all.

        Raises:
            InputError: if the directory is not complete or packed, a shard is
                missing or damaged, or the ids of blocks are not 0, 1, 2, ...
        """
        for path, first, last, records in self.shards(start, limit):
            number = first
            for serialized in records:
                record = schema.from_example(self.record, serialized)
                if self.record is schema.Block and record.block_id != number:
                    raise self.wrong(path, first, last)
                yield record
                number += 1
            if number != last:
                raise self.wrong(path, first, last)

    def wrong(self, path: str, first: int, last: int) -> InputError:
        """What says that a shard holds other records than it should."""
        return InputError(
            f"{path} does not hold the {self.what} {first} to {last - 1}: "
            "make its directory again."
        )

    def shards(self, start: int = 0, limit: int | None = None) -> Iterator:
        """Yields (path, first number, the one after the last, an iterator of
        serialised records) of each shard; arguments as of `read`."""
        matching.check_has_texts(self)
        shard_rows = self.metadata["shard_rows"]
        paths = schema.shard_paths(self.path)
        if len(paths) != len(shard_rows):
            raise InputError(
                f"{self} holds {len(paths)} shards, expected "
                f"{len(shard_rows)}: make it again."
            )
        limit = len(self) if limit is None else limit
        first = 0
        for path, rows in zip(paths, shard_rows, strict=True):
            begin, end = max(first, start), min(first + rows, limit)
            if begin < end:
                records = schema.read_records(path, start=begin - first)
                if limit < first + rows:
                    records = itertools.islice(records, end - begin)
                yield path, begin, end, records
            first += rows

    def summary(self) -> str:
        packed = "packed " if self.is_packed else ""
        return f"{len(self):,} {packed}{self.what}"
