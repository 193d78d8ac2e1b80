"""Opens the tensors of a Hugging Face directory, whatever holds them."""

import json
import os

import numpy as np

from realm_tf.checkpoints.torch_files import TorchFile
from realm_tf.errors import InputError

# In the order in which they are looked for.
_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_SAFETENSORS = ".safetensors"


class SafetensorsFile:
    """The tensors of a safetensors file, read when they are asked for.

    Args:
        path: str.

    Attributes:
        source: str. The path, for messages.

    Raises:
        InputError: if the file is missing, truncated or damaged.
    """

    def __init__(self, path: str):
        self.source = path
        with self._open() as file:
            names = file.keys()
            self._shapes = {
                name: tuple(file.get_slice(name).get_shape()) for name in names
            }

    def files(self) -> tuple[str, ...]:
        """The files that hold the tensors."""
        return (self.source,)

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._shapes[name]

    def read(self, name: str, start: int = 0, limit: int | None = None):
        """Rows of a tensor.

        Args:
            name: str.
            start: int. First row. Defaults to `0`.
            limit: int. The row after the last. Defaults to all.

        Returns:
            numpy array; float16 and bfloat16 become float32.
        """
        # Opened anew, as what was read stays mapped until it is closed.
        with self._open() as file:
            if not self._shapes[name]:
                return widen(file.get_tensor(name))
            return widen(file.get_slice(name)[start:limit])

    def _open(self):
        # Registers bfloat16 with numpy.
        import ml_dtypes  # noqa: F401
        import safetensors

        try:
            return safetensors.safe_open(self.source, framework="numpy")
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(
                f"{self.source} cannot be read as safetensors ({error}): it "
                "is missing or damaged. Get it again."
            ) from error


class Joined:
    """Several files as one.

    Args:
        source: str. For messages.
        holders: dict. Name of each tensor to the file that holds it.
    """

    def __init__(self, source: str, holders: dict):
        self.source = source
        self._holders = holders

    def files(self):
        """The files that hold the tensors."""
        return tuple({f.source: None for f in self._holders.values()})

    def names(self):
        """Names of all tensors."""
        return list(self._holders)

    def shape(self, name):
        """Shape of a tensor."""
        return self._holders[name].shape(name)

    def read(self, name, start=0, limit=None):
        """Rows of a tensor, as `SafetensorsFile.read`."""
        return self._holders[name].read(name, start, limit)


class Renamed:
    """Some tensors of a file, under other names.

    Args:
        tensors: what has `source`, `names`, `shape` and `read`.
        names: dict. Name here to name there.
    """

    def __init__(self, tensors, names: dict[str, str]):
        self._tensors = tensors
        self._names = names

    def names(self):
        """Names of all tensors."""
        return list(self._names)

    def name_there(self, name):
        """What a tensor is called in the file."""
        return self._names[name]

    def shape(self, name):
        """Shape of a tensor."""
        return self._tensors.shape(self._names[name])

    def read(self, name, start=0, limit=None):
        """Rows of a tensor, as `SafetensorsFile.read`."""
        return self._tensors.read(self._names[name], start, limit)


def widen(rows: np.ndarray) -> np.ndarray:
    """float16 and bfloat16 as float32; the rest as it is."""
    is_half = rows.dtype.name in ("float16", "bfloat16")
    return rows.astype("float32") if is_half else rows


def open_directory(directory: str):
    """The tensors of a directory that Hugging Face's libraries wrote.

    safetensors are preferred. Of files cut into pieces the index says which
    holds what.

    Args:
        directory: str. Local.

    Returns:
        What has `source`, `names()`, `shape(name)` and `read(name, start,
        limit)`: `SafetensorsFile`, `TorchFile` or `Joined`.

    Raises:
        InputError: if there is no file of weights, or it is damaged.
    """
    for name in _FILES:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            break
    else:
        raise InputError(
            f"{directory} holds no weights: expected {_FILES[0]} or "
            f"{_FILES[2]}, or one of these cut into pieces with its index."
        )
    return _open_pieces(path) if path.endswith(".json") else _open(path)


def _open(path):
    if path.endswith(_SAFETENSORS):
        return SafetensorsFile(path)
    return TorchFile(path)


def _open_pieces(path):
    try:
        with open(path, encoding="utf-8") as file:
            pieces = dict(json.load(file)["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f'{path} is no index of weights ({error}): expected "weight_map" '
            "with the file of each tensor."
        ) from error
    directory = os.path.dirname(path)
    files = {}
    for name in sorted(set(pieces.values())):
        if os.path.basename(name) != name:
            raise InputError(f"{path} names a file elsewhere: {name!r}.")
        files[name] = _open(os.path.join(directory, name))
    for name, piece in pieces.items():
        if name not in files[piece].names():
            raise InputError(f"{path}: {piece} lacks the tensor {name}.")
    return Joined(path, {name: files[p] for name, p in pieces.items()})
