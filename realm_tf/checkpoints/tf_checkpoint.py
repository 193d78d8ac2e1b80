"""TensorFlow checkpoints, as `tf.train.load_checkpoint` reads them."""

import functools
import glob
import os
import pathlib
import re

from realm_tf.checkpoints.assignment import Stored
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError

_ENDING = re.compile(r"\.(index|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"(.+-)(\d+)")


def open_checkpoint(prefix: str) -> Tensors:
    """The tensors of a checkpoint of TF1 or TF2.

    A tensor is read whole, even if rows are asked for, and stays in memory
    until another one is read. TensorFlow verifies its checksum.

    Args:
        prefix: str. Path of the checkpoint without `.index`, or of one of its
            files, on a local disk.

    Returns:
        `Tensors`. Reading a damaged one raises `InputError`.

    Raises:
        InputError: if there is no such checkpoint, or its index is damaged.
    """
    import tensorflow as tf

    prefix = _ENDING.sub("", os.fspath(prefix))
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
        import numpy as np

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


def open_single(source: str) -> tuple[Tensors, str]:
    """The tensors of one checkpoint, and the directory beside it.

    Args:
        source: str. Its prefix, or a directory that holds no other one.

    Raises:
        InputError: see `open_checkpoint`; also if there are several.
    """
    if not os.path.isdir(source):
        return open_checkpoint(source), os.path.dirname(source)
    prefixes = find_checkpoints(source)
    if len(prefixes) != 1:
        raise InputError(
            f"{source} must hold one checkpoint (*.index), but it holds "
            f"{', '.join(prefixes) or 'none'}. Name one by its prefix."
        )
    return open_checkpoint(prefixes[0]), source


def find_checkpoints(directory: str) -> list[str]:
    """Prefixes of the checkpoints in a directory.

    Of several steps of one checkpoint, such as model.ckpt-100 and
    model.ckpt-200, it is the last.

    Args:
        directory: str. On a local disk; searched with all below it.

    Returns:
        list of str, sorted. Each is a prefix for `open_checkpoint`.
    """
    last = {}
    for path in pathlib.Path(directory).rglob("*.index"):
        prefix = str(path.with_suffix(""))
        match = _STEP.fullmatch(prefix)
        name, step = (match[1], int(match[2])) if match else (prefix, 0)
        last[name] = max(last.get(name, (-1, "")), (step, prefix))
    return sorted(prefix for _, prefix in last.values())
