"""Gradients on either backend."""

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
