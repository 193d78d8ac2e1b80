"""Training that ends in its midst, and what it has moved."""

import shlex

import keras
import numpy as np
import python_code

# What a training leaves of itself.
FILES = (
    *("COMPLETED", "README.md", "config.json", "log.jsonl", "metadata.json"),
    *("model.weights.h5", "vocab.txt"),
)


class Stop(keras.callbacks.Callback):
    """Ends a run after so many steps of it, as Ctrl-C does.

    Args:
        after: int.
    """

    def __init__(self, after):
        super().__init__()
        self._left = after

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


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
    python_code.run(code, KERAS_BACKEND="jax")


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
