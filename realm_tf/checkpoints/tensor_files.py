"""Opens the tensors of a Hugging Face directory, whatever holds them."""

import functools
import json
import os

from realm_tf.checkpoints.assignment import Stored
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.torch_files import open_torch_file
from realm_tf.errors import InputError

# In the order in which they are looked for.
_FILES = ("model.safetensors", "pytorch_model.bin")


def open_directory(directory: str) -> Tensors:
    """The tensors of a directory that Hugging Face's libraries wrote.

    safetensors are preferred. Of files cut into pieces the index says which
    holds what.

    Args:
        directory: str. Local.

    Returns:
        `Tensors`.

    Raises:
        InputError: if there is no file of weights, or it is damaged.
    """
    for name in _FILES:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return _open(path)
        if os.path.exists(f"{path}.index.json"):
            return _open_pieces(f"{path}.index.json")
    raise InputError(
        f"{directory} holds no weights: expected {' or '.join(_FILES)}, or "
        "one of these cut into pieces with its index."
    )


def open_safetensors(path: str) -> Tensors:
    """The tensors of a safetensors file.

    Args:
        path: str. A local file.

    Raises:
        InputError: if it is missing, truncated or damaged.
    """

    def read(name, rows):
        # Opened each time, as what was read stays mapped until it is closed.
        with _safe_open(path) as file:
            # There are no rows of a scalar.
            return file.get_slice(name)[rows] if rows else file.get_tensor(name)

    with _safe_open(path) as file:
        names = file.keys()
        arrays = {
            name: Stored(
                tuple(file.get_slice(name).get_shape()),
                functools.partial(read, name),
            )
            for name in names
        }
    return Tensors(arrays, path, (path,))


def _safe_open(path):
    # Registers bfloat16 with numpy.
    import ml_dtypes  # noqa: F401
    import safetensors

    try:
        return safetensors.safe_open(path, framework="numpy")
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path} cannot be read as safetensors ({error}): it is missing "
            "or damaged. Get it again."
        ) from error


def _open(path):
    if path.endswith(".safetensors"):
        return open_safetensors(path)
    return open_torch_file(path)


def _open_pieces(path):
    try:
        with open(path, encoding="utf-8") as file:
            pieces = dict(json.load(file)["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f'{path} is no index of weights ({error}): expected "weight_map" '
            "with the file of each tensor."
        ) from error
    opened = {}
    for name in sorted(set(pieces.values())):
        opened[name] = _open(os.path.join(os.path.dirname(path), name))
    arrays = {}
    for name, piece in pieces.items():
        opened[piece].shape(name)
        arrays[name] = opened[piece].arrays[name]
    files = tuple(path for piece in opened.values() for path in piece.files)
    return Tensors(arrays, path, files)
