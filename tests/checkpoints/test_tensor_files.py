"""Files as torch.save writes them, byte by byte, and files that do harm.

PyTorch is not installed: one file is its own, the others are put together
from pickle's opcodes. NumPy's own views are what tensors are compared with.
"""

import os
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from torch_writer import ORDERED_DICT
from torch_writer import STORAGES
from torch_writer import VECTOR
from torch_writer import VECTOR_DATA
from torch_writer import global_name
from torch_writer import number
from torch_writer import save
from torch_writer import state_dict
from torch_writer import storage
from torch_writer import tensor
from torch_writer import text
from torch_writer import write_zip

from realm_tf.checkpoints.tensor_files import open_directory
from realm_tf.checkpoints.tensor_files import open_torch_file
from realm_tf.errors import InputError

REBUILD = global_name("torch._utils", "_rebuild_tensor_v2")
FOUR = storage("0", 4)


def write_vector(path, pickled):
    """A file with any pickle, and the storage of four numbers."""
    return write_zip(path, pickled, {"0": VECTOR_DATA})


def assert_refused(path, match=None):
    with pytest.raises(InputError, match=match) as caught:
        open_torch_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is missing, damaged, or no dict of ten")
    assert "\n" not in message
    assert len(message) < len(path) + 500


@pytest.mark.parametrize("dtype", STORAGES)
def test_dtypes(tmp_path, dtype):
    generator = np.random.default_rng(3)
    array = generator.normal(0, 30, (5, 3)).astype(dtype)
    file = open_torch_file(save(tmp_path / "a.bin", {"a": array, "b": array.T}))
    halves = ("float16", "bfloat16")
    expected = array.astype("float32") if dtype in halves else array
    assert file.read("a").dtype == expected.dtype
    np.testing.assert_array_equal(file.read("a"), expected)
    np.testing.assert_array_equal(file.read("b"), expected.T)


def views():
    base = np.arange(60, dtype="float32")
    matrix, cube = base.reshape(5, 12), base.reshape(3, 4, 5)
    return {
        "matrix": matrix,
        "tied": matrix,
        "part": matrix[1:4, 2:9:3],
        "column": matrix[:, 3],
        "permuted": cube.transpose(2, 0, 1),
        "single": cube[1:2, :, 2:3],
        "number": np.array(3.5, "float32"),
        "empty": np.zeros((0, 7), "float32"),
        "other": np.arange(6, dtype="int64").reshape(2, 3),
    }


def test_views_of_storages(tmp_path):
    arrays = views()
    file = open_torch_file(save(tmp_path / "a.bin", arrays))
    assert file.names() == list(arrays)
    for name, array in arrays.items():
        assert file.shape(name) == array.shape
        np.testing.assert_array_equal(file.read(name), array, strict=True)
        if array.shape:
            for start, limit in [(1, 3), (2, None), (4, 99)]:
                np.testing.assert_array_equal(
                    file.read(name, start, limit), array[start:limit]
                )


def test_zip64_and_aligned_data(tmp_path):
    """As of files of more than 4 GB; nothing is read before it is asked for."""
    path = str(tmp_path / "a.bin")
    # With versions of the modules as the state of the dict.
    state = b"}" + text("_metadata") + ORDERED_DICT + b"s"
    pickled = b"\x80\x02" + ORDERED_DICT + b"(" + text("a") + VECTOR + b"u"
    contents = {
        "archive/data.pkl": pickled + state + b"b.",
        "archive/data/0": VECTOR_DATA.tobytes(),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name)
            # PyTorch aligns data by such a field.
            entry.extra = b"FB" + struct.pack("<H", 9) + bytes(9)
            with archive.open(entry, "w", force_zip64=True) as file:
                file.write(content)
    tensors = open_torch_file(path)
    base = tensors.arrays["a"]
    while type(base.base) is np.ndarray:
        base = base.base
    assert isinstance(base.base, np.memmap)
    np.testing.assert_array_equal(tensors.read("a"), VECTOR_DATA)


# Pickles that do harm.


class Harm:
    """Makes a directory when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("place", ["whole", "value", "name", "metadata"])
def test_nothing_is_run(tmp_path, protocol, place):
    marker = tmp_path / "marker"
    harm = Harm(str(marker))
    value = {
        "whole": harm,
        "value": {"a": harm},
        "name": {harm: 1},
        "metadata": [{}, {"_metadata": harm}],
    }[place]
    pickled = pickle.dumps(value, protocol)
    path = write_vector(tmp_path / "a.bin", pickled)
    assert_refused(path, r"Python object posix.mkdir.*Nothing in it was exec")
    assert not marker.exists()
    pickle.loads(pickled)
    assert marker.exists()


@pytest.mark.parametrize(
    "value",
    [
        b"c__builtin__\neval\n",
        b"ctorch.os\nsystem\n",
        b"c" + b"m" * 5000 + b"\nn\n",
        b"(S'echo'\niposix\nsystem\n",
        # Calls of what is no function, and with what it does not take.
        b"ctorch\nFloatStorage\n)R",
        b"\x82\x01",
        REBUILD + b")R",
        # Attributes of what is called, which other files use after.
        REBUILD + b"N}" + text("__defaults__") + number(3) + b"s\x86b",
        ORDERED_DICT[:-2] + b"N}" + text("__setitem__") + b"Ns\x86b",
        b"X\xff\xff\xff\xff",
        # Values that are no tensors.
        FOUR[:-1],
        number(3),
        b"}(" + text("b") + VECTOR + b"u",
        # Tensors that are not in their storages.
        tensor(FOUR, shape=[5], strides=[1]),
        tensor(FOUR, shape=[2, 2], strides=[3, 1]),
        tensor(FOUR, shape=[], strides=[], offset=4),
        tensor(FOUR, shape=[4], strides=[1], offset=-1),
        tensor(FOUR, shape=[-4], strides=[1]),
        tensor(FOUR, shape=[4], strides=[1, 1]),
        # One that is negative, as its metadata say.
        tensor(
            FOUR, shape=[4], strides=[1], more=b"}" + text("neg") + b"\x88s"
        ),
        # Storages that are not in the archive, or of no known kind.
        tensor(storage("0", 5), shape=[4], strides=[1]),
        tensor(storage("1", 4), shape=[4], strides=[1]),
        tensor(storage("0", 4, view=b"K\x01"), shape=[4], strides=[1]),
        tensor(storage("0", 4, kind="UntypedStorage"), shape=[4], strides=[1]),
        # NumPy would take the numbers for addresses of objects.
        tensor(
            FOUR.replace(b"ctorch\nFloatStorage", b"ccollections\nOrderedDict"),
            shape=[4],
            strides=[1],
        ),
    ],
)
def test_values_that_are_refused(tmp_path, value):
    pickled = state_dict({"a": value})
    assert_refused(write_vector(tmp_path / "a.bin", pickled))
    # Nothing of it stays for the next file.
    good = write_vector(tmp_path / "b.bin", state_dict({"a": VECTOR}))
    np.testing.assert_array_equal(open_torch_file(good).read("a"), VECTOR_DATA)


def test_truncated_anywhere(tmp_path):
    pickled = state_dict({"a": VECTOR})
    path = pathlib.Path(write_vector(tmp_path / "a.bin", pickled))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert_refused(str(path))


def test_other_files(tmp_path):
    path = tmp_path / "a.bin"
    for content in (
        # As torch.save wrote before PyTorch 1.6.
        pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        b"version https://git-lfs.github.com/spec/v1\n",
        b"PK\x03\x04" + bytes(100),
    ):
        path.write_bytes(content)
        assert_refused(str(path), "BadZipFile.*Get it again")
    write_vector(path, b"\x80\x02" + VECTOR + b".")
    assert_refused(str(path))
    for names in (["data.pkl"], ["a/data.pkl", "b/data.pkl"]):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, state_dict({"a": VECTOR}))
        assert_refused(str(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", state_dict({"a": VECTOR}))
        archive.writestr("archive/data/0", VECTOR_DATA.tobytes())
    assert_refused(str(path), "compressed")
    assert_refused(str(tmp_path), "Is a directory")
    assert_refused(str(tmp_path / "b.bin"), "No such file")


def test_safetensors_are_preferred(tmp_path):
    with pytest.raises(InputError, match="holds no weights: expected model.s"):
        open_directory(str(tmp_path))
    save(tmp_path / "pytorch_model.bin", {"a": np.zeros(2, "float32")})
    assert open_directory(str(tmp_path)).names() == ["a"]
    arrays = {"b": np.arange(3.0)}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    assert open_directory(str(tmp_path)).names() == ["b"]
