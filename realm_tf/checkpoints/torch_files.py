"""Tensors of a PyTorch file, without PyTorch and with nothing run.

`torch.save` writes numbers and a pickle that says which of them are which
tensor. A pickle is a program. Here the few opcodes that a dict of tensors
needs are followed on a stack of plain values; no object is made and no
function called that the file names. That is why `pickle.Unpickler` is not
used: whatever its `find_class` allows, five bytes of memo make it fill
gigabytes, and a key of nested tuples is hashed for years.
"""

import dataclasses
import io
import math
import pickletools
import struct
import zipfile

import numpy as np

from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError

_DTYPES = {
    "torch DoubleStorage": "float64",
    "torch FloatStorage": "float32",
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
}
_ORDERED_DICT = "collections OrderedDict"
_REBUILD_TENSOR = "torch._utils _rebuild_tensor_v2"
_REBUILD_PARAMETER = "torch._utils _rebuild_parameter"
_GLOBALS = {*_DTYPES, _ORDERED_DICT, _REBUILD_TENSOR, _REBUILD_PARAMETER}

_ZIP = b"PK\x03\x04"
# The number 0x1950a86a20f9469cfc6c (torch/serialization.py), pickled.
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_LEGACY_VERSION = 1001
# Bytes. Ours: some 25,000 tensors, and what is made of them stays small.
_MAX_PICKLE = 1 << 22
_MAX_DIMENSIONS = 16
# Ours: of a tensor without elements, the product of its other dimensions.
_MAX_EMPTY = 1 << 40
_ADVICE = (
    "Nothing of it was run. Expected a dict of tensors, as torch.save writes "
    "of model.state_dict()."
)


class TorchFile:
    """The tensors of a `pytorch_model.bin`, read when they are asked for.

    Either format of `torch.save`. The file is mapped into memory: it must
    not change while this or an array from it is in use. There is no check
    sum over the numbers.

    Args:
        path: str. A local file.

    Attributes:
        source: str. The path, for messages.

    Raises:
        InputError: if it is missing, damaged or holds anything but a dict of
            dense tensors.
    """

    def __init__(self, path: str):
        self.source = str(path)
        try:
            self._tensors, self._places = _read(self.source)
            self._bytes = np.memmap(self.source, "uint8", "r")
            for name, tensor in self._tensors.items():
                self._check(name, tensor)
        except _Refused as error:
            raise InputError(f"{self.source} {error}") from error
        except OSError as error:
            raise InputError(
                f"{self.source} cannot be read: {error.strerror or error}."
            ) from error

    def files(self) -> tuple[str, ...]:
        """The files that hold the tensors."""
        return (self.source,)

    def names(self) -> list[str]:
        """Names of all tensors, in their order in the file."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor.

        Raises:
            InputError: if there is no such tensor.
        """
        return self._tensor(name).shape

    def read(
        self, name: str, start: int = 0, limit: int | None = None
    ) -> np.ndarray:
        """Rows of a tensor.

        Args:
            name: str.
            start: int. First row, as in a slice. Defaults to `0`.
            limit: int. The row after the last. Defaults to all.

        Returns:
            numpy array, C-contiguous; float16 and bfloat16 become float32.
            Where the file holds just that, it is a view of the file and not
            writeable, otherwise a copy of these rows.

        Raises:
            InputError: if there is no such tensor.
        """
        tensor = self._tensor(name)
        dtype = tensor.storage.numpy_dtype
        if not math.prod(tensor.shape):
            rows = np.empty(tensor.shape, dtype)
        else:
            first = self._places[tensor.storage.key].offset
            first += tensor.offset * dtype.itemsize
            size = tensor.extent * dtype.itemsize
            rows = np.lib.stride_tricks.as_strided(
                self._bytes[first : first + size].view(dtype),
                tensor.shape,
                [stride * dtype.itemsize for stride in tensor.strides],
                writeable=False,
            )
        if tensor.shape:
            rows = rows[start:limit]
        return _converted(rows, tensor.storage.dtype)

    def _tensor(self, name):
        if name not in self._tensors:
            raise InputError(f"{self.source} lacks the tensor {name}.")
        return self._tensors[name]

    def _check(self, name, tensor):
        """That the file has all bytes of a tensor's storage."""
        storage = tensor.storage
        size = storage.num_elements * storage.numpy_dtype.itemsize
        place = self._places.get(storage.key)
        if place is None:
            raise _Refused(f"has no data of the tensor {name[:200]!r}.")
        if size > place.size or place.offset + size > self._bytes.size:
            raise _Refused(
                f"is truncated: the tensor {name[:200]!r} needs {size} bytes "
                "that are not all there. Get it again."
            )


class _Refused(Exception):
    """What is wrong with a file, to stand behind its name."""


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where in the file a storage is, in bytes."""

    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class _Global:
    """A name that the pickle gives; nothing but a name."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Storage:
    """Numbers, one after the other."""

    key: str
    dtype: str
    num_elements: int

    @property
    def numpy_dtype(self):
        kind = {"bfloat16": "uint16", "bool": "uint8"}.get(self.dtype)
        return np.dtype(kind or self.dtype).newbyteorder("<")


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage. Offset and strides are in elements."""

    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple

    @property
    def extent(self):
        """Elements of the storage from the first one to the last."""
        steps = zip(self.shape, self.strides, strict=True)
        return 1 + sum((length - 1) * stride for length, stride in steps)


def _converted(rows, dtype):
    if dtype == "bfloat16":
        rows = (rows.astype("uint32") << 16).view("float32")
    if dtype == "float16":
        rows = rows.astype("float32")
    if dtype == "bool":
        rows = rows != 0
    return np.require(rows, requirements=["C_CONTIGUOUS", "ALIGNED"])


def _read(path):
    """Tensors by name, and places by the key of the storage."""
    if is_remote(path):
        raise _Refused("is remote: copy it to a local disk.")
    with open(path, "rb") as file:
        start = file.read(len(_LEGACY))
        file.seek(0)
        if start.startswith(_ZIP):
            values, places = _read_zip(file)
        elif start == _LEGACY:
            values, places = _read_legacy(file)
        else:
            raise _Refused(
                "is no file of torch.save: it is neither a zip archive nor "
                "begins with PyTorch's number. Get it again, whole (of a git "
                "repository, by git lfs pull)."
            )
    return _tensors_of(values), places


def _tensors_of(values):
    if type(values) is not dict:
        raise _Refused(f"holds {_kind(values)}. {_ADVICE}")
    for name, value in values.items():
        if type(value) is not _Tensor:
            raise _Refused(
                f"holds {_kind(value)} by the name {name[:200]!r}. {_ADVICE}"
            )
    return values


def _kind(value):
    # Never its repr: a value may hold itself, or be far larger than its file.
    kinds = {_Tensor: "a single tensor", _Global: "a name", dict: "a dict"}
    return kinds.get(type(value), f"a {type(value).__name__}")


# The zip format, of version 1.6 and later: ANYTHING/data.pkl, .../byteorder,
# and .../data/KEY for each storage.


def _read_zip(file):
    try:
        with zipfile.ZipFile(file) as archive:
            return _read_archive(archive, file)
    except (
        # All that zipfile raises of a damaged archive.
        *(zipfile.BadZipFile, EOFError, OverflowError, RuntimeError),
        *(struct.error, ValueError),
    ) as error:
        raise _Refused(
            "is a damaged or truncated zip archive. Get it again."
        ) from error


def _read_archive(archive, file):
    entries = {entry.filename: entry for entry in archive.infolist()}
    pickles = [name for name in entries if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise _Refused(
            f"is a zip archive with {len(pickles)} entries data.pkl, "
            "expected 1: it is no file of torch.save."
        )
    folder = pickles[0].removesuffix("data.pkl")
    order = entries.get(f"{folder}byteorder")
    if order and _content(archive, order) != b"little":
        raise _Refused(
            "is not in little-endian byte order: save it again elsewhere."
        )
    values = _run(io.BytesIO(_content(archive, entries[pickles[0]])))
    prefix = f"{folder}data/"
    places = {
        name.removeprefix(prefix): _place(file, entry)
        for name, entry in entries.items()
        if name.startswith(prefix)
    }
    return values, places


def _content(archive, entry):
    _check_stored(entry)
    if entry.file_size > _MAX_PICKLE:
        raise _Refused(
            f"has {entry.file_size} bytes of {entry.filename[:200]!r}, "
            f"expected at most {_MAX_PICKLE}."
        )
    return archive.read(entry)


def _place(file, entry):
    _check_stored(entry)
    file.seek(entry.header_offset)
    header = file.read(30)
    if len(header) != 30 or not header.startswith(_ZIP):
        raise zipfile.BadZipFile
    # Behind the header are the name and what the data are aligned by.
    length = sum(struct.unpack("<HH", header[26:]))
    return _Place(entry.header_offset + 30 + length, entry.file_size)


def _check_stored(entry):
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        raise _Refused(
            f"has {entry.filename[:200]!r} compressed or encrypted, which "
            "torch.save does not: unpack it and zip it with no compression."
        )


# The format before version 1.6: a number, a version, the machine, the tensors
# and the keys of the storages, each a pickle. Then the storages, each behind
# the number of its elements.


def _read_legacy(file):
    pickles = io.BytesIO(file.read(_MAX_PICKLE))
    _run(pickles)
    version, machine = _run(pickles), _run(pickles)
    if version != _LEGACY_VERSION:
        raise _Refused(f"is of an unknown version, expected {_LEGACY_VERSION}.")
    if type(machine) is not dict or machine.get("little_endian") is not True:
        raise _Refused(
            "is not in little-endian byte order: save it again elsewhere."
        )
    values, keys = _run(pickles), _run(pickles)
    tensors = _tensors_of(values).values()
    storages = {t.storage.key: t.storage for t in tensors}
    if type(keys) is not list or any(type(key) is not str for key in keys):
        raise _Refused(f"has no list of storages. {_ADVICE}")
    places, offset = {}, pickles.tell()
    for key in keys:
        if key not in storages:
            raise _Refused("has data of no tensor: it is damaged.")
        file.seek(offset)
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count != storages[key].num_elements:
            raise _Refused(
                f"is damaged or truncated: a storage has {count} elements, "
                f"expected {storages[key].num_elements}. Get it again."
            )
        size = count * storages[key].numpy_dtype.itemsize
        places[key] = _Place(offset + 8, size)
        offset += 8 + size
    return values, places


# The pickle.


def _run(stream):
    """What a pickle describes: plain values, `_Tensor` and `_Global`."""
    program = _Program(stream)
    try:
        while program.follow_one():
            pass
        return program.pop()
    except ValueError as error:
        raise _Refused(
            "has a damaged or truncated pickle. Get it again."
        ) from error
    except _Refused as error:
        raise _Refused(
            f"{error} (before byte {stream.tell()} of its pickle). {_ADVICE}"
        ) from error


class _Program:
    """The opcodes of pickle's protocol 2 that a dict of tensors needs."""

    def __init__(self, stream):
        self._stream = stream
        self._stack = []
        self._marks = []
        self._memo = {}

    def follow_one(self):
        """Follows an opcode; returns whether another comes."""
        code = self._stream.read(1).decode("latin-1")
        if code not in pickletools.code2op:
            raise ValueError("no opcode")
        opcode = pickletools.code2op[code]
        # Read where it is used: what is refused need not be read before.
        self._follow(opcode.name, lambda: opcode.arg.reader(self._stream))
        return opcode.name != "STOP"

    def _follow(self, name, argument):
        push = self._stack.append
        match name:
            case "PROTO":
                argument()
            case "STOP":
                pass
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                push(argument())
            case "NONE":
                push(None)
            case "NEWTRUE" | "NEWFALSE":
                push(name == "NEWTRUE")
            case "EMPTY_DICT":
                push({})
            case "EMPTY_LIST":
                push([])
            case "EMPTY_TUPLE":
                push(())
            case "MARK":
                self._marks.append(len(self._stack))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self._pop_many(int(name[-1]))))
            case "TUPLE":
                push(tuple(self._pop_to_mark()))
            case "APPEND":
                self._extend([self.pop()])
            case "APPENDS":
                self._extend(self._pop_to_mark())
            case "SETITEM":
                self._set_items(self._pop_many(2))
            case "SETITEMS":
                self._set_items(self._pop_to_mark())
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument()] = self._top()
            case "BINGET" | "LONG_BINGET":
                number = argument()
                if number not in self._memo:
                    raise _Refused("reads from its memo what is not there")
                push(self._memo[number])
            case "GLOBAL":
                push(self._read_global())
            case "BINPERSID":
                push(_storage(self.pop()))
            case "REDUCE":
                push(_rebuilt(*self._pop_many(2)))
            case "BUILD":
                # A state dict's `_metadata`: versions of its modules.
                self.pop()
                self._top(dict)
            case _:
                raise _Refused(f"has the unexpected opcode {name}")

    def _read_global(self):
        lines = self._stream.readline() + self._stream.readline()
        name = lines.decode("latin-1").removesuffix("\n").replace("\n", " ")
        if name not in _GLOBALS:
            name = name[:100].replace(" ", ".")
            raise _Refused(f"asks for the Python object {name!r}")
        return _Global(name)

    def pop(self):
        """Takes the last value."""
        return self._pop_many(1)[0]

    def _pop_many(self, count):
        start = len(self._stack) - count
        if start < (self._marks[-1] if self._marks else 0):
            raise _Refused("takes more values than there are")
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _pop_to_mark(self):
        if not self._marks:
            raise _Refused("takes more values than there are")
        values = self._pop_many(len(self._stack) - self._marks[-1])
        self._marks.pop()
        return values

    def _top(self, kind=object):
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _Refused(f"lacks a {kind.__name__} where it needs one")
        return self._stack[-1]

    def _extend(self, values):
        self._top(list).extend(values)

    def _set_items(self, values):
        target = self._top(dict)
        names = values[::2]
        # Of str only: to hash nested tuples may take forever.
        if len(values) % 2 or any(type(name) is not str for name in names):
            raise _Refused("has a dict with names that are no str")
        target.update(zip(names, values[1::2], strict=True))


def _storage(values):
    """Of ("storage", type, key, device, number of elements[, view])."""
    if type(values) is not tuple or len(values) not in (5, 6):
        raise _Refused("has a storage that is described in another way")
    kind, storage_type, key, _, num_elements, *view = values
    if (
        kind != "storage"
        or type(storage_type) is not _Global
        or storage_type.name not in _DTYPES
        or type(key) is not str
        or not _is_count(num_elements)
    ):
        raise _Refused("has a storage that is described in another way")
    if view not in ([], [None]):
        raise _Refused("has a storage that is part of another")
    return _Storage(key, _DTYPES[storage_type.name], num_elements)


def _rebuilt(function, arguments):
    """What a call that is allowed would have returned."""
    name = function.name if type(function) is _Global else None
    if type(arguments) is tuple:
        if name == _ORDERED_DICT and not arguments:
            return {}
        if name == _REBUILD_TENSOR:
            return _tensor(arguments)
        # A tensor, whether it is trained, hooks.
        if name == _REBUILD_PARAMETER and len(arguments) == 3:
            return arguments[0]
    raise _Refused("calls something in an unexpected way")


def _tensor(arguments):
    """Of (storage, offset, shape, strides, is trained, hooks[, more])."""
    if len(arguments) not in (6, 7):
        raise _Refused("has a tensor that is described in another way")
    storage, offset, shape, strides, _, _, *more = arguments
    if (
        type(storage) is not _Storage
        or not _is_count(offset)
        or not _are_counts(shape)
        or not _are_counts(strides)
        or len(shape) != len(strides)
        or len(shape) > _MAX_DIMENSIONS
        # That it is conjugate or negative.
        or any(more)
    ):
        raise _Refused("has a tensor that is described in another way")
    # What a dimension of one steps by means nothing.
    strides = tuple(
        stride if length > 1 else 0
        for length, stride in zip(shape, strides, strict=True)
    )
    tensor = _Tensor(storage, offset, shape, strides)
    num_elements = math.prod(shape)
    if not num_elements:
        if math.prod(length or 1 for length in shape) > _MAX_EMPTY:
            raise _Refused("has an empty tensor of an impossible shape")
    elif offset + tensor.extent > storage.num_elements:
        raise _Refused("has a tensor that goes beyond its storage")
    elif num_elements > storage.num_elements:
        # Expanded: a small file would become a large array.
        raise _Refused("has a tensor that is larger than its storage")
    return tensor


def _is_count(value):
    return type(value) is int and value >= 0


def _are_counts(values):
    return type(values) is tuple and all(map(_is_count, values))
