"""Processes that run pipelines for a test, with their output in files."""

import contextlib
import glob
import os
import socket
import subprocess
import sys

import pytest


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody accepts connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def prism() -> str:
    """Beam's portable runner; skips the test where there is none."""
    cache = os.path.expanduser("~/.apache_beam/cache/prism/bin/*prism*")
    found = [os.environ.get("REALM_PRISM", ""), *sorted(glob.glob(cache))]
    for path in found:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    pytest.skip("Prism is not here: REALM_PRISM names no program of Beam 2.77")


@contextlib.contextmanager
def starting(root):
    """Yields a function that starts a module of Python; all end at the end.

    Args:
        root: path. A directory for `NAME.log`.
    """
    bin_directory = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        # A worker pool starts workers by the name `python`.
        "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with contextlib.ExitStack() as stack:

        def start(name, *arguments, program=None, within=()):
            log = stack.enter_context(open(root / f"{name}.log", "wb"))
            command = [program] if program else [sys.executable, "-m"]
            process = subprocess.Popen(
                [*within, *command, *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=root,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start
