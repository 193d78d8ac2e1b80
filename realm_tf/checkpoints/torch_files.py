"""Tensors of a PyTorch file, without PyTorch and with nothing run.

`torch.save` writes numbers and a pickle that says which of them are which
tensor. A pickle is a program: here it can name nothing but the inert
stand-ins of `_GLOBALS`, which keep what they are given.
"""

import io
import math
import pickle
import zipfile

import ml_dtypes  # noqa: F401, numpy's bfloat16.
import numpy as np

from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError

# Bytes. Ours: some 25,000 tensors, and what is made of them stays small.
_MAX_PICKLE = 1 << 22
_ADVICE = (
    "Nothing of it was run. Expected a dict of tensors, as torch.save writes "
    "of model.state_dict()."
)


def open_torch_file(path: str) -> Tensors:
    """The tensors of a `pytorch_model.bin`, as PyTorch 1.6 or later saves it.

    The file is mapped into memory: it must not change while its tensors are
    in use. There is no checksum over the numbers.

    Args:
        path: str. A local file.

    Returns:
        `Tensors`, in their order in the file.

    Raises:
        InputError: if it is missing, damaged or holds anything but a dict of
            dense tensors.
    """
    path = str(path)
    try:
        return Tensors(_read(path), path, (path,))
    except _Refused as error:
        raise InputError(f"{path} {error}") from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read from a local disk: "
            f"{error.strerror or error}."
        ) from error


class _Refused(Exception):
    """What is wrong with a file, to follow its name."""


def _read(path):
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise _Refused(
                "is no file of torch.save of PyTorch 1.6 or later, which is a "
                "zip archive. Get it again, whole (of a git repository, by git "
                "lfs pull), or, if it is older, save it again."
            )
        pickled, storages = _read_zip(file)
    try:
        values = _Unpickler(pickled, storages).load()
    except _Refused as error:
        raise _Refused(f"{error}. {_ADVICE}") from error
    except Exception as error:  # Whatever a pickle may bring about.
        raise _Refused(
            "has a damaged, truncated or unexpected pickle "
            f"({type(error).__name__}). {_ADVICE}"
        ) from error
    # Never their repr, which may be far larger than the file.
    found = values.values() if isinstance(values, dict) else [values]
    for value in found:
        if type(value) is not _Tensor or not isinstance(values, dict):
            raise _Refused(f"holds a {type(value).__name__}. {_ADVICE}")
    return {str(name): tensor.array for name, tensor in values.items()}


def _read_zip(file):
    """The pickle */data.pkl, and the content of each */data/KEY by KEY."""
    content = np.memmap(file, "uint8", "r")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            pickles = [name for name in entries if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise _Refused(
                    f"is a zip archive with {len(pickles)} entries data.pkl, "
                    "expected 1: it is no file of torch.save."
                )
            folder = pickles[0].removesuffix("data.pkl")
            order = f"{folder}byteorder"
            if order in entries and archive.read(order) != b"little":
                raise _Refused("is not in little-endian byte order.")
            if entries[pickles[0]].file_size > _MAX_PICKLE:
                raise _Refused(
                    f"has a pickle of more than {_MAX_PICKLE} bytes."
                )
            storages = {
                name.removeprefix(f"{folder}data/"): _stored(entry, content)
                for name, entry in entries.items()
                if name.startswith(f"{folder}data/")
            }
            # Its checksum is verified.
            return archive.read(pickles[0]), storages
    # All that zipfile raises of a damaged archive.
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise _Refused(
            "is a damaged or truncated zip archive. Get it again."
        ) from error


def _stored(entry, content):
    """The bytes of an entry of a zip archive, which are in the file as is."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise _Refused(
            f"has {entry.filename[:200]!r} compressed, which torch.save does "
            "not: unpack it and zip it with no compression."
        )
    # Behind its header are the name and what the data are aligned by.
    lengths = content[entry.header_offset :][26:30]
    if lengths.size < 4:
        raise zipfile.BadZipFile
    start = entry.header_offset + 30 + int(lengths.view("<u2").sum())
    return content[start : start + entry.file_size]


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled, storages):
        super().__init__(io.BytesIO(pickled))
        self.storages = storages

    def find_class(self, module, name):
        if (module, name) not in _GLOBALS:
            name = f"{module}.{name}"[:100]
            raise _Refused(f"asks for the Python object {name!r}")
        return _GLOBALS[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, _, count = pid
        # NumPy has a type for every class and of many names.
        if kind != "storage" or dtype not in _DTYPES:
            raise _Refused("has a storage of no known kind")
        dtype = np.dtype(_DTYPES[dtype])
        size = count * dtype.itemsize
        # NumPy checks that there are so many.
        return _Storage(self.storages[key][:size].view(dtype), count)


# What a pickle may name, and call. Whatever state it wants to set on what they
# make is left out: of a state dict, the versions of its modules.


class _Inert:
    def __setstate__(self, state):
        pass


class _StateDict(_Inert, dict):
    pass


class _Parameter(_Inert):
    def __new__(cls, tensor, requires_grad, hooks):
        return tensor


class _Storage(_Inert):
    def __init__(self, array, count):
        if array.size != count:
            raise _Refused("has a storage that is truncated")
        self.array = array


class _Tensor(_Inert):
    """A view of a storage; offset and strides are in elements."""

    def __init__(
        self,
        storage,
        offset,
        shape,
        strides,
        requires_grad,
        hooks,
        # That it is conjugate or negative.
        metadata=None,
    ):
        # Expanded: a small file would become a large array.
        if metadata or math.prod(shape) > storage.array.size:
            raise _Refused("has a tensor that is not in its data as it is")
        itemsize = storage.array.itemsize
        # NumPy checks that it lies inside.
        self.array = np.ndarray(
            shape,
            storage.array.dtype,
            buffer=storage.array,
            offset=offset * itemsize,
            # What a dimension of one steps by means nothing.
            strides=[
                step * itemsize if length > 1 else 0
                for length, step in zip(shape, strides, strict=True)
            ],
        )


_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
_GLOBALS = {
    ("collections", "OrderedDict"): _StateDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
    ("torch._utils", "_rebuild_parameter"): _Parameter,
    **{("torch", name): name for name in _DTYPES},
}
