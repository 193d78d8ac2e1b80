"""Code that runs on eight forced host devices, in a process of its own."""

import python_code

_XLA_FLAGS = "--xla_force_host_platform_device_count="


def run(code, *arguments, number=8):
    """What the code prints, on JAX; see `python_code.run`."""
    jax = {"KERAS_BACKEND": "jax", "XLA_FLAGS": f"{_XLA_FLAGS}{number}"}
    return python_code.run(code, *arguments, **jax)
