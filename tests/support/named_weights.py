"""Synthetic checkpoints in which every number is another, and their check."""

import numpy as np
import tensorflow as tf

from realm_tf.checkpoints.assignment import variables_by_path

# Of a BERT that no published one is, so that no two dimensions are equal but
# those that must be.
HIDDEN, HEADS, INNER, VOCABULARY, POSITIONS = 6, 3, 10, 11, 13

# Our layers below `transformer_layer_N/`.
ATTENTION = tuple(
    f"self_attention_layer/{name}"
    for name in ("query", "key", "value", "attention_output")
)
LAYER = (
    *ATTENTION,
    "self_attention_layer_norm",
    "feedforward_intermediate_dense",
    "feedforward_output_dense",
    "feedforward_layer_norm",
)


def random_arrays(shapes, seed=0):
    """float32 numbers by name, of these shapes."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def save_tf(prefix, arrays):
    """A checkpoint as tf.train.Saver writes them; returns its prefix."""
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )
    return str(prefix)


def weights(model):
    """Values of a model's variables, by path."""
    return {k: np.asarray(v) for k, v in variables_by_path(model).items()}


def assert_filled(model, expected):
    """Every variable has the values of an array, which may be flat."""
    found = weights(model)
    assert set(found) == set(expected)
    for path, value in expected.items():
        np.testing.assert_array_equal(
            found[path], value.reshape(found[path].shape), err_msg=path
        )
