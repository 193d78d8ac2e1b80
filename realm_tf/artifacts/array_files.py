"""Arrays in memory, in `.npy` and `.npz` files, and the file of a vocabulary.

Needs no TensorFlow.
"""

import contextlib
import math
import mmap
import os
import zipfile
import zlib

import numpy as np

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import local_copy
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.paths import writing
from realm_tf.errors import InputError

VOCABULARY = "vocab.txt"
# Of the norm of a row that was normalised in float32 (our choice).
_NORM_TOLERANCE = 0.01


def mapped_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros in pages of their own, which `fixed_weight` need not copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE)
    return np.ndarray(shape, dtype, pages)


def load_array(path: str) -> np.ndarray:
    """A file of embeddings or of an index, memory-mapped.

    A remote one is copied to the cache of this machine.

    Raises:
        InputError: if it is missing or damaged.
    """
    if not Path(path).exists():
        raise InputError(f"{path} is missing: make its directory again.")
    try:
        return np.load(local_copy(path), mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}): make its directory again."
        ) from error


def check_embeddings(
    rows: np.ndarray, path: str, *, norm: float | None, mend: str
) -> None:
    """Refuses rows that no tower gives.

    Args:
        rows: float32 array `(num_blocks, embedding_dim)`.
        path: str. Their file, for the error.
        norm: float. Of each row; `None`: any whose square float32 holds.
        mend: str. What to do, the end of a sentence.

    Raises:
        InputError: if one is not finite or of another norm.
    """
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(rows, axis=1)
    # A NaN is close to nothing.
    is_right = (
        np.isfinite(norms)
        if norm is None
        else np.isclose(norms, norm, atol=_NORM_TOLERANCE)
    )
    if not is_right.all():
        row = int(is_right.argmin())
        raise InputError(
            f"{path}: the embedding in row {row} has the norm {norms[row]:g}, "
            f"expected {norm or 'a finite one'}: {mend}"
        )


def write_array(path: str, array: np.ndarray) -> None:
    """Writes a `.npy` file, which appears whole or not at all."""
    with _new_file(path) as file:
        np.save(file, array, allow_pickle=False)


def write_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes an `.npz` file, as `write_array`."""
    with _new_file(path) as file:
        np.savez(file, **arrays)


@contextlib.contextmanager
def _new_file(path):
    with writing(path) as temporary, open(temporary, "wb") as file:
        yield file
        # A machine that dies must not leave an empty file of this name.
        file.flush()
        os.fsync(file.fileno())


def read_arrays(
    path: str, names: list[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote, in their order.

    Args:
        path: str. Local.
        names: list of str. Which of them. Defaults to `None`: all.

    Raises:
        InputError: if the file is missing or damaged.
    """
    try:
        with (
            open(path, "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return {
                name: arrays[name]
                for name in (arrays.files if names is None else names)
            }
    except (
        EOFError,
        FileNotFoundError,
        KeyError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(
            f"{path} is damaged ({error}): remove the unfinished output to "
            "train from the start."
        ) from error


def write_vocabulary(directory: str, wordpieces: list[str]) -> None:
    """Writes `vocab.txt`, one wordpiece a line."""
    write_text(
        os.path.join(directory, VOCABULARY),
        "".join(f"{piece}\n" for piece in wordpieces),
    )


def smallest_dtype(largest: int) -> str:
    """The smallest type for numbers from 0 to `largest`.

    Args:
        largest: int. From 0 to 2 ** 31 - 1.

    Returns:
        str, `"uint16"` or `"int32"`: every backend gathers rows of these.
    """
    return "uint16" if largest <= np.iinfo("uint16").max else "int32"


def smallest(values: np.ndarray) -> np.ndarray:
    """Integers from 0 on in their `smallest_dtype`; not copied if they are."""
    dtype = smallest_dtype(int(values.max(initial=0)))
    return values.astype(dtype, copy=False)
