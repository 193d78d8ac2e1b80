"""What JAX computes on."""

import functools


@functools.cache
def accelerator() -> str | None:
    """`"gpu"` or `"tpu"` with Keras' JAX backend on one, else `None`."""
    import keras

    if keras.backend.backend() != "jax":
        return None
    import jax

    platform = jax.devices()[0].platform
    return None if platform == "cpu" else platform
