"""TensorFlow checkpoints, as `tf.train.load_checkpoint` reads them."""

import functools
import glob
import os
import pathlib

import numpy as np

from realm_tf.checkpoints.assignment import Stored
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError


def open_checkpoint(prefix: str) -> Tensors:
    """The tensors of a checkpoint of TF1 or TF2.

    A tensor is read whole, even if rows are asked for, and stays in memory
    until another one is read. TensorFlow verifies its checksum.

    Args:
        prefix: str. Path of the checkpoint without `.index`, on a local disk.

    Returns:
        `Tensors`. Reading a damaged one raises `InputError`.

    Raises:
        InputError: if there is no such checkpoint, or its index is damaged.
    """
    import tensorflow as tf

    if not os.path.isfile(f"{prefix}.index"):
        raise InputError(
            f"There is no TensorFlow checkpoint {prefix} on a local disk: the "
            f"file {prefix}.index is missing."
        )
    # TensorFlow turns some of its errors into Python's.
    errors = (tf.errors.OpError, LookupError, RuntimeError, ValueError)
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
    except errors as error:
        raise InputError(
            f"{prefix} is damaged or no checkpoint of TensorFlow ({error}). "
            "Fetch it again."
        ) from error

    # The last tensor only: rows are asked for piece by piece.
    @functools.lru_cache(maxsize=1)
    def read(name):
        try:
            return np.asarray(reader.get_tensor(name))
        except errors as error:
            raise InputError(
                f"{prefix}.data-* is damaged: the tensor {name} cannot be "
                f"read ({error}). Fetch the checkpoint again."
            ) from error

    return Tensors(
        {
            name: Stored(tuple(shape), lambda rows, name=name: read(name)[rows])
            for name, shape in sorted(shapes.items())
        },
        prefix,
        tuple(sorted(glob.glob(f"{glob.escape(prefix)}.*"))),
    )


def find_checkpoints(source: str) -> list[str]:
    """Prefixes of the checkpoints in a directory and below it, sorted.

    Args:
        source: str. A directory on a local disk; anything else is a prefix.
    """
    if not os.path.isdir(source):
        return [source]
    paths = pathlib.Path(source).rglob("*.index")
    return sorted(str(path.with_suffix("")) for path in paths)
