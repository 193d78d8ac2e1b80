"""The records of all blocks, by block id, without reading them all.

What the shards hold is written once, as columns that are mapped into memory
(see `array_files`), beside the shards or, where these are on an object store
or may not be written, in a cache of this machine. They can be removed at any
time: the next opening writes them again.
"""

import contextlib
import os
import time
from collections.abc import Sequence

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts.disk import BeingWritten
from realm_tf.artifacts.disk import locked
from realm_tf.artifacts.paths import cache_dir
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.progress import Progress

_STRINGS = ("title", "text", "url")
_TABLES = ("token_ids", "token_starts", "token_limits")
_SECONDS_TO_WAIT = 0.5


class Strings(Sequence):
    """Strings in one array of bytes: each is made when it is asked for.

    Args:
        content: uint8 array. All strings, as UTF-8.
        limits: int array `(num_strings + 1,)`. Where each begins.

    Example:

    >>> content = np.frombuffer("RomeCafé".encode(), "uint8")
    >>> strings = Strings(content, np.array([0, 4, 9]))
    >>> strings[1], strings[:1], len(strings)
    ('Café', ['Rome'], 2)
    """

    def __init__(self, content, limits):
        self._content = content
        self._limits = limits

    def __len__(self):
        return len(self._limits) - 1

    def __getitem__(self, row):
        if isinstance(row, slice):
            return self.take(np.arange(*row.indices(len(self))))
        row = range(len(self))[row]
        start, limit = self._limits[row : row + 2]
        return self._content[start:limit].tobytes().decode("utf-8")

    def take(self, rows: np.ndarray) -> list[str]:
        """Several at once, by their rows; faster than one by one."""
        content = memoryview(self._content)
        places = self._limits[rows].tolist(), self._limits[rows + 1].tolist()
        return [
            str(content[start:limit], "utf-8")
            for start, limit in zip(*places, strict=True)
        ]


class _Columns(array_files.PackedArrays):
    """`blocks` holds where wordpieces, title, text and url of each begin."""

    kind = "block_columns"
    columns = {
        "blocks": ("int64", 4),
        **{name: ("uint16", None) for name in _TABLES},
        **{name: ("uint8", None) for name in _STRINGS},
    }
    limits = {
        **dict.fromkeys(_TABLES, 0),
        **{name: number for number, name in enumerate(_STRINGS, 1)},
    }


class BlockRecords:
    """All blocks of a directory, by block id.

    The first opening of some blocks reads them all; others map files.

    Args:
        blocks: `Blocks`.

    Attributes:
        num_blocks: int.
        titles, texts, urls: `Strings`.
        lengths: int32 array `(num_blocks,)`. Wordpieces of each body, at most
            `max_block_length` of the directory.
        first_wordpieces: int64 array `(num_blocks + 1,)`. Where each body
            begins in `token_starts`.
        token_starts, token_limits: uint16 or int32 arrays `(num_wordpieces,)`
            of all bodies. Code points of the text.
        metadata: dict. Of the directory.

    Raises:
        InputError: if the directory is not a complete blocks directory, or
            holds no block, or nothing can be written.
    """

    def __init__(self, blocks):
        self.metadata = blocks.metadata
        if not len(blocks):
            raise InputError(f"{blocks} holds no block.")
        self._columns = _open(blocks)
        table, arrays = self._columns.table, self._columns.arrays
        self.titles, self.texts, self.urls = (
            Strings(arrays[name], table[:, number])
            for number, name in enumerate(_STRINGS, 1)
        )
        self.first_wordpieces = np.ascontiguousarray(table[:, 0])
        _, self.token_starts, self.token_limits = map(arrays.get, _TABLES)
        # A body longer than the budget (one over-long sentence) is cut when
        # it is encoded; a table need not be wider than the others.
        self.lengths = np.minimum(
            np.diff(self.first_wordpieces), self.metadata["max_block_length"]
        ).astype("int32")
        self.num_blocks = len(self)

    def __len__(self):
        return len(self.texts)

    @property
    def longest(self) -> int:
        """Wordpieces of the longest body."""
        return int(self.lengths.max())

    def token_ids(self) -> np.ndarray:
        """Wordpieces of all bodies, in memory: uint16 or int32 array
        `(num_blocks, longest)`, padded with 0."""
        return self._columns.padded("token_ids", self.longest)[0]

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
        place = self.first_wordpieces[block_id]
        return (
            int(self.token_starts[place + start]),
            int(self.token_limits[place + limit - 1]),
        )


def _open(blocks):
    """The `_Columns` of blocks, written where there are none or torn ones."""
    name = f".columns-{blocks.fingerprint}"
    path = os.path.join(blocks.path, name)
    if is_remote(path) or not (
        artifact.is_complete(path) or os.access(blocks.path, os.W_OK)
    ):
        path = os.path.join(cache_dir(), name)
    while True:
        with contextlib.suppress(InputError):
            return _Columns(path)
        try:
            with locked(f"{path}.opened"):
                # Unless another process has just been faster.
                with contextlib.suppress(InputError):
                    return _Columns(path)
                remove(path)
                _write(blocks, path)
                return _Columns(path)
        except BeingWritten:
            # Reading once is less than reading twice at the same time.
            time.sleep(_SECONDS_TO_WAIT)


def _write(blocks, path, dtype="uint16"):
    """Writes `_Columns`, in 16 bits a number where these are enough."""
    progress = Progress("open", "blocks", len(blocks))
    try:
        with _Columns.write(
            path, parents={"blocks": blocks.fingerprint}, dtype=dtype
        ) as (files, stage):
            files["blocks"].append(np.zeros((1, len(_STRINGS) + 1)))
            for columns in blocks.read_columns(*_STRINGS, *_TABLES):
                _append(files, columns, dtype)
                progress(files["blocks"].num_rows - 1)
            stage.metadata["num_blocks"] = len(blocks)
    except OverflowError:
        _write(blocks, path, "int32")


def _append(files, columns, dtype):
    firsts = [files[name].num_rows for name in (_TABLES[0], *_STRINGS)]
    lengths = [columns[_TABLES[0]][1]]
    for name in _TABLES:
        values, _ = columns[name]
        if values.max(initial=0) > np.iinfo(dtype).max:
            raise OverflowError
        files[name].append(values)
    for name in _STRINGS:
        strings = columns[name].tolist()
        files[name].append(np.frombuffer(b"".join(strings), "uint8"))
        lengths.append(list(map(len, strings)))
    files["blocks"].append(firsts + np.cumsum(lengths, axis=1).T)
