"""Block records in memory: texts, titles, wordpieces and their offsets."""

from collections.abc import Sequence

import numpy as np

from realm_tf.errors import InputError
from realm_tf.text.integer_types import smallest_dtype

_STRINGS = ("title", "text", "url")
_TABLES = ("token_ids", "token_starts", "token_limits")


class Strings(Sequence):
    """Strings in one array of bytes: each is made when it is asked for.

    Example:

    >>> strings = Strings()
    >>> strings.extend([b"Rome", b"Caf\\xc3\\xa9"])
    >>> strings[1], strings[:1], len(strings)
    ('Café', ['Rome'], 2)
    """

    def __init__(self):
        self._content = bytearray()
        self._limits = np.zeros(1, "int64")

    def extend(self, encoded: list[bytes]) -> None:
        """Adds strings, each as UTF-8."""
        lengths = np.fromiter(map(len, encoded), "int64", len(encoded))
        limits = self._limits[-1] + np.cumsum(lengths)
        self._limits = np.concatenate([self._limits, limits])
        self._content += b"".join(encoded)

    def __len__(self):
        return len(self._limits) - 1

    def __getitem__(self, row):
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        start, limit = self._limits[row], self._limits[row + 1]
        return self._content[start:limit].decode("utf-8")


class BlockRecords:
    """All blocks of a directory, by block id.

    Args:
        blocks: `Blocks`.

    Attributes:
        titles, texts, urls: `Strings`.
        token_ids: uint16 or int32 array `(num_blocks, block_length)`, padded
            with 0; `block_length` is the longest body.
        lengths: int32 array `(num_blocks,)`. Wordpieces of each body.
        token_starts, token_limits: as `token_ids`. Code points of the text.
        metadata: dict. Of the directory.

    Raises:
        InputError: if the directory is not a complete blocks directory, or
            holds no block.
    """

    def __init__(self, blocks):
        self.metadata = blocks.metadata
        num_blocks = len(blocks)
        # A body longer than the budget (one over-long sentence) is cut when
        # it is encoded; the table need not be wider than the others.
        width = self.metadata["max_block_length"]
        strings = {name: Strings() for name in _STRINGS}
        # These are most of a corpus in memory.
        table = np.zeros((3, num_blocks, width), smallest_dtype(0))
        self.lengths = np.zeros(num_blocks, "int32")
        first = 0
        for columns in blocks.read_columns(*_STRINGS, *_TABLES):
            for name, found in strings.items():
                found.extend(columns[name].tolist())
            limit = first + len(columns["text"])
            for number, name in enumerate(_TABLES):
                values, lengths = columns[name]
                dtype = smallest_dtype(int(values.max(initial=0)))
                table = table.astype(np.result_type(table, dtype), copy=False)
                _fill(table[number, first:limit], values, lengths)
            self.lengths[first:limit] = np.minimum(lengths, width)
            first = limit
        if not num_blocks:
            raise InputError(f"{blocks} holds no block.")
        table = table[:, :, : self.lengths.max()]
        self.token_ids, self.token_starts, self.token_limits = table
        self.titles, self.texts, self.urls = strings.values()

    def __len__(self):
        return len(self.texts)

    def span_text(self, block_id: int, start: int, limit: int) -> str:
        """The text of some wordpieces, sliced from the block's own text.

        Args:
            block_id: int.
            start: int. First wordpiece.
            limit: int. The one after the last.
        """
        first, last = self.span_offsets(block_id, start, limit)
        return self.texts[block_id][first:last]

    def span_offsets(self, block_id: int, start: int, limit: int):
        """Code points `(start, limit)` of some wordpieces in the text."""
        return (
            int(self.token_starts[block_id, start]),
            int(self.token_limits[block_id, limit - 1]),
        )


def _fill(rows, values, lengths):
    """Writes lists, one after the other in `values`, into padded rows."""
    places = np.arange(lengths.max(initial=0))
    is_value = places < lengths[:, None]
    width = min(len(places), rows.shape[1])
    lists = np.zeros(is_value.shape, rows.dtype)
    lists[is_value] = values
    rows[:, :width] = lists[:, :width]
