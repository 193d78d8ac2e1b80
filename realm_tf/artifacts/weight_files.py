"""The weights of a part of a model in a file, in their order."""

import numpy as np

from realm_tf.errors import InputError


def write(path: str, weights: list) -> None:
    """Writes arrays as `keras.Model.get_weights` gives them.

    Args:
        path: str. `.npz`.
        weights: list of arrays.
    """
    np.savez(path, **{str(n): array for n, array in enumerate(weights)})


def read(path: str) -> list[np.ndarray]:
    """The arrays that `write` wrote.

    Raises:
        InputError: if the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[str(n)] for n in range(len(arrays.files))]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}).") from error
