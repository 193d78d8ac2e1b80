"""Directories of `.npy` files, written row by row and mapped into memory.

Written once, then any row is read in microseconds, in any order, and no more
of the content is in memory than the system's page cache holds. Reading needs
numpy alone: no TensorFlow, no tokenizer.
"""

import contextlib
import functools
import hashlib
import math
import mmap
import os
from typing import ClassVar

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.text.integer_types import smallest_dtype

VOCABULARY = "vocab.txt"
# Rows of a table that are filled at once.
_PART = 4096


class _ArrayFile:
    """An `.npy` file whose number of rows is known at its end only."""

    def __init__(self, file, dtype, columns):
        self._file = file
        self._dtype = np.dtype(dtype)
        self._columns = columns
        self._digest = hashlib.sha256()
        self.num_rows = 0
        self._write_header()

    def append(self, rows):
        content = np.ascontiguousarray(rows, self._dtype).tobytes()
        self._file.write(content)
        self._digest.update(content)
        self.num_rows += len(rows)

    def finish(self):
        """Completes the header; returns the digest of the content."""
        self._file.seek(0)
        # Numpy pads headers, so that one of more rows is as long.
        self._write_header()
        return self._digest.digest()

    def _write_header(self):
        shape = (self.num_rows,)
        if self._columns:
            shape += (self._columns,)
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": shape,
            },
        )


class PackedArrays:
    """A directory of arrays, opened; a base class.

    A subclass states what the directory holds and what an item is. Threads
    may share an instance; pickled, it opens the directory again.

    Args:
        directory: str.

    Attributes:
        kind: str. What the directory holds.
        columns: dict. Name of each file to its type and its number of
            columns, `None` for an array of one dimension. The first array,
            `table`, has a row for each item and one more, which holds the
            totals. Where numbers need it, those of uint16 are int32.
        limits: dict. Name of each other array to the column of `table` that
            points into it.
        metadata: dict. Of the directory.
        arrays: dict. Name of each to the array, mapped into memory.
        table: int64 array `(num_items + 1, num_columns)`.

    Raises:
        InputError: if the directory is not complete or damaged.
    """

    kind: ClassVar[str]
    columns: ClassVar[dict]
    limits: ClassVar[dict]

    def __init__(self, directory: str):
        self.directory = str(directory)
        self.metadata = artifact.read(directory, kind=self.kind)
        try:
            self.arrays = {
                name: _map(os.path.join(self.directory, f"{name}.npy"), number)
                for name, (_, number) in self.columns.items()
            }
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(directory, error) from error
        name = next(iter(self.columns))
        self.table = self.arrays[name]
        if len(self.table) != self.metadata[f"num_{name}"] + 1 or any(
            self.table[-1, column] != len(self.arrays[name])
            for name, column in self.limits.items()
        ):
            raise _damaged(directory, "its files disagree")

    @functools.cached_property
    def wordpieces(self) -> list[str]:
        """The vocabulary."""
        return read_vocabulary(self.directory)

    @classmethod
    @contextlib.contextmanager
    def write(
        cls,
        output: str,
        *,
        parents: dict,
        tokenizer: str | None = None,
        wordpieces: list[str] | None = None,
        dtype: str | None = None,
    ):
        """Opens a directory to write and completes it at the end.

        Args:
            output: str. The directory to make, on a local disk.
            parents: dict. Name to fingerprint of what is packed.
            tokenizer: str. Fingerprint of what made the wordpieces. Defaults
                to `None`.
            wordpieces: list of str. The vocabulary. Defaults to `None`: it is
                not written.
            dtype: str. `"uint16"` or `"int32"`, of the arrays that are uint16
                in `columns`. Defaults to what the vocabulary needs.

        Yields:
            dict of name to file, to which rows are appended, and the `Stage`,
            whose metadata get the fingerprint of the content.

        Raises:
            InputError: if `output` exists already or is remote.
        """
        if is_remote(output):
            raise InputError(
                f"{output} is not on a local disk: packed arrays are mapped "
                "into memory. Choose a local directory."
            )
        with (
            artifact.write(
                output,
                kind=cls.kind,
                parameters={"tokenizer": tokenizer},
                parents=parents,
            ) as stage,
            contextlib.ExitStack() as stack,
        ):
            files = {}
            small = dtype or smallest_dtype(len(wordpieces) - 1)
            for name, (usual, number) in cls.columns.items():
                path = Path(stage.path(f"{name}.npy"))
                file = stack.enter_context(path.open("wb"))
                files[name] = _ArrayFile(
                    file, small if usual == "uint16" else usual, number
                )
            yield files, stage
            stage.metadata["fingerprint"] = fingerprints.fingerprint(
                *(file.finish() for file in files.values())
            )
            if wordpieces is not None:
                write_vocabulary(stage.directory, wordpieces)

    def __reduce__(self):
        return type(self), (self.directory,)

    def __len__(self):
        return len(self.table) - 1

    def rows(self, number: int) -> dict[str, np.ndarray]:
        """Name of each array to the rows of an item, 0 to `len() - 1`."""
        if not 0 <= number < len(self):
            raise IndexError(f"no item {number} of {len(self)}")
        first, last = self.table[number : number + 2].tolist()
        return {
            name: self.arrays[name][first[column] : last[column]]
            for name, column in self.limits.items()
        }

    def padded(
        self, name: str, max_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """An array's rows, one of the table's for each item, in memory.

        Args:
            name: str. Of an array of one dimension.
            max_length: int. What is longer is cut.

        Returns:
            int array `(num_items, length)` of the type on the disk, padded
            with 0, no wider than the longest; int32 array `(num_items,)`, how
            many are each item's.
        """
        flat, limits = self.arrays[name], self.table[:, self.limits[name]]
        lengths = np.minimum(np.diff(limits), max_length).astype("int32")
        columns = np.arange(lengths.max(initial=0))
        table = mapped_zeros((len(lengths), len(columns)), flat.dtype)
        for first in range(0, len(table), _PART):
            part = slice(first, first + _PART)
            inside = columns < lengths[part, None]
            places = (limits[:-1][part, None] + columns)[inside]
            table[part][inside] = flat[places]
        return table, lengths

    def count_sentences(self) -> np.ndarray:
        """Sentences of each item, int32 `(num_items,)`."""
        column = self.limits["sentences"]
        return np.diff(self.table[:, column]).astype("int32")


def mapped_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros in pages of their own, which `fixed_weight` need not copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE)
    return np.ndarray(shape, dtype, pages)


def _damaged(directory, why):
    return InputError(
        f"{directory} is damaged ({why}): remove it and make it again."
    )


def write_vocabulary(directory: str, wordpieces: list[str]) -> None:
    """Writes `vocab.txt`, one wordpiece a line."""
    write_text(
        os.path.join(directory, VOCABULARY),
        "".join(f"{piece}\n" for piece in wordpieces),
    )


def read_vocabulary(directory: str) -> list[str]:
    """The wordpieces that `write_vocabulary` wrote."""
    try:
        text = Path(os.path.join(directory, VOCABULARY)).read_text()
        return text.split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise _damaged(directory, error) from error


def _map(path, columns):
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape[1:] != (() if columns is None else (columns,)):
        raise ValueError(f"{path} has the shape {array.shape}")
    # Slices of a plain array are several times faster than of a memmap.
    return array.view(np.ndarray)
