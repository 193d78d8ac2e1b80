import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from named_weights import save_tf

from realm_tf.checkpoints.tf_checkpoint import find_checkpoints
from realm_tf.checkpoints.tf_checkpoint import open_checkpoint
from realm_tf.errors import InputError

random = np.random.default_rng(0)
TENSORS = {
    "module/bert/kernel": random.normal(size=(7, 3)).astype("float32"),
    "ids": np.arange(20, dtype="int64"),
    "global_step": np.int64(9),
    "empty": np.zeros((0, 4), "float32"),
    "half": random.normal(size=(4, 2)).astype("float16"),
    "words": np.array([b"nile", b"", b"\xff\0"], object),
}
DATA = ".data-00000-of-00001"


@pytest.fixture
def prefix(tmp_path):
    return save_tf(tmp_path / "model.ckpt-7", TENSORS)


def test_tensors_and_rows(prefix):
    bfloat16 = tf.cast([[1.5], [-2.0]], tf.bfloat16)
    save_tf(prefix, {**TENSORS, "bfloat16": bfloat16})
    tensors = open_checkpoint(prefix)
    assert tensors.names() == sorted([*TENSORS, "bfloat16"])
    assert tensors.files == (f"{prefix}{DATA}", f"{prefix}.index")
    for name, expected in TENSORS.items():
        assert tensors.shape(name) == np.shape(expected)
        np.testing.assert_array_equal(tensors.read(name), expected)
        if np.ndim(expected):
            for start, limit in ((1, 3), (2, None), (0, 99), (9, 12)):
                np.testing.assert_array_equal(
                    tensors.read(name, start, limit), expected[start:limit]
                )
    # For which numpy has no type of its own.
    for name in ("half", "bfloat16"):
        assert tensors.read(name).dtype == "float32"
    np.testing.assert_array_equal(tensors.read("bfloat16"), [[1.5], [-2.0]])
    with pytest.raises(InputError, match="model.ckpt-7 lacks the tensor b"):
        tensors.read("b")


def test_rows_in_pieces_read_their_tensor_once(prefix, monkeypatch):
    reader = mock.Mock(wraps=tf.train.load_checkpoint(prefix))
    monkeypatch.setattr(tf.train, "load_checkpoint", lambda prefix: reader)
    tensors = open_checkpoint(prefix)
    for start in range(20):
        assert tensors.read("ids", start, start + 1) == start
    reader.get_tensor.assert_called_once_with("ids")


def test_a_damaged_value_is_found_by_its_checksum(prefix):
    with open(f"{prefix}{DATA}", "r+b") as file:
        content = file.read()
        place = content.index(TENSORS["module/bert/kernel"].tobytes()) + 9
        file.seek(place)
        file.write(bytes([content[place] ^ 4]))
    tensors = open_checkpoint(prefix)
    with pytest.raises(
        InputError, match="the tensor module/bert/kernel cannot"
    ):
        tensors.read("module/bert/kernel")
    np.testing.assert_array_equal(tensors.read("ids"), TENSORS["ids"])


@pytest.mark.parametrize("ending", [".index", DATA])
def test_a_file_cut_short_is_found(prefix, ending):
    os.truncate(prefix + ending, 5)
    with pytest.raises(InputError, match="model.ckpt-7.* is damaged"):
        tensors = open_checkpoint(prefix)
        for name in tensors.names():
            tensors.read(name)


def test_no_checkpoint(tmp_path):
    (tmp_path / "notes").write_text("no checkpoint")
    for name in (tmp_path / "notes", tmp_path / "other", "gs://bucket/m.ckpt"):
        with pytest.raises(
            InputError, match=r"no TensorFlow .*\.index is miss"
        ):
            open_checkpoint(str(name))


def test_checkpoints_are_found_in_subdirectories(tmp_path):
    names = ["a/b/c/d/deep", "bert/bert_model.ckpt", "m/variables/variables"]
    for name in names:
        path = tmp_path / f"{name}.index"
        path.parent.mkdir(parents=True)
        path.touch()
    expected = [str(tmp_path / name) for name in names]
    assert find_checkpoints(str(tmp_path)) == expected
