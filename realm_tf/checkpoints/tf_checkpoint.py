"""TensorFlow checkpoints, as `tf.train.load_checkpoint` reads them."""

import dataclasses
import functools
import glob
import os
import pathlib
import re
from collections.abc import Callable

from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError

# Of find_checkpoints. Downloads of several checkpoints nest no deeper.
_DEPTH = 4

_ENDING = re.compile(r"\.(index|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"(.+-)(\d+)")
# What a tf.train.Saver that was killed leaves.
_TEMPORARY = re.compile(r"part-\d{5}-of-\d{5}")


@dataclasses.dataclass(frozen=True)
class _Variable:
    """A variable of a checkpoint, as `Tensors` wants an array."""

    name: str
    shape: tuple[int, ...]
    read: Callable

    def __getitem__(self, rows):
        return self.read(self.name)[rows]


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
            name: _Variable(name, tuple(shape), read)
            for name, shape in sorted(shapes.items())
        },
        prefix,
        tuple(sorted(glob.glob(f"{glob.escape(prefix)}.*"))),
    )


def find_checkpoints(directory: str) -> list[str]:
    """Prefixes of the checkpoints in a directory.

    Of several steps of one checkpoint, such as model.ckpt-100 and
    model.ckpt-200, it is the one that TensorFlow's file `checkpoint` beside
    them names, else the last.

    Args:
        directory: str. On a local disk; searched four directories deep.

    Returns:
        list of str, sorted. Each is a prefix for `open_checkpoint`.

    Raises:
        InputError: if there is no such directory.
    """
    if not os.path.isdir(directory):
        raise InputError(f"There is no directory {directory} on a local disk.")
    root = pathlib.Path(directory)
    found = []
    for path, directories, files in os.walk(root):
        if len(pathlib.Path(path).relative_to(root).parts) == _DEPTH:
            directories.clear()
        prefixes = {
            name.removesuffix(".index")
            for name in files
            if name.endswith(".index")
        }
        prefixes = {p for p in prefixes if not _TEMPORARY.fullmatch(p)}
        found += [os.path.join(path, p) for p in _last_steps(path, prefixes)]
    return sorted(found)


def _last_steps(directory, prefixes):
    """One prefix of each checkpoint, whatever its steps."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(directory)
    # Its directory is that of the machine that wrote it.
    named = state and os.path.basename(state.model_checkpoint_path)
    last = {}
    for prefix in prefixes:
        match = _STEP.fullmatch(prefix)
        step = int(match[2]) if match else 0
        key = match[1] if match else prefix
        # False comes before True, and a smaller step before a larger one.
        last[key] = max(
            last.get(key, (False, -1, "")), (prefix == named, step, prefix)
        )
    return [prefix for _, _, prefix in last.values()]
