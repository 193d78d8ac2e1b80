"""Code that runs on eight forced host devices, in a process of its own."""

import os
import subprocess
import sys
import textwrap

_XLA_FLAGS = "--xla_force_host_platform_device_count=8"


def run(code, *arguments, xla_flags=""):
    """What the code prints, on JAX; an error of its own fails the test.

    Args:
        code: str. May be indented.
        *arguments: str. Its `sys.argv[1:]`.
        xla_flags: str. More of them. Defaults to none.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "XLA_FLAGS": f"{_XLA_FLAGS} {xla_flags}",
        },
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
