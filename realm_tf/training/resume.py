"""Training that continues after a kill as if it had never stopped.

A state holds everything that changes from step to step: the weights, the
states of the random generators, the optimizer, and the state of callbacks. It
does not hold the tables of a corpus, the embeddings of its blocks or the
teachers (`models.fixed_weight`); whoever swaps these keeps them
(`training.index_refresh`). Batches are a function of the step, so the number
of steps done gives their place. On a CPU a resumed run has the same weights at
its end to the bit.

`keras.callbacks.BackupAndRestore` does less: it keeps neither the random
generators of dropout nor the state of other callbacks, writes the corpus'
tables too, and a kill while it writes damages its file.
"""

import collections
import contextlib
import contextvars
import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from collections.abc import Sequence

import keras
import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.data import feeding
from realm_tf.errors import InputError
from realm_tf.models.fixed_weight import without_given
from realm_tf.progress import Progress
from realm_tf.training import hosts
from realm_tf.training.training_log import COUNTERS
from realm_tf.training.training_log import TrainingLog
from realm_tf.training.training_log import steps_done

STATE = "training_state.npz"
_INFORMATION = "information"


# What happens after each state that was saved.
_also = contextvars.ContextVar("also", default=lambda: None)


@contextlib.contextmanager
def also_saving(save: Callable[[], None]):
    """Calls a function whenever `fit` has saved a state in the block."""
    token = _also.set(save)
    try:
        yield
    finally:
        _also.reset(token)


class Diverged(InputError):
    """Training cannot go on: a number is not finite."""


def fit(
    model,
    batches,
    *,
    epoch_ends: Sequence[int],
    log_every: int,
    directory: str,
    log: str | None = None,
    tensorboard: str | None = None,
    every_seconds: float = 300.0,
    parts: dict | None = None,
    callbacks=(),
    feed: Callable = feeding.ahead,
    verbose: int | str = "auto",
) -> list[dict]:
    """`model.fit` that saves its state and starts where it was.

    An epoch of Keras is here an interval of `log_every` steps, the last one of
    a pass over the data perhaps shorter. Keras' metrics are means over it,
    callbacks see its end, and only there a state is saved.

    Args:
        model: `keras.Model`, compiled, with all its weights made.
        batches: function of the number of steps done that gives an iterator of
            the batches from there on, such as `ExampleBatches.batches`.
        epoch_ends: sequence of int. Steps after which a pass over the data
            ends, and with it an interval; the last is the end of the run.
        log_every: int. Steps of one interval.
        directory: str. Where the state is kept; local. Made if need be, and
            removed by the caller when the result of the run is safe.
        log: str. The file of `TrainingLog`. Defaults to `None`.
        tensorboard: str. Directory of `keras.callbacks.TensorBoard`, where
            the number of the interval is the step. Defaults to `None`.
        every_seconds: float. Least time between two states. Defaults to
            `300.0`.
        parts: dict. Name to each callback that has a state: with
            `get_state()`, which returns a JSON value, and `set_state(value)`,
            called before the first step of a resumed run.
        callbacks: list of `keras.callbacks.Callback`, which come after these.
        feed: function of `data.feeding` that makes `fit`'s input of a function
            that gives batches. Defaults to `feeding.ahead`.
        verbose: int or str. 0: no progress is shown. Defaults to `"auto"`.

    Returns:
        list of dict, the mean metrics of each pass, over its steps.

    Raises:
        InputError: if the saved state is damaged or another model's.
        Diverged: at the first loss that is not finite.
    """
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    os.makedirs(directory, exist_ok=True)
    num_steps = epoch_ends[-1]
    parts = parts or {}
    saver = SaveState(
        os.path.join(directory, STATE),
        num_steps=num_steps,
        every_seconds=every_seconds,
        parts=parts,
    )
    saver.restore(model)
    training_log = TrainingLog(log, done=steps_done(model))
    last = [training_log, saver]
    if tensorboard:
        last.insert(1, _tensorboard(tensorboard))
    with contextlib.ExitStack() as stack:
        if verbose and hosts.is_first():
            done = steps_done(model)
            progress = Progress("train", "steps", num_steps, before=done)
            last.insert(1, ShowProgress(stack.enter_context(progress), done))
        # The first stops before another sees a loss that is not finite; at the
        # last, the others have seen the step that is saved.
        callbacks = [StopAtNonFinite(), *parts.values(), *callbacks, *last]
        while not saver.is_over:
            done = steps_done(model)
            left = next(end for end in epoch_ends if end > done) - done
            interval, first = min(log_every, left), len(training_log.lines)
            model.fit(
                feed(functools.partial(batches, done)),
                initial_epoch=first,
                epochs=first + left // interval,
                steps_per_epoch=interval,
                # The batches come shuffled.
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
    return _history(training_log.lines, epoch_ends)


def _history(lines, epoch_ends):
    """The means of each pass, over its intervals by their steps."""
    history = []
    for first, end in itertools.pairwise([0, *epoch_ends]):
        sums = collections.defaultdict(lambda: np.zeros(2))
        for line in lines:
            if first < line["step"] <= end:
                for name in line.keys() - set(COUNTERS):
                    if line[name] is not None:
                        sums[name] += line["steps"] * np.array([line[name], 1])
        if sums:
            history.append(
                {n: float(total / steps) for n, (total, steps) in sums.items()}
            )
    return history


def state_of(directory: str, part: str):
    """The state of a part that `fit` would continue with.

    Args:
        directory: str. As `fit`.
        part: str. A name in `parts`.

    Returns:
        The value of the part's `get_state`, or `None`: nothing was saved.

    Raises:
        InputError: if the saved state is damaged.
    """
    path = os.path.join(directory, STATE)
    if not os.path.exists(path):
        return None
    (information,) = array_files.read_arrays(path, [_INFORMATION]).values()
    return json.loads(str(information))["parts"].get(part)


class SaveState(keras.callbacks.Callback):
    """Saves and restores the state of `fit`; see there."""

    def __init__(self, path, *, num_steps, every_seconds, parts):
        super().__init__()
        self.path = path
        self.is_over = num_steps == 0
        self._num_steps = num_steps
        self._every_seconds = every_seconds
        self._parts = parts
        self._saved_at = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        is_last = steps_done(self.model) == self._num_steps
        self.is_over = is_last or self.model.stop_training
        is_due = time.monotonic() - self._saved_at >= self._every_seconds
        if (is_due or self.is_over) and hosts.is_first():
            self._save()

    def _save(self):
        content = {
            name: np.asarray(variable)
            for name, variable in _variables(self.model).items()
        }
        information = {
            "is_over": self.is_over,
            "parts": {k: v.get_state() for k, v in self._parts.items()},
        }
        content[_INFORMATION] = np.array(json.dumps(information))
        array_files.write_arrays(self.path, content)
        _also.get()()
        self._saved_at = time.monotonic()

    def restore(self, model):
        """Sets model, optimizer and parts to the saved state, if there is."""
        if not os.path.exists(self.path):
            return
        arrays = array_files.read_arrays(self.path)
        information = json.loads(str(arrays.pop(_INFORMATION)))
        variables = _variables(model)
        shapes = {name: tuple(v.shape) for name, v in variables.items()}
        if shapes != {name: value.shape for name, value in arrays.items()}:
            raise InputError(
                f"{self.path} is the state of another model: remove it to "
                "train from the start."
            )
        for name, value in arrays.items():
            variables[name].assign(value)
        self.is_over = information["is_over"]
        for name, part in self._parts.items():
            part.set_state(information["parts"][name])


class StopAtNonFinite(keras.callbacks.Callback):
    """Stops training at the first loss that is not finite.

    `keras.callbacks.TerminateOnNaN` either ends the run as if it were complete
    or raises a bare RuntimeError.

    Raises:
        Diverged: with the step and the learning rate.
    """

    def on_train_batch_end(self, batch, logs=None):
        # The mean since the interval began: one loss is enough.
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            rate = float(self.model.optimizer.learning_rate)
            raise Diverged(
                f"The loss of step {steps_done(self.model)} is {loss}, at a "
                f"learning rate of {rate:.3g}: the weights are lost. Train "
                "again with a lower one, such as --set learning_rate=1e-5."
            )


class ShowProgress(keras.callbacks.Callback):
    """Shows the steps done, the time left and the metrics.

    Args:
        progress: `Progress`.
        done: int. Steps of the restored state.
    """

    def __init__(self, progress, done):
        super().__init__()
        self._progress = progress
        self._done = done

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        shown = [f"{k} {float(v):.3f}" for k, v in (logs or {}).items()]
        self._progress(self._done, *shown)


def _tensorboard(directory):
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        # TensorFlow must not take the memory of a GPU on which JAX trains. If
        # it is in use already, it has taken it.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], "GPU")
    return keras.callbacks.TensorBoard(directory, write_graph=False)


def _variables(model):
    """Name in the file to variable."""
    groups = {
        # The states of the random generators are among them.
        "model": without_given(model.variables),
        "optimizer": model.optimizer.variables,
    }
    return {
        f"{group}/{number}": variable
        for group, variables in groups.items()
        for number, variable in enumerate(variables)
    }
