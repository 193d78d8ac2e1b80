"""Directories of `.npy` files, written row by row and mapped into memory.

Written once, then any row is read in microseconds, in any order, and no more
of the content is in memory than the system's page cache holds. Reading needs
numpy alone: no TensorFlow, no tokenizer.
"""

import contextlib
import hashlib
import os

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

VOCABULARY = "vocab.txt"


def check_local(output: str) -> None:
    """Raises `InputError` if `output` cannot be mapped into memory."""
    if is_remote(output):
        raise InputError(
            f"{output} is not on a local disk: packed arrays are mapped into "
            "memory. Choose a local directory."
        )


class ArrayFiles(contextlib.AbstractContextManager):
    """The `.npy` files of a directory, appended to and at last completed.

    Args:
        directory: str. A local directory that is there.
        columns: dict. Name of each file to its type and its number of
            columns, `None` for an array of one dimension.
    """

    def __init__(self, directory: str, columns: dict):
        self._stack = contextlib.ExitStack()
        self._files = {}
        for name, (dtype, number) in columns.items():
            path = os.path.join(directory, f"{name}.npy")
            file = self._stack.enter_context(Path(path).open("wb"))
            self._files[name] = _ArrayFile(file, dtype, number)

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def append(self, name: str, rows) -> None:
        """Adds rows to a file."""
        self._files[name].append(rows)

    def num_rows(self, name: str) -> int:
        """Rows that a file holds by now."""
        return self._files[name].num_rows

    def finish(self) -> str:
        """Completes the headers; returns the fingerprint of the content."""
        return fingerprints.fingerprint(
            *(file.finish() for file in self._files.values())
        )


class _ArrayFile:
    """An `.npy` file whose number of rows is known at its end only."""

    def __init__(self, file, dtype, columns):
        self._file = file
        self._dtype = np.dtype(dtype)
        self._columns = columns
        self._digest = hashlib.sha256()
        self.num_rows = 0
        self._header_length = self._write_header()

    def append(self, rows):
        content = np.ascontiguousarray(rows, self._dtype).tobytes()
        self._file.write(content)
        self._digest.update(content)
        self.num_rows += len(rows)

    def finish(self):
        self._file.seek(0)
        # Numpy pads headers, so that one of more rows is as long.
        if self._write_header() != self._header_length:
            raise RuntimeError(f"{self._file.name}: its header grew.")
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
        return self._file.tell()


def open_arrays(
    directory: str, columns: dict, *, rows: str, num_rows: int, limits: dict
) -> dict:
    """The arrays of a directory, mapped into memory and checked.

    Args:
        directory: str.
        columns: dict. As given to `ArrayFiles`.
        rows: str. Name of the array with a row for each item and one more,
            which holds the totals.
        num_rows: int. Items there should be.
        limits: dict. Name of each other array to the column of `rows` that
            points into it.

    Returns:
        dict of name to array.

    Raises:
        InputError: if a file is missing or torn, or they disagree.
    """
    try:
        arrays = {
            name: _map(os.path.join(directory, f"{name}.npy"), number)
            for name, (_, number) in columns.items()
        }
    except (OSError, ValueError, EOFError) as error:
        raise damaged(directory, error) from error
    table = arrays[rows]
    if len(table) != num_rows + 1 or any(
        table[-1, column] != len(arrays[name])
        for name, column in limits.items()
    ):
        raise damaged(directory, "its files disagree")
    return arrays


def damaged(directory: str, why) -> InputError:
    """The error that says that a directory is damaged."""
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
        raise damaged(directory, error) from error


def _map(path, columns):
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape[1:] != (() if columns is None else (columns,)):
        raise ValueError(f"{path} has the shape {array.shape}")
    # Slices of a plain array are several times faster than of a memmap.
    return array.view(np.ndarray)
