"""Files as torch.save writes them, byte by byte, and files that do harm.

PyTorch is not installed: two files are its own, the others are put together
from pickle's opcodes. NumPy's own views are what tensors are compared with.
"""

import base64
import os
import pathlib
import pickle
import resource
import struct
import time
import tracemalloc
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest

from realm_tf.checkpoints.torch_files import TorchFile
from realm_tf.errors import InputError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
# torch 2.13.0: torch.save({"a": torch.arange(6.0).reshape(2, 3), "b":
# torch.arange(4).half()}, path, _use_new_zipfile_serialization=False)
LEGACY = zlib.decompress(
    base64.b64decode(
        "eNptUMtKw0AUzautjrbWJ7hzGTelmmoVBItIEQZfdZONhDQdm8iQ6U0mBYVCNi3Wb3Dh0l/z"
        "EwQX3rTUBzgz98Kce+eccyfVngn/fGl+bN2/XW1WUu38Xcc8AMW0y4qi9CIhhSe402dRHIgQ"
        "VGywi1jhgZScOSzsBG4I2pNNEJQPPebEwSOLQR+AYdo5BGNfRBJyVLN1vAWhhDw1bCPjEGEX"
        "CtRIkpmmiqgLqidF5PkVJ5EBj4kTsXYS8I4jWRiLyOnvEtBM0y5k5Njpdhno0yekyYUrb6Yg"
        "AcMuYc+hdbBv1XFX61atBrmJD6+XoI/8hYTCNVWoRvURzFGdqiOYH3s4MmeexIljchl1WMQ6"
        "p4EnCZDtFixIWGxBcWK2DSUfvfgz/TOX333LL/2Vt3b2qjUo+zg+yi5nssYQVqg6hNWxnzGv"
        "SVhvwUb2HbfZd/zjXv2PU2OVvPJ7pceYGngwUozXhvFTPMLKyReXbIHq"
    )
)
STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
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


def parameter(tensor):
    function = global_name("torch._utils", "_rebuild_parameter")
    return function + b"(" + tensor + b"\x88" + ORDERED_DICT + b"tR"


def state_dict(tensors):
    items = (text(name) + value for name, value in tensors.items())
    return b"\x80\x02}(" + b"".join(items) + b"u."


VECTOR = tensor(storage("0", 4), shape=[4], strides=[1])
VECTOR_DATA = np.arange(4, dtype="<f4")


# Files.


def write_zip(path, pickled, storages, byteorder=b"little"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data.tobytes())
        archive.writestr("archive/version", b"3\n")
    return str(path)


def write_legacy(
    path, pickled, storages, *, version=1001, little=True, keys=None
):
    machine = {"protocol_version": 1001, "little_endian": little}
    start = [0x1950A86A20F9469CFC6C, version, machine]
    keys = list(storages) if keys is None else keys
    with open(path, "wb") as file:
        file.writelines(pickle.dumps(value, 2) for value in start)
        file.write(pickled)
        file.write(pickle.dumps(keys, 2))
        for data in storages.values():
            file.write(struct.pack("<q", data.size) + data.tobytes())
    return str(path)


WRITERS = {"zip": write_zip, "legacy": write_legacy}


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


def write_vector(path, kind, pickled):
    """A file with any pickle, and the storage of four numbers."""
    return WRITERS[kind](path, pickled, {"0": VECTOR_DATA})


def save(path, kind, arrays, *, wrap=lambda tensor: tensor):
    """As torch.save: views of one array share its storage."""
    storages, tensors = {}, {}
    for name, array in arrays.items():
        base = array
        while base.base is not None:
            base = base.base
        storages[str(id(base))] = base
        described = storage(
            str(id(base)),
            base.size,
            kind=STORAGES[base.dtype.name],
            view=b"N" if kind == "legacy" else b"",
        )
        itemsize = array.itemsize
        tensors[name] = wrap(
            tensor(
                described,
                shape=array.shape,
                strides=[step // itemsize for step in array.strides],
                offset=(array.ctypes.data - base.ctypes.data) // itemsize,
            )
        )
    return WRITERS[kind](path, state_dict(tensors), storages)


def assert_refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        TorchFile(path)
    message = str(caught.value)
    assert message.startswith(f"{path} ")
    assert "\n" not in message
    assert len(message) < len(path) + 500


# What PyTorch wrote.


def test_realm_by_transformers():
    file = TorchFile(GOLDEN / "hf_realm" / "encoder" / "pytorch_model.bin")
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
        "cls.predictions.decoder.weight": "realm.embeddings.word_embeddings"
        ".weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    assert set(file.names()) == {*weights, *tied}
    for copy, original in tied.items():
        np.testing.assert_array_equal(file.read(copy), weights[original])
    # As the modules were defined, not by their names.
    assert file.names()[0] == "realm.embeddings.word_embeddings.weight"


def test_legacy_by_torch(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(LEGACY)
    file = TorchFile(str(path))
    assert file.names() == ["a", "b"]
    np.testing.assert_array_equal(file.read("a"), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(file.read("b"), [0, 1, 2, 3])
    assert file.read("b").dtype == "float32"


# Tensors.


@pytest.mark.parametrize("dtype", STORAGES)
def test_dtypes(tmp_path, kind, dtype):
    generator = np.random.default_rng(3)
    array = generator.normal(0, 30, (5, 3)).astype(dtype)
    file = TorchFile(save(tmp_path / "a.bin", kind, {"a": array, "b": array.T}))
    halves = ("float16", "bfloat16")
    expected = array.astype("float32") if dtype in halves else array
    assert file.read("a").dtype == expected.dtype
    np.testing.assert_array_equal(file.read("a"), expected)
    np.testing.assert_array_equal(file.read("b"), expected.T)
    assert file.read("b").flags.c_contiguous


def test_special_halves(tmp_path, kind):
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504.0]
    arrays = {
        "float16": np.array(values, "float16"),
        "bfloat16": np.array(values, ml_dtypes.bfloat16),
    }
    file = TorchFile(save(tmp_path / "a.bin", kind, arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(file.read(name), array.astype("float32"))
        assert np.signbit(file.read(name)).tolist()[:4] == [0, 1, 0, 1]


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


def test_views_of_storages(tmp_path, kind):
    arrays = views()
    file = TorchFile(save(tmp_path / "a.bin", kind, arrays))
    assert file.names() == list(arrays)
    for name, array in arrays.items():
        assert file.shape(name) == array.shape
        tensor = file.read(name)
        assert tensor.flags.c_contiguous
        assert tensor.flags.aligned
        assert tensor.dtype == array.dtype
        np.testing.assert_array_equal(tensor, array, strict=True)


def test_rows(tmp_path, kind):
    arrays = views()
    file = TorchFile(save(tmp_path / "a.bin", kind, arrays))
    for name, array in arrays.items():
        if not array.shape:
            continue
        for start, limit in [(1, 3), (0, 1), (2, None), (4, 99), (9, 10)]:
            np.testing.assert_array_equal(
                file.read(name, start, limit), array[start:limit], strict=True
            )


def test_steps_of_single_rows_mean_nothing(tmp_path, kind):
    value = tensor(storage("0", 4), shape=[1, 4], strides=[1 << 70, 1])
    pickled = state_dict({"a": value})
    file = TorchFile(write_vector(tmp_path / "a.bin", kind, pickled))
    np.testing.assert_array_equal(file.read("a"), VECTOR_DATA[None])


def test_parameters(tmp_path, kind):
    array = np.arange(6, dtype="float32").reshape(2, 3)
    path = save(tmp_path / "a.bin", kind, {"a": array}, wrap=parameter)
    np.testing.assert_array_equal(TorchFile(path).read("a"), array)


def test_state_of_the_dict_is_ignored(tmp_path, kind):
    # Versions of the modules. Were it followed, the dict would be replaced.
    state = b"}(" + text("_metadata") + ORDERED_DICT
    state += text("__class__") + text("x") + text("items") + b"Nu"
    pickled = b"\x80\x02" + ORDERED_DICT + b"(" + text("a") + VECTOR + b"u"
    pickled += state + b"b."
    file = TorchFile(write_vector(tmp_path / "a.bin", kind, pickled))
    assert file.names() == ["a"]
    np.testing.assert_array_equal(file.read("a"), VECTOR_DATA)


def test_zip_without_byte_order(tmp_path):
    # Before version 2.1.
    pickled = state_dict({"a": VECTOR})
    path = write_zip(
        tmp_path / "a.bin", pickled, {"0": VECTOR_DATA}, byteorder=None
    )
    np.testing.assert_array_equal(TorchFile(path).read("a"), VECTOR_DATA)


def test_large_tensor_is_read_in_pieces(tmp_path):
    rows, row, width = 13_353_718, 6_000_000, 128
    path = tmp_path / "a.bin"
    described = storage("0", rows * width)
    pickled = state_dict(
        {
            "block_emb": tensor(
                described, shape=[rows, width], strides=[width, 1]
            )
        }
    )
    values = np.random.default_rng(2).normal(size=width).astype("<f4")
    write_sparse(path, pickled, rows * width * 4, row * width * 4, values)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        file = TorchFile(str(path))
        assert file.shape("block_emb") == (rows, width)
        np.testing.assert_array_equal(
            file.read("block_emb", row - 1, row + 2),
            [np.zeros(width), values, np.zeros(width)],
        )
        assert not file.read("block_emb", rows - 1).any()
        assert file.read("block_emb").shape == (rows, width)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
        path.unlink()
    # In KiB.
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 100_000


def write_sparse(path, pickled, size, place, values):
    """A zip64 archive with a storage of zeros, but for `values` in it."""
    entries = [
        ("archive/data.pkl", len(pickled), zlib.crc32(pickled)),
        ("archive/data/0", size, 0),
    ]
    directory = b""
    with open(path, "wb") as file:
        for name, length, crc in entries:
            offset = file.tell()
            # Version 4.5, no flags, stored, no date; the sizes are behind.
            common = struct.pack("<5HI", 45, 0, 0, 0, 0, crc) + b"\xff" * 8
            lengths = struct.pack("<HQQ", 16, length, length)
            extra = b"\x01\x00" + lengths
            # As PyTorch does, so that the data are aligned by 64 bytes.
            start = file.tell() + 30 + len(name) + len(extra) + 4
            extra += b"FB" + struct.pack("<H", -start % 64) + bytes(-start % 64)
            file.write(b"PK\x03\x04" + common)
            file.write(struct.pack("<2H", len(name), len(extra)))
            file.write(name.encode() + extra)
            start = file.tell()
            assert start % 64 == 0
            file.write(pickled if length == len(pickled) else b"")
            file.seek(start + length)
            extra = b"\x01\x00" + struct.pack(
                "<H3Q", 24, length, length, offset
            )
            directory += b"PK\x01\x02" + struct.pack("<H", 45) + common
            directory += struct.pack("<5HI", len(name), len(extra), 0, 0, 0, 0)
            directory += b"\xff" * 4 + name.encode() + extra
        end = file.tell()
        file.write(directory)
        file.write(b"PK\x06\x06" + struct.pack("<Q2H2I", 44, 45, 45, 0, 0))
        file.write(struct.pack("<4Q", 2, 2, len(directory), end))
        locator = struct.pack("<IQI", 0, end + len(directory), 1)
        file.write(b"PK\x06\x07" + locator)
        file.write(b"PK\x05\x06" + b"\xff" * 16 + bytes(2))
        file.seek(start + place)
        file.write(values.tobytes())


def test_unknown_tensor(tmp_path, kind):
    pickled = state_dict({"a": VECTOR})
    file = TorchFile(write_vector(tmp_path / "a.bin", kind, pickled))
    for ask in (file.read, file.shape):
        with pytest.raises(InputError, match="a.bin lacks the tensor b"):
            ask("b")


# Pickles that do harm.


class Harm:
    """What makes a directory when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


class Evaluated(Harm):
    def __reduce__(self):
        return eval, (f"__import__('os').mkdir({self.marker!r})",)


class System(Harm):
    def __reduce__(self):
        return os.system, (f"mkdir {self.marker}",)


@pytest.mark.parametrize("harm", [Harm, Evaluated, System])
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["whole", "value", "name", "metadata"])
def test_nothing_is_run(tmp_path, kind, harm, protocol, place):
    marker = tmp_path / "marker"
    value = {"whole": harm(str(marker)), "value": {"a": harm(str(marker))}}
    value["name"] = {harm(str(marker)): 1}
    value["metadata"] = [{}, {"_metadata": harm(str(marker))}]
    pickled = pickle.dumps(value[place], protocol)
    path = write_vector(tmp_path / "a.bin", kind, pickled)
    match = "Nothing of it was run"
    if protocol == 2:
        match = r"Python object '\w+\.(mkdir|eval|system)'.*Nothing of it"
    assert_refused(path, match)
    assert not marker.exists()
    pickle.loads(pickled)
    assert marker.exists()


def test_first_pickles_are_not_run_either(tmp_path):
    marker = tmp_path / "marker"
    harm = Harm(str(marker))
    path = tmp_path / "a.bin"
    for wrong in [{"version": harm}, {"little": harm}, {"keys": harm}]:
        pickled = state_dict({"a": VECTOR})
        write_legacy(path, pickled, {"0": VECTOR_DATA}, **wrong)
        assert_refused(str(path), "posix.mkdir")
    assert not marker.exists()


@pytest.mark.parametrize(
    "opcodes, match",
    [
        (b"c__builtin__\neval\n", "'__builtin__.eval'"),
        (b"ctorch\nload\n", "'torch.load'"),
        (b"ctorch\n__dict__\n", "'torch.__dict__'"),
        (b"ctorch.os\nsystem\n", "'torch.os.system'"),
        (b"c" + b"m" * 5000 + b"\nn\n", "'m{100}'"),
        (b"(S'echo'\niposix\nsystem\n", "opcode STRING"),
        (b"(iposix\nsystem\n", "opcode INST"),
        (b"(ctorch\nFloatStorage\no", "opcode OBJ"),
        (b"ctorch\nFloatStorage\n)\x81", "opcode NEWOBJ"),
        (b"\x82\x01", "opcode EXT1"),
        (b"Pname\n", "opcode PERSID"),
        (b"\x8c\x01x\x93", "opcode SHORT_BINUNICODE"),
        # Calls of what is no function, and with what it does not take.
        (b"ctorch\nFloatStorage\n)R", "unexpected way"),
        (b"K\x01)R", "unexpected way"),
        (ORDERED_DICT[:-2] + b"]\x85R", "unexpected way"),
        (ORDERED_DICT[:-2] + b"}R", "unexpected way"),
        (global_name("torch._utils", "_rebuild_tensor_v2") + b")R", "another"),
        (global_name("torch._utils", "_rebuild_parameter") + b")R", "unexp"),
        # State of what is no dict.
        (VECTOR + b"}b", "lacks a dict"),
        (ORDERED_DICT[:-2] + b"}b", "lacks a dict"),
        (b"K\x01K\x02a", "lacks a list"),
        (b"K\x01(K\x02K\x02u", "lacks a dict"),
        (b"}(K\x02K\x02u", "names that are no str"),
        (b"}(" + text("a") + b"u", "names that are no str"),
        (b"R", "unexpected way"),
        (b"aa", "lacks a list"),
        (b"0", "opcode POP"),
        (b"(R", "more values than there are"),
        (b"ttt", "more values than there are"),
        (b"h\x63", "memo what is not there"),
        (b"j\xff\xff\xff\xff", "memo what is not there"),
        (b"\x80\x04\x95" + b"\xff" * 8, "opcode FRAME"),
        (b"\x96" + b"\xff" * 8, "opcode BYTEARRAY8"),
        (b"B\xff\xff\xff\xff", "opcode BINBYTES"),
        (b"X\xff\xff\xff\xff", "damaged"),
        (b"\x8b\xff\xff\xff\x7f", "opcode LONG4"),
        (b"\x8a\xff", "damaged"),
        (b"X\x01\x00\x00\x00\xff", "damaged"),
        (b"F1" + b"x" * 5000 + b"\n", "opcode FLOAT"),
        (b"I" + b"9" * 5000 + b"\n", "opcode INT"),
        (rb"S'\h'" + b"\n", "opcode STRING"),
        (b"c\\h\nt\n", r"'\\\\h.t'"),
        (b"cto\\x72ch\nFloatStorage\n", "Storage'"),
        (b"ctorch FloatStorage", "torch.FloatStorages."),
        (b"\xff", "damaged"),
        (b"", "lacks a dict"),
    ],
)
def test_opcodes_that_are_refused(tmp_path, kind, opcodes, match):
    pickled = b"\x80\x02}" + text("a") + opcodes + b"s."
    assert_refused(write_vector(tmp_path / "a.bin", kind, pickled), match)


@pytest.mark.parametrize(
    "opcodes",
    [
        # Into the memo at 2 to the 31, for which an array would be made.
        b"Nr\xff\xff\xff\x7f",
        # A tuple of a tuple of ..., twice each: 2 to the 200 elements.
        b")" + b"q\x00h\x00\x86" * 200,
        b"]" + b"q\x00(h\x00h\x00e" * 200,
        b"(" * 30_000 + b"t" * 30_000,
    ],
    ids=["memo", "tuples", "list of itself", "depth"],
)
@pytest.mark.parametrize("place", ["name", "value", "state", "key"])
def test_small_pickles_of_large_values(tmp_path, kind, opcodes, place):
    pickled = {
        "name": b"}" + opcodes + b"Ns.",
        "value": b"}" + text("a") + opcodes + b"s.",
        "state": b"}" + text("a") + VECTOR + b"s" + opcodes + b"b.",
        "key": b"(" + text("storage") + b"ctorch\nFloatStorage\n" + opcodes,
    }
    pickled["key"] += text("cpu") + b"K\x04tQ."
    path = write_vector(tmp_path / "a.bin", kind, b"\x80\x02" + pickled[place])
    started = time.monotonic()
    tracemalloc.start()
    try:
        if place == "state":
            assert TorchFile(path).names() == ["a"]
        else:
            assert_refused(path, "Nothing of it was run")
        assert tracemalloc.get_traced_memory()[1] < 5e7
    finally:
        tracemalloc.stop()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "value, match",
    [
        (storage("0", 4), "a _Storage by the name 'a'"),
        (number(3), "an? int by the name 'a'"),
        (b"}(" + text("b") + VECTOR + b"u", "a dict by the name 'a'"),
        (ORDERED_DICT[:-2], "a name by the name 'a'"),
        (parameter(number(1)), "an? int by the name 'a'"),
    ],
)
def test_values_that_are_no_tensors(tmp_path, kind, value, match):
    pickled = state_dict({"a": value})
    assert_refused(write_vector(tmp_path / "a.bin", kind, pickled), match)


def test_no_dict(tmp_path, kind):
    for value in (VECTOR, b"]", text("a"), b"N"):
        pickled = b"\x80\x02" + value + b"."
        path = write_vector(tmp_path / "a.bin", kind, pickled)
        assert_refused(path, "holds a.*Expected a dict of tensors")


FOUR = storage("0", 4)


@pytest.mark.parametrize(
    "value, match",
    [
        (tensor(FOUR, shape=[5], strides=[1]), "beyond its storage"),
        (tensor(FOUR, shape=[4], strides=[1], offset=1), "beyond its storage"),
        (tensor(FOUR, shape=[2], strides=[4]), "beyond its storage"),
        (tensor(FOUR, shape=[2, 2], strides=[3, 1]), "beyond its storage"),
        (tensor(FOUR, shape=[], strides=[], offset=4), "beyond its storage"),
        (tensor(FOUR, shape=[4], strides=[1], offset=1 << 70), "beyond"),
        (tensor(FOUR, shape=[2], strides=[1 << 70]), "beyond its storage"),
        (tensor(FOUR, shape=[1 << 60], strides=[0]), "larger than its"),
        (tensor(FOUR, shape=[3, 2], strides=[1, 1]), "larger than its"),
        (tensor(FOUR, shape=[0, 1 << 62, 9], strides=[1, 1, 1]), "impossible"),
        (tensor(FOUR, shape=[4], strides=[1], offset=-1), "another way"),
        (tensor(FOUR, shape=[-4], strides=[1]), "another way"),
        (tensor(FOUR, shape=[4], strides=[-1], offset=3), "another way"),
        (tensor(FOUR, shape=[4], strides=[1, 1]), "another way"),
        (tensor(FOUR, shape=[1] * 65, strides=[1] * 65), "another way"),
        (tensor(FOUR, shape=[4], strides=[1], more=b"}NN"), "another way"),
        (
            tensor(
                FOUR, shape=[4], strides=[1], more=b"}" + text("neg") + b"\x88s"
            ),
            "another way",
        ),
        (tensor(VECTOR, shape=[4], strides=[1]), "another way"),
        (
            tensor(FOUR, shape=[4], strides=[1]).replace(b"(K\x04t", b"\x88"),
            "an",
        ),
        (
            tensor(storage("0", -4), shape=[0], strides=[1]),
            "storage that is described",
        ),
        (
            tensor(storage("0", 4, view=b"NN"), shape=[0], strides=[1]),
            "storage that is described",
        ),
        (
            tensor(storage("0", 4, view=b")"), shape=[0], strides=[1]),
            "part of another",
        ),
        (
            tensor(
                storage("0", 4, kind="UntypedStorage"), shape=[], strides=[]
            ),
            "torch.UntypedStorage",
        ),
    ],
)
def test_tensors_that_cannot_be(tmp_path, kind, value, match):
    pickled = state_dict({"a": value})
    assert_refused(write_vector(tmp_path / "a.bin", kind, pickled), match)


# Damaged files.


@pytest.mark.parametrize("count", [5, 1 << 40, 1 << 64])
def test_storage_is_shorter_than_its_tensor(tmp_path, kind, count):
    value = tensor(storage("0", count), shape=[4], strides=[1])
    path = write_vector(tmp_path / "a.bin", kind, state_dict({"a": value}))
    assert_refused(path, "is truncated|has 4 elements, expected")


def test_storage_is_missing(tmp_path, kind):
    value = tensor(storage("1", 4), shape=[4], strides=[1])
    pickled = state_dict({"a": VECTOR, "b": value})
    path = write_vector(tmp_path / "a.bin", kind, pickled)
    assert_refused(path, "has no data of the tensor 'b'")


def test_truncated_anywhere(tmp_path, kind):
    pickled = state_dict({"a": VECTOR})
    path = pathlib.Path(write_vector(tmp_path / "a.bin", kind, pickled))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert_refused(str(path), "truncated|no file of torch.save|no data of")


def test_damaged_anywhere(tmp_path, kind):
    pickled = state_dict({"a": VECTOR})
    path = pathlib.Path(write_vector(tmp_path / "a.bin", kind, pickled))
    whole = path.read_bytes()
    for place in range(len(whole)):
        for value in (255, whole[place] ^ 1):
            damaged = bytearray(whole)
            damaged[place] = value
            path.write_bytes(damaged)
            try:
                file = TorchFile(str(path))
            except InputError:
                continue
            for name in file.names():
                assert file.read(name).shape == file.shape(name)


def test_other_files(tmp_path):
    path = tmp_path / "a.bin"
    for content in (
        b"",
        b"\x80",
        pickle.dumps({"a": 1}, 2),
        b"version https://git-lfs.github.com/spec/v1\n",
    ):
        path.write_bytes(content)
        assert_refused(str(path), "is no file of torch.save")
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert_refused(str(path), "damaged or truncated zip")
    assert_refused(str(tmp_path), "cannot be read: Is a directory")
    assert_refused(str(tmp_path / "b.bin"), "cannot be read: No such file")
    assert_refused("gs://bucket/a.bin", "copy it to a local disk")


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
    assert_refused(write_zip(path, large, storages), "expected at most 4194304")


@pytest.mark.parametrize("name", ["archive/data.pkl", "archive/data/0"])
def test_compressed_zip(tmp_path, name):
    content = {
        "archive/data.pkl": state_dict({"a": VECTOR}),
        "archive/data/0": VECTOR_DATA.tobytes(),
    }
    path = str(tmp_path / "a.bin")
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in content.items():
            method = zipfile.ZIP_DEFLATED if entry == name else None
            archive.writestr(entry, data, compress_type=method)
    assert_refused(path, f"'{name}' compressed")


def test_damaged_pickle_in_a_zip(tmp_path):
    path = pathlib.Path(tmp_path / "a.bin")
    pickled = state_dict({"name": VECTOR})
    write_zip(path, pickled, {"0": VECTOR_DATA})
    # It would be a tensor by another name.
    path.write_bytes(path.read_bytes().replace(b"name", b"nome"))
    assert_refused(str(path), "damaged or truncated zip")


@pytest.mark.parametrize(
    "wrong, match",
    [
        ({"version": 1000}, "unknown version, expected 1001"),
        ({"version": {"a": 1}}, "unknown version, expected 1001"),
        ({"little": False}, "not in little-endian byte order"),
        ({"little": 1}, "not in little-endian byte order"),
        ({"keys": {"0": 1}}, "no list of storages"),
        ({"keys": [0]}, "no list of storages"),
        ({"keys": []}, "no data of the tensor 'a'"),
        ({"keys": ["1"]}, "data of no tensor"),
        ({"keys": ["0", "0"]}, "a storage has 0 elements, expected 4"),
    ],
)
def test_other_legacy_files(tmp_path, wrong, match):
    pickled = state_dict({"a": VECTOR})
    path = str(tmp_path / "a.bin")
    write_legacy(path, pickled, {"0": VECTOR_DATA}, **wrong)
    assert_refused(path, match)
