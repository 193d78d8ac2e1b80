"""Files as torch.save writes them, put together from pickle's opcodes."""

import struct
import zipfile

import numpy as np

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}


# Opcodes, as torch.save has them written by pickle's protocol 2.


def text(value):
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value):
    if 0 <= value < 256:
        return b"K%c" % value
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    encoded = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a%c" % len(encoded) + encoded


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def global_name(module, name):
    return f"c{module}\n{name}\n".encode()


ORDERED_DICT = global_name("collections", "OrderedDict") + b")R"


def storage(key, num_elements, *, kind="FloatStorage", view=b""):
    return b"".join(
        [
            b"(" + text("storage") + global_name("torch", kind) + text(key),
            text("cpu") + number(num_elements) + view + b"tQ",
        ]
    )


def tensor(storage, *, shape, strides, offset=0, more=b""):
    return b"".join(
        [
            global_name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage,
            number(offset) + numbers(shape) + numbers(strides),
            b"\x89" + ORDERED_DICT + more + b"tR",
        ]
    )


def state_dict(tensors):
    items = (text(name) + value for name, value in tensors.items())
    return b"\x80\x02}(" + b"".join(items) + b"u."


VECTOR = tensor(storage("0", 4), shape=[4], strides=[1])
VECTOR_DATA = np.arange(4, dtype="<f4")


# Files.


def write_zip(path, pickled, storages):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data.tobytes())
        archive.writestr("archive/version", b"3\n")
    return str(path)


def save(path, arrays):
    """As torch.save: views of one array share its storage."""
    storages, tensors = {}, {}
    for name, array in arrays.items():
        base = array
        while base.base is not None:
            base = base.base
        storages[str(id(base))] = base
        described = storage(
            str(id(base)), base.size, kind=STORAGES[base.dtype.name]
        )
        itemsize = array.itemsize
        tensors[name] = tensor(
            described,
            shape=array.shape,
            strides=[step // itemsize for step in array.strides],
            offset=(array.ctypes.data - base.ctypes.data) // itemsize,
        )
    return write_zip(path, state_dict(tensors), storages)
