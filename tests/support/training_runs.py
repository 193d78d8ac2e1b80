"""Training that ends in its midst, and what it has moved."""

import os
import shlex
import signal
import subprocess
import sys

import keras
import numpy as np


class Stop(keras.callbacks.Callback):
    """Ends a run after so many steps of it.

    Args:
        after: int.
        kill: bool. Whether with SIGKILL; else as Ctrl-C does. Defaults to
            `False`.
    """

    def __init__(self, after, *, kill=False):
        super().__init__()
        self._left = after
        self._kill = kill

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if self._left:
            return
        if self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyboardInterrupt


class Steps(keras.callbacks.Callback):
    """Counts the steps of a run: `count`."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1


def run_and_kill(code):
    """Code in a process of its own, in which a `Stop(..., kill=True)` is."""
    imported = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from training_runs import Stop\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", imported + code],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def run_without_tensorflow(operation):
    """Its command with the packages of a JAX machine: keras, keras-hub, jax."""
    arguments = shlex.split(operation.command_line())[1:]
    code = f"""
import sys
for name in ("tensorflow", "tensorflow_text", "tf_keras"):
    sys.modules[name] = None
from realm_tf import cli
sys.exit(cli.main({arguments!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert done.returncode == 0, done.stderr[-2000:]


def moved(before, after):
    """Paths of the variables that are not the same in two models."""
    before, after = values(before), values(after)
    assert before.keys() == after.keys()
    return {
        path
        for path, value in before.items()
        if not np.array_equal(value, after[path])
    }


def values(model):
    """Path to value of its variables, less the random states."""
    return {
        v.path: keras.ops.convert_to_numpy(v)
        for v in model.variables
        if "seed_generator" not in v.path
    }
