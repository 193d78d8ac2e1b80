"""Code that runs in a process of its own."""

import os
import subprocess
import sys
import textwrap


def run(code, *arguments, **environment):
    """What the code prints; an error of its own fails the test.

    Args:
        code: str. May be indented.
        *arguments: str. Its `sys.argv[1:]`.
        **environment: str. Variables beside those of this process.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
