"""A small model, and tables that fill it or fail to."""

import keras
import numpy as np
import pytest
from named_weights import assert_filled
from named_weights import weights

from realm_tf.checkpoints.assignment import Stored
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.assignment import extract
from realm_tf.errors import InputError

MAPPING = {
    "w": ("dense/kernel", True),
    "b": ("dense/bias", False),
    "table": ("embedding/embeddings", False),
}


@pytest.fixture
def model():
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(5, 3, name="embedding")(inputs)
    x = keras.layers.Dense(2, name="dense")(keras.layers.Dropout(0.1)(x))
    return keras.Model(inputs, x)


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {
        "w": random.normal(size=(2, 3)).astype("float32"),
        "b": random.normal(size=2).astype("float32"),
        "table": random.normal(size=(5, 3)).astype("float32"),
    }


def _assign(model, arrays, mapping=MAPPING):
    assign(model, mapping, Tensors(arrays, "model.npz"))


def test_every_variable_is_filled(model, arrays):
    _assign(model, arrays)
    expected = {
        "dense/kernel": arrays["w"].T,
        "dense/bias": arrays["b"],
        "embedding/embeddings": arrays["table"],
    }
    assert_filled(model, expected)
    # And back.
    for name, value in extract(model, MAPPING).items():
        np.testing.assert_array_equal(value, arrays[name])
    other = keras.models.clone_model(model)
    copy_weights(model, other)
    assert_filled(other, expected)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_floating_point_types_are_converted(model, arrays, dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays["b"] = np.array([1.5, -2.0]).astype(dtype)
    _assign(model, arrays)
    np.testing.assert_array_equal(weights(model)["dense/bias"], [1.5, -2.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"b": None, "table": None},
            "model.npz lacks tensors of the model: b, table.",
        ),
        (
            # As many numbers, in another order.
            {"table": np.zeros((3, 5))},
            "model.npz: table has the shape (3, 5), expected (5, 3).",
        ),
        (
            {"w": np.zeros((3, 2))},
            "model.npz: w has the shape (3, 2), expected (2, 3).",
        ),
    ],
)
def test_nothing_changes_if_one_is_wrong(model, arrays, changes, message):
    before = weights(model)

    def fail(rows):
        raise AssertionError("a tensor was read")

    arrays = {
        name: Stored(value.shape, fail)
        for name, value in {**arrays, **changes}.items()
        if value is not None
    }
    with pytest.raises(InputError) as caught:
        _assign(model, arrays)
    assert str(caught.value) == message
    for path, value in weights(model).items():
        np.testing.assert_array_equal(value, before[path])


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, np.nan]),
        np.array([-np.inf, 1]),
        np.array([1, 2]),
        np.array([b"x", b"y"], dtype=object),
        np.array([True, False]),
    ],
)
def test_what_are_no_numbers_is_refused(model, arrays, value):
    arrays["b"] = value
    with pytest.raises(InputError, match=f"b of type {value.dtype} holds NaN"):
        _assign(model, arrays)


def test_a_table_that_leaves_a_variable_is_a_defect(model, arrays):
    arrays.pop("table")
    mapping = {k: v for k, v in MAPPING.items() if k != "table"}
    with pytest.raises(AssertionError, match="embedding/embeddings"):
        _assign(model, arrays, mapping)
