"""Arrays of a run by name in one file, such as the weights of a tower."""

import os
import zipfile
import zlib

import numpy as np

from realm_tf.errors import InputError


def write(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes arrays; the file appears whole or not at all.

    Args:
        path: str. `.npz`, local.
        arrays: dict of name to array.
    """
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        # A machine that dies must not leave an empty file of this name.
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read(path: str, names: list[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays that `write` wrote, in their order.

    Args:
        path: str.
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
