"""Gradients on either backend, and what they are compared with."""

import keras
import numpy as np


def gradient(function, values):
    """d sum(function(values)) / d values.

    Args:
        function: function of what `values` is, that gives a tensor.
        values: float array, or a dict of them.

    Returns:
        float array, or a dict of them.
    """
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, values)
    if keras.backend.backend() == "jax":
        import jax

        def total(tensors):
            with keras.StatelessScope():
                return keras.ops.sum(function(tensors))

        found = jax.grad(total)(tensors)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = tf.reduce_sum(function(tensors))
        found = tape.gradient(total, tensors)
    return keras.tree.map_structure(np.asarray, found)


def differences(function, array, step=1e-5):
    """The gradient by central differences, in float64."""
    array = array.astype("float64")
    found = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * step
            found[place] += sign * function(moved) / (2 * step)
    return found
