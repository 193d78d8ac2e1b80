"""The tensors in files of safetensors and PyTorch, without PyTorch."""

import collections
import functools
import os
import pickle
import struct
import zipfile

import ml_dtypes  # noqa: F401, registers bfloat16 with NumPy.
import numpy as np
import safetensors

from realm_tf.checkpoints.assignment import Stored
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError

SAFETENSORS, PYTORCH = "model.safetensors", "pytorch_model.bin"
# PyTorch's classes of numbers that weights have.
_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
}


def open_directory(directory: str) -> Tensors:
    """The tensors of a directory that Hugging Face's libraries wrote.

    Args:
        directory: str. Local. safetensors are preferred.

    Returns:
        `Tensors`.

    Raises:
        InputError: if there is no file of weights, or it is damaged.
    """
    for name, open_file in (
        (SAFETENSORS, open_safetensors),
        (PYTORCH, open_torch_file),
    ):
        path = os.path.join(directory, name)
        if os.path.exists(path):
            return open_file(path)
    raise InputError(
        f"{directory} holds no weights: expected {SAFETENSORS} or {PYTORCH}."
    )


def open_safetensors(path: str) -> Tensors:
    """The tensors of a safetensors file.

    Args:
        path: str. A local file.

    Raises:
        InputError: if it is missing, truncated or damaged.
    """

    def read(name, rows):
        # Opened each time: pages that were read stay mapped until it closes.
        with _safe_open(path) as file:
            # There are no rows of a scalar.
            return file.get_slice(name)[rows] if rows else file.get_tensor(name)

    with _safe_open(path) as file:
        arrays = {
            name: Stored(
                tuple(file.get_slice(name).get_shape()),
                functools.partial(read, name),
            )
            for name in file.keys()  # noqa: SIM118, no dict.
        }
    return Tensors(arrays, path, (path,))


def _safe_open(path):
    try:
        return safetensors.safe_open(path, framework="numpy")
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path} cannot be read as safetensors ({error}): it is missing "
            "or damaged. Get it again."
        ) from error


def open_torch_file(path: str) -> Tensors:
    """The tensors of a state dict that torch.save of PyTorch 1.6 or later wrote.

    Such a file is a zip archive of numbers and of a pickle, a program that says
    which numbers are which tensor. Here it can call nothing but
    `collections.OrderedDict` and `_tensor`.

    The file is mapped into memory: it must not change while its tensors are
    in use. There is no checksum over the numbers.

    Args:
        path: str. A local file.

    Returns:
        `Tensors`, in their order in the file.

    Raises:
        InputError: if it is missing, damaged or contains anything but a dict
            of dense tensors.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
            with archive.open(name) as file:
                arrays = dict(_Unpickler(file, archive, name).load())
        if not all(type(each) is np.ndarray for each in arrays.values()):
            raise ValueError("a value is no tensor")
    except Exception as error:  # Whatever such an archive or pickle causes.
        raise InputError(
            f"{path} is missing, damaged, or no dict of tensors that torch.save "
            "of PyTorch 1.6 or later wrote "
            f"({type(error).__name__}: {str(error)[:200]!r}). Nothing in it was "
            "executed. Get it again, or save model.state_dict() again."
        ) from error
    return Tensors({str(n): v for n, v in arrays.items()}, path, (path,))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, archive, name):
        super().__init__(file)
        self._archive = archive
        self._folder = name.removesuffix("data.pkl") + "data"
        self._content = np.memmap(archive.filename, "uint8", "r")

    def find_class(self, module, name):
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # A function of its own, as a pickle can change its attributes.
            return lambda *args: _tensor(*args)
        raise pickle.UnpicklingError(f"Python object {module}.{name}")

    def persistent_load(self, pid):
        """The array of all numbers of a storage."""
        _, dtype, key, _, count = pid
        entry = self._archive.getinfo(f"{self._folder}/{key}")
        is_plain = entry.compress_type == zipfile.ZIP_STORED
        if dtype not in _DTYPES.values() or not is_plain:
            raise pickle.UnpicklingError("compressed, or of no known type")
        # Its header ends with a name and with bytes that align the numbers.
        header = self._content[entry.header_offset :]
        start = 30 + sum(struct.unpack_from("<HH", header, 26))
        return np.frombuffer(header[start:][: entry.file_size], dtype, count)


def _tensor(storage, offset, shape, strides, requires_grad, hooks):
    """A view of a storage; offset and strides count numbers."""
    size = storage.itemsize
    steps = [step * size for step in strides]
    return np.ndarray(shape, storage.dtype, storage, offset * size, steps)
