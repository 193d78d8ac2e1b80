"""Code that runs on eight forced host devices, in a process of its own."""

import python_code

_XLA_FLAGS = "--xla_force_host_platform_device_count=8"


def run(code, *arguments):
    """What the code prints, on JAX; see `python_code.run`."""
    jax = {"KERAS_BACKEND": "jax", "XLA_FLAGS": _XLA_FLAGS}
    return python_code.run(code, *arguments, **jax)
