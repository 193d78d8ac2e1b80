"""A small model, and tables that fill it or fail to."""

import keras
import numpy as np
import pytest
from named_weights import assert_filled
from named_weights import weights

from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.assignment import expand
from realm_tf.errors import InputError

MAPPING = {
    "w": ("dense/kernel", "transpose"),
    "b": ("dense/bias", "as"),
    "table": ("embedding/embeddings", "as"),
}


class Recording(Tensors):
    """Counts what is read."""

    def read(self, name):
        READ.append(name)
        return super().read(name)


READ = []


@pytest.fixture
def model():
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(5, 3, name="embedding")(inputs)
    x = keras.layers.Dense(2, name="dense")(keras.layers.Dropout(0.1)(x))
    READ.clear()
    return keras.Model(inputs, x)


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {
        "w": random.normal(size=(2, 3)).astype("float32"),
        "b": random.normal(size=2).astype("float32"),
        "table": random.normal(size=(5, 3)).astype("float32"),
    }


def _assign(model, arrays, mapping=MAPPING, ignored=None):
    return assign(
        model,
        mapping,
        Recording(arrays, "model.npz"),
        what="a test",
        ignored=ignored,
    )


def test_every_variable_is_filled(model, arrays):
    assert _assign(model, arrays) == {}
    assert_filled(
        model,
        {
            "dense/kernel": arrays["w"].T,
            "dense/bias": arrays["b"],
            "embedding/embeddings": arrays["table"],
        },
    )


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_floating_point_types_are_converted(model, arrays, dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays["b"] = np.array([1.5, -2.0]).astype(dtype)
    _assign(model, arrays)
    np.testing.assert_array_equal(weights(model)["dense/bias"], [1.5, -2.0])


def test_what_is_ignored_is_returned_with_its_reason(model, arrays):
    arrays["step"] = np.array(3)
    arrays["old"] = np.array(["text"])
    ignored = {
        "step": "counts",
        "old": "of no use",
        "absent": "not there",
        # The table has it, so it is read all the same.
        "b": "mapped",
    }
    assert _assign(model, arrays, ignored=ignored) == {
        "old": "of no use",
        "step": "counts",
    }
    assert sorted(READ) == ["b", "table", "w"]
    np.testing.assert_array_equal(weights(model)["dense/bias"], arrays["b"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": None}, "model.npz lacks the tensor b of a test."),
        (
            {"b": None, "table": None},
            "model.npz lacks the tensors b, table of a test.",
        ),
        (
            {"adapter": np.zeros(2)},
            "model.npz has tensors that no part of a test takes: adapter.",
        ),
        (
            {f"more{i}": np.zeros(2) for i in range(7)},
            "model.npz has tensors that no part of a test takes: more0, more1, "
            "more2, more3, more4 and 2 more.",
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
        (
            {"b": np.zeros((2, 1))},
            "model.npz: b has the shape (2, 1), expected (2,).",
        ),
    ],
)
def test_nothing_changes_if_names_or_shapes_are_wrong(
    model, arrays, changes, message
):
    before = weights(model)
    arrays = {
        name: value
        for name, value in {**arrays, **changes}.items()
        if value is not None
    }
    with pytest.raises(InputError) as caught:
        _assign(model, arrays)
    assert str(caught.value) == message
    assert not READ
    for path, value in weights(model).items():
        np.testing.assert_array_equal(value, before[path])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["w", "b", "table"])
def test_numbers_that_are_none_are_refused(model, arrays, name, value):
    arrays[name][-1] = value
    with pytest.raises(
        InputError, match=f"model.npz: {name} holds NaN or infinity"
    ):
        _assign(model, arrays)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array([1, 2]), "int64"),
        (np.array([b"x", b"y"], dtype=object), "object"),
        (np.array([True, False]), "bool"),
    ],
)
def test_other_types_are_refused(model, arrays, value, dtype):
    arrays["b"] = value
    with pytest.raises(InputError, match=f"b is of type {dtype}, expected"):
        _assign(model, arrays)


def test_a_table_that_leaves_a_variable_is_a_defect(model, arrays):
    arrays.pop("table")
    mapping = {k: v for k, v in MAPPING.items() if k != "table"}
    with pytest.raises(AssertionError, match="embedding/embeddings"):
        _assign(model, arrays, mapping)


def test_attention_heads_are_a_dimension_of_their_own():
    layer = keras.layers.MultiHeadAttention(3, 2, name="attention")
    inputs = keras.Input((4, 6))
    model = keras.Model(inputs, layer(inputs, inputs))
    random = np.random.default_rng(0)
    arrays = {
        f"{name}/{kind}": random.normal(size=shape).astype("float32")
        for name in ("query", "key", "value", "attention_output")
        for kind, shape in (("kernel", (6, 6)), ("bias", (6,)))
    }
    mapping = {name: (f"attention/{name}", "as") for name in arrays}
    _assign(model, arrays, mapping)
    values = weights(model)
    for name in ("query", "key", "value"):
        # Column 2 * h + d is dimension d of head h.
        for head in range(3):
            columns = slice(2 * head, 2 * head + 2)
            np.testing.assert_array_equal(
                values[f"attention/{name}/kernel"][:, head],
                arrays[f"{name}/kernel"][:, columns],
            )
            np.testing.assert_array_equal(
                values[f"attention/{name}/bias"][head],
                arrays[f"{name}/bias"][columns],
            )
            np.testing.assert_array_equal(
                values["attention/attention_output/kernel"][head],
                arrays["attention_output/kernel"][columns],
            )
    arrays["key/bias"] = np.zeros((3, 2), "float32")
    with pytest.raises(InputError, match=r"key/bias has the shape \(3, 2\)"):
        _assign(model, arrays, mapping)


def test_a_table_of_layers_becomes_a_mapping():
    layers = {
        "token_embedding": "words",
        "layer_{i}/dense": "{i}.fc",
        "layer_{i}/layer_norm": "{i}.ln",
    }
    endings = {
        **dict.fromkeys(("embeddings", "kernel", "gamma"), ".w"),
        **dict.fromkeys(("bias", "beta"), ".b"),
    }
    mapping = {"words.w": ("token_embedding/embeddings", "as")}
    for i in (0, 1):
        mapping |= {
            f"{i}.fc.w": (f"layer_{i}/dense/kernel", "transpose"),
            f"{i}.fc.b": (f"layer_{i}/dense/bias", "as"),
            f"{i}.ln.w": (f"layer_{i}/layer_norm/gamma", "as"),
            f"{i}.ln.b": (f"layer_{i}/layer_norm/beta", "as"),
        }
    assert expand(layers, 2, endings=endings, kernel="transpose") == mapping
