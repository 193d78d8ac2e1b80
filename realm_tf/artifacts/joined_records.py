"""Blocks of several directories, some of each, as if they were of one."""

import itertools
from collections.abc import Sequence

import numpy as np

from realm_tf.artifacts.array_files import mapped_zeros
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.block_records import Strings

# Strings in memory at the same time, where one after the other is read.
_AT_ONCE = 4096


class JoinedRecords(BlockRecords):
    """Some blocks of each of several directories, one after the other.

    Args:
        parts: list of `(records, rows)`: `BlockRecords`, and which blocks of
            these, an int array in rising order.
        capacity: int. Number of blocks with empty ones at the end, which have
            no wordpiece. Bodies are then padded to the longest there may be, so
            that tables of other blocks have the same shape. Defaults to
            `None`: there are none.

    Attributes:
        num_blocks: int. Those that are not empty.
    """

    def __init__(self, parts, *, capacity: int | None = None):
        self.metadata = parts[0][0].metadata
        self._parts = parts
        self._is_padded = capacity is not None
        self.num_blocks = sum(len(rows) for _, rows in parts)
        size = capacity or self.num_blocks
        self.titles, self.texts, self.urls = (
            _Strings([(getattr(r, name), rows) for r, rows in parts], size)
            for name in ("titles", "texts", "urls")
        )
        counts = [np.diff(r.first_wordpieces)[rows] for r, rows in parts]
        counts.append(np.zeros(size - self.num_blocks, "int64"))
        counts = np.concatenate(counts)
        self.first_wordpieces = np.concatenate([[0], np.cumsum(counts)])
        self.lengths = np.minimum(
            counts, self.metadata["max_block_length"]
        ).astype("int32")
        self.token_starts, self.token_limits = (
            np.concatenate(
                [_of_rows(getattr(r, name), r, rows) for r, rows in parts]
            )
            for name in ("token_starts", "token_limits")
        )

    @property
    def longest(self):
        if self._is_padded:
            return self.metadata["max_block_length"]
        return super().longest

    def token_ids(self):
        tables = [records.token_ids() for records, _ in self._parts]
        dtype = np.result_type(*tables)
        joined = mapped_zeros((len(self), self.longest), dtype)
        first = 0
        for table, (_, rows) in zip(tables, self._parts, strict=True):
            part = joined[first : first + len(rows)]
            width = min(table.shape[1], self.longest)
            part[:, :width] = table[rows, :width]
            first += len(rows)
        return joined


class _Strings(Sequence):
    """Strings of parts, made when they are asked for."""

    def __init__(self, parts, size):
        # Of the empty ones at the end.
        num_empty = size - sum(len(rows) for _, rows in parts)
        empty = Strings(np.zeros(0, "uint8"), np.zeros(2, int))
        parts = [*parts, (empty, np.zeros(num_empty, int))]
        self._parts = [strings for strings, _ in parts]
        self._numbers = np.repeat(
            np.arange(len(parts)), [len(rows) for _, rows in parts]
        )
        self._rows = np.concatenate([rows for _, rows in parts])

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, row):
        if isinstance(row, slice):
            return list(self._read(self._numbers[row], self._rows[row]))
        return self._parts[self._numbers[row]][int(self._rows[row])]

    def __iter__(self):
        return self._read(self._numbers, self._rows)

    def _read(self, numbers, rows):
        # Part by part, and some of each at once.
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for first, limit in itertools.pairwise([0, *cuts, len(numbers)]):
            for start in range(first, limit, _AT_ONCE):
                part = self._parts[numbers[start]]
                yield from part.take(rows[start : min(start + _AT_ONCE, limit)])


def _of_rows(values, records, rows):
    """The values of the wordpieces of some blocks."""
    if len(rows) == len(records):
        return values
    firsts = records.first_wordpieces[rows]
    counts = records.first_wordpieces[rows + 1] - firsts
    before = np.cumsum(counts) - counts
    return values[np.repeat(firsts - before, counts) + np.arange(counts.sum())]
