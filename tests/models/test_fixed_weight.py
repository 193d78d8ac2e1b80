"""Variables over memory that is there already."""

import pathlib

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.artifacts.array_files import mapped_zeros
from realm_tf.models.fixed_weight import fixed_weight
from realm_tf.models.fixed_weight import shared

ROWS = np.arange(24, dtype="float32").reshape(6, 4)

needs_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="memory is shared with TensorFlow only",
)


@pytest.fixture(params=["r", "c"])
def mapped(request, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return np.load(tmp_path / "rows.npy", mmap_mode=request.param)


@pytest.mark.parametrize(
    "view",
    [
        lambda rows: rows,
        lambda rows: rows[1:4],
        lambda rows: rows[::-1],
        lambda rows: rows[:, 1:3],
        lambda rows: rows.T,
        lambda rows: rows.view(np.ndarray),
        lambda rows: np.asarray(rows)[2:],
        lambda rows: rows.view("uint32"),
        lambda rows: rows.astype(ml_dtypes.bfloat16),
        lambda rows: rows[:0],
    ],
)
def test_every_view_of_a_file_has_its_values(mapped, view):
    array = view(mapped)
    weight = fixed_weight(array, "rows")
    assert weight.dtype == array.dtype.name
    assert not weight.trainable
    np.testing.assert_array_equal(np.asarray(weight), view(ROWS))


@needs_tensorflow
def test_mapped_memory_is_not_copied():
    array = mapped_zeros((3, 5), "float32")
    weight = fixed_weight(array, "rows")
    array[2, 4] = 3
    assert np.asarray(weight)[2, 4] == 3
    array = np.zeros((3, 5), "float32")
    weight = fixed_weight(array, "rows")
    array[2, 4] = 3
    assert np.asarray(weight)[2, 4] == 0


def test_a_file_stays_when_the_weight_is_assigned(mapped):
    weight = fixed_weight(mapped, "rows")
    weight.assign(ROWS + 1)
    weight.assign(weight + 1)
    np.testing.assert_array_equal(np.asarray(weight), ROWS + 2)
    np.testing.assert_array_equal(mapped, ROWS)
    np.testing.assert_array_equal(np.load(mapped.filename), ROWS)


@pytest.mark.parametrize("content", [None, b"other"])
def test_a_file_that_is_gone(mapped, content):
    path = pathlib.Path(mapped.filename)
    path.unlink()
    if content:
        path.write_bytes(content)
    np.testing.assert_array_equal(
        np.asarray(fixed_weight(mapped, "rows")), ROWS
    )


@needs_tensorflow
def test_a_file_stays_when_a_weight_is_changed_in_place(mapped):
    weight = fixed_weight(mapped, "rows")
    weight.value.assign_add(np.ones_like(ROWS))
    weight.value[2:4].assign(np.zeros((2, 4), "float32"))
    expected = ROWS + 1
    expected[2:4] = 0
    np.testing.assert_array_equal(np.asarray(weight), expected)
    np.testing.assert_array_equal(np.load(mapped.filename), ROWS)


@needs_tensorflow
def test_some_rows_of_a_file_are_where_it_lies(tmp_path):
    rows = np.arange(160, dtype="float32").reshape(10, 16)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    # 64 bytes a row.
    for view in (mapped[3:7], np.asarray(mapped[2:])[1:5], mapped[1:][2:6]):
        part = shared(view)
        assert tf.is_tensor(part)
        np.testing.assert_array_equal(part, rows[3:7])
    # Elsewhere TensorFlow could not read them.
    assert not tf.is_tensor(shared(mapped[3:7, 1:]))
    assert not tf.is_tensor(shared(mapped.reshape(-1)[8:24]))
