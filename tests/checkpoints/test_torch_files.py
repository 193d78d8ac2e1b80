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
from torch_writer import ORDERED_DICT
from torch_writer import STORAGES
from torch_writer import VECTOR
from torch_writer import VECTOR_DATA
from torch_writer import global_name
from torch_writer import number
from torch_writer import parameter
from torch_writer import save
from torch_writer import state_dict
from torch_writer import storage
from torch_writer import tensor
from torch_writer import text
from torch_writer import write_zip

from realm_tf.checkpoints.torch_files import open_torch_file
from realm_tf.errors import InputError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def write_vector(path, pickled):
    """A file with any pickle, and the storage of four numbers."""
    return write_zip(path, pickled, {"0": VECTOR_DATA})


def assert_refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        open_torch_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path} ")
    assert "\n" not in message
    assert len(message) < len(path) + 500


def test_realm_by_transformers():
    file = open_torch_file(
        GOLDEN / "hf_realm" / "encoder" / "pytorch_model.bin"
    )
    with np.load(GOLDEN / "hf_realm_encoder.npz") as golden:
        weights = {
            key.removeprefix("weights/"): golden[key]
            for key in golden
            if key.startswith("weights/")
        }
    positions = "realm.embeddings.position_embeddings.weight"
    assert file.shape(positions) == (512, 32)
    for name, expected in weights.items():
        rows = len(expected) if name == positions else None
        np.testing.assert_array_equal(file.read(name, limit=rows), expected)
    tied = {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }
    assert set(file.names()) == {*weights, *tied}
    # As the modules were defined, not by their names.
    assert file.names()[0] == "realm.embeddings.word_embeddings.weight"


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
        "rows": matrix[1:4],
        "part": matrix[1:4, 2:9:3],
        "column": matrix[:, 3],
        "transposed": matrix.T,
        "permuted": cube.transpose(2, 0, 1),
        "single": cube[1:2, :, 2:3],
        "number": np.array(3.5, "float32"),
        "empty": np.zeros((0, 7), "float32"),
        "other": np.arange(6, dtype="int64").reshape(2, 3),
    }


@pytest.mark.parametrize("wrap", [parameter, lambda tensor: tensor])
def test_views_of_storages(tmp_path, wrap):
    arrays = views()
    file = open_torch_file(save(tmp_path / "a.bin", arrays, wrap=wrap))
    assert file.names() == list(arrays)
    for name, array in arrays.items():
        assert file.shape(name) == array.shape
        tensor = file.read(name)
        if array.shape:
            for start, limit in [(1, 3), (2, None), (4, 99)]:
                np.testing.assert_array_equal(
                    file.read(name, start, limit), array[start:limit]
                )
        assert tensor.dtype == array.dtype
        np.testing.assert_array_equal(tensor, array, strict=True)


def test_state_of_the_dict_is_ignored(tmp_path):
    # Versions of the modules. Were it followed, the dict would be replaced.
    state = b"}(" + text("_metadata") + ORDERED_DICT
    state += text("__class__") + text("x") + text("items") + b"Nu"
    pickled = b"\x80\x02" + ORDERED_DICT + b"(" + text("a") + VECTOR + b"u"
    pickled += state + b"b."
    file = open_torch_file(write_vector(tmp_path / "a.bin", pickled))
    assert file.names() == ["a"]
    np.testing.assert_array_equal(file.read("a"), VECTOR_DATA)


def test_zip64_and_aligned_data(tmp_path):
    """As of files of more than 4 GB; nothing is read before it is asked for."""
    path = tmp_path / "a.bin"
    contents = {
        "archive/data.pkl": state_dict({"a": VECTOR}),
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
    assert isinstance(tensors.arrays["a"].base, np.memmap)
    np.testing.assert_array_equal(tensors.read("a"), VECTOR_DATA)


# Pickles that do harm.


class Harm:
    """What makes a directory when it is unpickled."""

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
    assert_refused(path, r"Python object 'posix.mkdir'.*Nothing of it was run")
    assert not marker.exists()
    pickle.loads(pickled)
    assert marker.exists()


@pytest.mark.parametrize(
    "opcodes, match",
    [
        (b"c__builtin__\neval\n", "'__builtin__.eval'"),
        (b"ctorch.os\nsystem\n", "'torch.os.system'"),
        (b"c" + b"m" * 5000 + b"\nn\n", "'m{100}'"),
        (b"(S'echo'\niposix\nsystem\n", "'posix.system'"),
        # Calls of what is no function, and with what it does not take.
        (b"ctorch\nFloatStorage\n)R", "unexpected"),
        (b"\x82\x01", "unexpected"),
        (global_name("torch._utils", "_rebuild_tensor_v2") + b")R", "unexpec"),
        # The state of a stand-in itself, which others use after.
        (ORDERED_DICT[:-2] + b"N}" + text("__setitem__") + b"Ns\x86b", "unexp"),
        (b"X\xff\xff\xff\xff", "damaged"),
    ],
)
def test_pickles_that_are_refused(tmp_path, opcodes, match):
    pickled = b"\x80\x02}" + text("a") + opcodes + b"s."
    assert_refused(write_vector(tmp_path / "a.bin", pickled), match)
    # Nothing of it stays for the next file.
    good = write_vector(tmp_path / "b.bin", state_dict({"a": VECTOR}))
    np.testing.assert_array_equal(open_torch_file(good).read("a"), VECTOR_DATA)


@pytest.mark.parametrize(
    "value, match",
    [
        (storage("0", 4), "holds a _Storage"),
        (number(3), "holds a int"),
        (b"}(" + text("b") + VECTOR + b"u", "holds a dict"),
    ],
)
def test_values_that_are_no_tensors(tmp_path, value, match):
    pickled = state_dict({"a": value})
    assert_refused(write_vector(tmp_path / "a.bin", pickled), match)
    whole = b"\x80\x02" + VECTOR + b"."
    path = write_vector(tmp_path / "b.bin", whole)
    assert_refused(path, "holds a _Tensor. .*Expected a dict of tensors")


FOUR = storage("0", 4)


@pytest.mark.parametrize(
    "value",
    [
        tensor(FOUR, shape=[5], strides=[1]),
        tensor(FOUR, shape=[2, 2], strides=[3, 1]),
        tensor(FOUR, shape=[], strides=[], offset=4),
        # Far larger than the file.
        tensor(FOUR, shape=[1 << 60], strides=[0]),
        tensor(FOUR, shape=[4], strides=[1], offset=-1),
        tensor(FOUR, shape=[-4], strides=[1]),
        tensor(FOUR, shape=[4], strides=[1, 1]),
        tensor(
            FOUR, shape=[4], strides=[1], more=b"}" + text("neg") + b"\x88s"
        ),
        tensor(storage("0", 5), shape=[4], strides=[1]),
        tensor(storage("1", 4), shape=[4], strides=[1]),
    ],
)
def test_tensors_that_cannot_be(tmp_path, value):
    pickled = state_dict({"a": value})
    path = write_vector(tmp_path / "a.bin", pickled)
    assert_refused(path, "not in its data|truncated|unexpected pickle")


@pytest.mark.parametrize(
    "described, match",
    [
        (storage("0", 4, view=b"K\x01"), "unexpected pickle"),
        (storage("0", 4, kind="UntypedStorage"), "torch.UntypedStorage"),
        # NumPy would take it for numbers that are addresses of objects.
        (
            storage("0", 4).replace(
                b"ctorch\nFloatStorage", b"ccollections\nOrderedDict"
            ),
            "no known kind",
        ),
    ],
)
def test_storages_that_cannot_be(tmp_path, described, match):
    value = tensor(described, shape=[4], strides=[1])
    pickled = state_dict({"a": value})
    assert_refused(write_vector(tmp_path / "a.bin", pickled), match)


def test_truncated_anywhere(tmp_path):
    pickled = state_dict({"a": VECTOR})
    path = pathlib.Path(write_vector(tmp_path / "a.bin", pickled))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert_refused(str(path), "truncated|no file of torch.save")


def test_other_files(tmp_path):
    path = tmp_path / "a.bin"
    for content in (
        b"",
        b"\x80",
        pickle.dumps({"a": 1}, 2),
        # As torch.save wrote before PyTorch 1.6.
        pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        b"version https://git-lfs.github.com/spec/v1\n",
    ):
        path.write_bytes(content)
        assert_refused(str(path), "is no file of torch.save")
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert_refused(str(path), "damaged or truncated zip")
    assert_refused(str(tmp_path), "cannot be read from .*Is a directory")
    assert_refused(str(tmp_path / "b.bin"), "cannot be read .*: No such file")
    assert_refused("gs://bucket/a.bin", "cannot be read from a local disk")


def test_other_zip_archives(tmp_path):
    path = str(tmp_path / "a.bin")
    pickled = state_dict({"a": VECTOR})
    storages = {"0": VECTOR_DATA}
    write_zip(path, pickled, storages, byteorder=b"big")
    assert_refused(path, "not in little-endian byte order")
    for names in (["data.pkl"], ["a/data.pkl", "b/data.pkl"]):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, pickled)
        assert_refused(path, r"\d entries data.pkl, expected 1")
    large = state_dict({"a": VECTOR, "b" * (1 << 22): VECTOR})
    assert_refused(write_zip(path, large, storages), "more than 4194304")


def test_compressed_zip(tmp_path):
    path = str(tmp_path / "a.bin")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", state_dict({"a": VECTOR}))
        archive.writestr("archive/data/0", VECTOR_DATA.tobytes())
    assert_refused(path, "'archive/data/0' compressed")
