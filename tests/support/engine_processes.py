"""Processes that run pipelines for a test, with their output in files."""

import contextlib
import os
import subprocess
import sys


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

        def start(name, module, *arguments):
            log = stack.enter_context(open(root / f"{name}.log", "wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
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
