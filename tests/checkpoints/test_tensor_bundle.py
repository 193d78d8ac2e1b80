"""Checkpoints written by TensorFlow, by hand, and damaged."""

import os
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from realm_tf.checkpoints import tensor_bundle
from realm_tf.checkpoints.tensor_bundle import TensorBundle
from realm_tf.checkpoints.tensor_bundle import find_checkpoints
from realm_tf.errors import InputError

RANDOM = np.random.default_rng(0)
TENSORS = {
    "module/bert/kernel": RANDOM.normal(size=(7, 4)).astype("float32"),
    "module/bert/kernel/adam_m": RANDOM.normal(size=(7, 4)).astype("float32"),
    "a": RANDOM.normal(size=(3, 2, 5)),
    "global_step": np.array(12345, "int64"),
    "ids": RANDOM.integers(0, 99, size=11).astype("int32"),
    "half": np.array([[1.5, -2.0], [0.25, 3.0], [8.0, 9.0]], "float16"),
    "empty": np.zeros((0, 3), "float32"),
    "größe": np.arange(4, dtype="float32"),
}
BFLOAT16 = np.array([[1.0, -0.5], [2.5, 3.0]], "float32")
WORDS = [b"cat", b"", b"a longer word"]


def _save(prefix, tensors):
    os.makedirs(os.path.dirname(prefix), exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return prefix


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    return _save(
        str(tmp_path_factory.mktemp("checkpoint") / "model.ckpt-7"),
        {
            **TENSORS,
            "bfloat16": tf.constant(BFLOAT16, tf.bfloat16),
            "words": tf.constant(WORDS),
        },
    )


@pytest.fixture
def copied(prefix, tmp_path):
    """A checkpoint that a test may damage."""
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(prefix + suffix, tmp_path / f"model.ckpt{suffix}")
    return str(tmp_path / "model.ckpt")


def test_names_and_shapes(prefix):
    bundle = TensorBundle(prefix)
    assert bundle.source == prefix
    assert bundle.names() == sorted([*TENSORS, "bfloat16", "words"])
    for name, value in TENSORS.items():
        assert bundle.shape(name) == value.shape
    assert bundle.shape("bfloat16") == (2, 2)
    assert bundle.shape("words") == (3,)


@pytest.mark.parametrize("mapped_bytes", [1 << 30, -1])
def test_whole_tensors(prefix, monkeypatch, mapped_bytes):
    monkeypatch.setattr(tensor_bundle, "_MAPPED_BYTES", mapped_bytes)
    bundle = TensorBundle(prefix)
    for name, value in TENSORS.items():
        if mapped_bytes < 0 and not value.shape:
            continue
        found = bundle.read(name)
        expected = "float32" if name == "half" else value.dtype
        assert found.dtype == expected
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, value)
    found = bundle.read("bfloat16")
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, BFLOAT16)
    assert bundle.read("words").tolist() == WORDS


@pytest.mark.parametrize(
    ("start", "limit"),
    [
        (0, 2),
        (1, 2),
        (1, None),
        (2, 100),
        (-1, None),
        (2, 2),
        (2, 1),
        (50, 60),
    ],
)
def test_rows_are_those_of_a_slice(prefix, start, limit):
    bundle = TensorBundle(prefix)
    for name in ("module/bert/kernel", "a", "ids", "half", "empty", "größe"):
        found = bundle.read(name, start, limit)
        np.testing.assert_array_equal(found, TENSORS[name][start:limit])
        assert found.shape == TENSORS[name][start:limit].shape
    np.testing.assert_array_equal(
        bundle.read("bfloat16", start, limit), BFLOAT16[start:limit]
    )
    assert bundle.read("words", start, limit).tolist() == WORDS[start:limit]


def test_a_saver_of_tf1_writes_the_same(tmp_path):
    random = np.random.default_rng(1)
    expected = {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in (("module/w", (20, 3)), ("block_emb", (9, 2))):
            expected[name] = random.normal(size=shape).astype("float32")
            tf.compat.v1.get_variable(
                name, initializer=tf.constant(expected[name])
            )
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(sharded=True)
        prefix = saver.save(session, str(tmp_path / "m"), global_step=5)
    assert find_checkpoints(tmp_path) == [prefix]
    bundle = TensorBundle(prefix)
    assert bundle.names() == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(bundle.read(name), value)
        np.testing.assert_array_equal(bundle.read(name, 3, 5), value[3:5])


def test_many_tensors_over_many_blocks_and_shards(tmp_path):
    # The index has a block for each 256 KiB.
    long = "x" * 400
    tensors = {
        f"scope{i % 7}/{long}/{i}": np.array([i, -i], "float32")
        for i in range(2000)
    }
    names = list(tensors)
    parts = [
        _save(str(tmp_path / f"part{k}"), {n: tensors[n] for n in names[k::3]})
        for k in range(3)
    ]
    prefix = str(tmp_path / "merged" / "variables")
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix
    )
    assert os.path.exists(f"{prefix}.data-00002-of-00003")
    # Names share their beginnings, which are left out but for the restarts.
    bundle = TensorBundle(prefix)
    assert bundle.names() == sorted(names)
    for name in names[:20] + names[-20:]:
        np.testing.assert_array_equal(bundle.read(name), tensors[name])
        np.testing.assert_array_equal(bundle.read(name, 1), tensors[name][1:])
    os.remove(f"{prefix}.data-00001-of-00003")
    with pytest.raises(InputError, match="data-00001-of-00003 is missing"):
        TensorBundle(prefix)


@pytest.mark.parametrize("axis", [0, 1])
def test_partitioned_tensors_are_one(tmp_path, axis):
    value = np.random.default_rng(2).normal(size=(5, 3)).astype("float32")
    prefix = str(tmp_path / "m.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["embeddings", "embeddings", "other"],
        shape_and_slices=[
            *(["5 3 0,2:-", "5 3 2,3:-"], ["5 3 -:0,2", "5 3 -:2,1"])[axis],
            "",
        ],
        tensors=[*np.split(value, [2], axis), np.ones(2, "float32")],
    )
    bundle = TensorBundle(prefix)
    assert bundle.names() == ["embeddings", "other"]
    assert bundle.shape("embeddings") == (5, 3)
    np.testing.assert_array_equal(bundle.read("embeddings"), value)
    np.testing.assert_array_equal(bundle.read("embeddings", 1, 4), value[1:4])


# An independent writer of an index. RFC 3720's checksum, bit by bit.


def _crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        for bit in range(8):
            odd = (crc ^ (byte >> bit)) & 1
            crc = (crc >> 1) ^ (0x82F63B78 * odd)
    return crc ^ 0xFFFFFFFF


def _varint(value):
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])


def _with_trailer(content, kind=0):
    content += bytes([kind])
    crc = _crc32c(content)
    rotated = (crc >> 15) | ((crc & 0x7FFF) << 17)
    return content + ((rotated + 0xA282EAD8) % 2**32).to_bytes(4, "little")


def _block(pairs):
    """Every other key leaves out what it shares with the one before."""
    content, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(pairs):
        shared = len(os.path.commonprefix([last, key])) if i % 2 else 0
        if not i % 2:
            restarts.append(len(content))
        content += _varint(shared) + _varint(len(key) - shared)
        content += _varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    for number in [*restarts, len(restarts)]:
        content += number.to_bytes(4, "little")
    return content


def _write_index(path, values, *, block_length=2, kind=0):
    pairs, content, index = sorted(values.items()), b"", []

    def add(block):
        nonlocal content
        handle = _varint(len(content)) + _varint(len(block))
        content += _with_trailer(block, kind)
        return handle

    for start in range(0, len(pairs), block_length):
        chosen = pairs[start : start + block_length]
        index.append((chosen[-1][0], add(_block(chosen))))
    footer = add(_block([])) + add(_block(index))
    content += footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
    with open(path, "wb") as file:
        file.write(content)


def _header(num_shards=1, **kwargs):
    header = tensor_bundle_pb2.BundleHeaderProto(
        num_shards=num_shards, **kwargs
    )
    header.version.producer = 1
    return header.SerializeToString()


def _entry(shape, offset, size, dtype=tf.float32, **kwargs):
    entry = tensor_bundle_pb2.BundleEntryProto(
        dtype=dtype.as_datatype_enum, offset=offset, size=size, **kwargs
    )
    for dimension in shape:
        entry.shape.dim.add(size=dimension)
    return entry.SerializeToString()


def test_rows_of_the_papers_block_embeddings(tmp_path):
    prefix = str(tmp_path / "encoded.ckpt")
    # TF1 does not align tensors.
    shape, before = (13353718, 128), 3
    size = 4 * shape[0] * shape[1]
    _write_index(
        f"{prefix}.index",
        {
            b"": _header(),
            b"block_emb": _entry(shape, before, size),
            b"block_embedder_step": _entry((), 0, 3, tf.string),
            b"global_step": _entry((), before + size, 8, tf.int64),
        },
    )
    middle, last = 7654321, shape[0] - 1
    random = np.random.default_rng(3)
    rows = random.normal(size=(3, 128)).astype("float32")
    end = random.normal(size=128).astype("float32")
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.truncate(before + size + 8)
        file.seek(before + 512 * middle)
        file.write(rows.tobytes())
        file.seek(before + 512 * last)
        file.write(end.tobytes())
    # TensorFlow takes what the writer above wrote.
    assert ("block_emb", list(shape)) in tf.train.list_variables(prefix)

    peak = _peak_bytes()
    bundle = TensorBundle(prefix)
    assert bundle.shape("block_emb") == shape
    found = bundle.read("block_emb", middle - 1, middle + 4)
    zeros = np.zeros((1, 128))
    np.testing.assert_array_equal(found, np.concatenate([zeros, rows, zeros]))
    np.testing.assert_array_equal(bundle.read("block_emb", last)[0], end)
    # Read whole, it is mapped too.
    whole = bundle.read("block_emb")
    assert whole.shape == shape
    np.testing.assert_array_equal(whole[middle : middle + 3], rows)
    assert _peak_bytes() - peak < 1e8
    os.remove(f"{prefix}.data-00000-of-00001")


def _peak_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_missing_shard_is_named(copied):
    os.remove(f"{copied}.data-00000-of-00001")
    with pytest.raises(
        InputError, match=r"model\.ckpt\.data-00000-of-00001 is missing"
    ):
        TensorBundle(copied)


@pytest.mark.parametrize("missing", [1, 100, None])
def test_a_data_file_cut_short_is_named(copied, missing):
    path = f"{copied}.data-00000-of-00001"
    os.truncate(path, os.path.getsize(path) - missing if missing else 0)
    with pytest.raises(
        InputError, match=r"model\.ckpt\.data-00000-of-00001 is damaged"
    ):
        TensorBundle(copied)


def test_a_damaged_value_is_found_by_its_checksum(copied):
    bundle = TensorBundle(copied)
    path = f"{copied}.data-00000-of-00001"
    with open(path, "rb") as file:
        content = file.read()
    place = content.index(TENSORS["module/bert/kernel"].tobytes())
    with open(path, "r+b") as file:
        file.seek(place + 9)
        file.write(bytes([content[place + 9] ^ 4]))
    with pytest.raises(
        InputError, match="damaged: the tensor module/bert/kernel cannot"
    ):
        bundle.read("module/bert/kernel")
    np.testing.assert_array_equal(bundle.read("a"), TENSORS["a"])


def test_every_damaged_byte_of_the_index_is_found(copied):
    path = f"{copied}.index"
    with open(path, "rb") as file:
        content = file.read()
    # But for the zeros that pad the footer before its last eight bytes.
    padded = len(content) - 8
    end = len(content[:padded].rstrip(b"\0"))
    for place in (
        *range(0, end - 10, 7),
        *range(end - 10, end),
        *range(padded, len(content)),
    ):
        damaged = bytearray(content)
        damaged[place] ^= 0x11
        with open(path, "wb") as file:
            file.write(damaged)
        with pytest.raises(InputError, match=r"model\.ckpt\.index is damaged"):
            TensorBundle(copied)


@pytest.mark.parametrize("length", [0, 5, 47, 100, -1])
def test_an_index_cut_short_is_found(copied, length):
    path = f"{copied}.index"
    os.truncate(path, length % os.path.getsize(path))
    with pytest.raises(InputError, match=r"model\.ckpt\.index is damaged"):
        TensorBundle(copied)


def test_a_compressed_index_is_refused(tmp_path):
    prefix = str(tmp_path / "m")
    _write_index(f"{prefix}.index", {b"": _header()}, kind=1)
    with pytest.raises(
        InputError, match=r"m\.index is damaged or no .*: it is compressed"
    ):
        TensorBundle(prefix)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({b"x": _entry((2,), 0, 8)}, "m.index .*it has no header"),
        ({b"": b"\xff\xff"}, "m.index is damaged"),
        ({b"": _header(), b"x": b"\x07"}, "m.index is damaged"),
        ({b"": _header(), b"\xff": _entry((2,), 0, 8)}, "is no name"),
        ({b"": _header(endianness=1)}, "big-endian"),
        # Its shape asks for 12 bytes.
        ({b"": _header(), b"x": _entry((3,), 0, 8)}, "'x' should be 8 bytes"),
        ({b"": _header(), b"x": _entry((2,), 9, 8)}, "from byte 9"),
        ({b"": _header(), b"x": _entry((2,), -8, 8)}, "from byte -8"),
        ({b"": _header(), b"x": _entry((-2,), 0, 8)}, "'x' should be"),
        (
            {b"": _header(), b"x": _entry((2,), 0, 8, shard_id=4)},
            "data-00004-of-00001",
        ),
    ],
)
def test_an_index_that_makes_no_sense_is_refused(tmp_path, values, message):
    prefix = str(tmp_path / "m")
    _write_index(f"{prefix}.index", values)
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.write(bytes(16))
    with pytest.raises(InputError, match=message):
        TensorBundle(prefix)


def test_v1_checkpoints_are_called_so(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("w", initializer=tf.ones((2, 2)))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(
            write_version=tf.compat.v1.train.SaverDef.V1
        )
        prefix = saver.save(session, str(tmp_path / "old.ckpt"))
    with pytest.raises(InputError, match="old.ckpt is a .* V1 format"):
        TensorBundle(prefix)


def test_other_prefixes_are_refused(copied, tmp_path):
    for suffix in (".index", ".data-00000-of-00001"):
        with pytest.raises(InputError) as caught:
            TensorBundle(copied + suffix)
        assert str(caught.value).endswith(f"of all of them: {copied}")
    with pytest.raises(InputError, match=r"other\.index is missing"):
        TensorBundle(str(tmp_path / "other"))
    (tmp_path / "notes").write_text("no checkpoint")
    with pytest.raises(InputError, match=r"notes\.index is missing"):
        TensorBundle(str(tmp_path / "notes"))
    with pytest.raises(InputError, match="not on a local disk"):
        TensorBundle("gs://bucket/model.ckpt")
    with pytest.raises(InputError, match="for a pattern"):
        TensorBundle(str(tmp_path / "model[1]"))


def test_a_path_may_have_blanks_and_accents(prefix, tmp_path):
    directory = tmp_path / "modèle (1)"
    directory.mkdir()
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(prefix + suffix, directory / f"m{suffix}")
    bundle = TensorBundle(directory / "m")
    np.testing.assert_array_equal(bundle.read("a"), TENSORS["a"])


def test_an_unknown_tensor_is_named(prefix):
    bundle = TensorBundle(prefix)
    with pytest.raises(InputError, match="model.ckpt-7 has no tensor b"):
        bundle.read("b")
    with pytest.raises(InputError, match="model.ckpt-7 has no tensor b"):
        bundle.shape("b")


def _touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _found(root):
    return [os.path.relpath(p, root) for p in find_checkpoints(str(root))]


def test_checkpoints_are_found_in_subdirectories(tmp_path):
    _touch(
        tmp_path,
        "bert/bert_model.ckpt.index",
        "embedder/encoded/encoded.ckpt.index",
        "embedder/variables/variables.index",
        "a/b/c/d/deep.index",
        "a/b/c/d/e/deeper.index",
        "bert/vocab.txt",
        # Saving was interrupted.
        "bert/model.ckpt-3_temp_0a1b/part-00000-of-00001.index",
    )
    assert _found(tmp_path) == [
        "a/b/c/d/deep",
        "bert/bert_model.ckpt",
        "embedder/encoded/encoded.ckpt",
        "embedder/variables/variables",
    ]


def test_only_the_last_step_is_found(tmp_path):
    _touch(
        tmp_path,
        "model.ckpt-99.index",
        "model.ckpt-200.index",
        "model.ckpt-100.index",
        "other-5.index",
        "other.index",
        "nested/model.ckpt-7.index",
    )
    last = ["model.ckpt-200", "nested/model.ckpt-7", "other", "other-5"]
    assert _found(tmp_path) == last
    # Of the machine that wrote it.
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/tmp/elsewhere/model.ckpt-100"\n'
        'all_model_checkpoint_paths: "/tmp/elsewhere/model.ckpt-99"\n'
    )
    assert _found(tmp_path) == ["model.ckpt-100", *last[1:]]
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-99"\n'
    )
    assert _found(tmp_path) == ["model.ckpt-99", *last[1:]]
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-300"\n'
    )
    assert _found(tmp_path) == last


def test_no_directory_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no directory .*nowhere"):
        find_checkpoints(str(tmp_path / "nowhere"))
    assert find_checkpoints(str(tmp_path)) == []
