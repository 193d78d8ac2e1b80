"""Training that goes on, after a kill, as if it had never stopped.

What changes from step to step is written to one file now and then: the
weights, the states of the random generators, the optimizer, the metrics of
the epoch, the number of steps done. The tables of a corpus and the embeddings
of its blocks are not, nor is who teaches (`models.fixed_weight`); whoever swaps these keeps them
(`training.index_versions`). Batches are a function of (epoch, step), so their
place follows from that number. Run again, `fit` goes on from there; on a CPU
the weights at the end are the same to the bit.
"""

import bisect
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable

import keras
import numpy as np

from realm_tf.artifacts import weight_files
from realm_tf.data import feeding
from realm_tf.errors import InputError
from realm_tf.models.fixed_weight import without_given
from realm_tf.training import hosts
from realm_tf.training.callbacks import ProgressLines
from realm_tf.training.callbacks import StopAtNonFinite

STATE = "training_state.npz"
_INFORMATION = "information"
_METRICS = "metrics"


def fit(
    model,
    batches,
    *,
    num_steps: int,
    steps_per_epoch: int | list[int],
    directory: str,
    every_seconds: float = 300.0,
    every_steps: int | None = None,
    parts: dict | None = None,
    callbacks=(),
    feed: Callable = feeding.ahead,
    verbose: int | str = "auto",
) -> list[dict]:
    """`model.fit` that saves its state and starts where it was.

    Keras's `fit` runs once for what is left of an epoch that was broken off,
    once for all whole epochs of one length, once for a last one that is cut
    short.

    Args:
        model: `keras.Model`, compiled, with all its weights made.
        batches: function of (epoch, step) that gives an iterator of batches
            from there on, such as `ExampleBatches.batches`.
        num_steps: int. Of the whole run.
        steps_per_epoch: int, or list of int where epochs differ in length:
            one for each epoch of the run.
        directory: str. Where the state is kept; local. Made if need be, and
            removed by the caller when what comes of the run is safe.
        every_seconds: float. Least time between two savings. Defaults to
            `300.0`.
        every_steps: int. Save after so many steps, whatever the time.
            Defaults to `None`: by time alone.
        parts: dict. Name to each callback that has a state: with
            `get_state()`, which returns a JSON value, and `set_state(value)`,
            called before the first step of a run that goes on.
        callbacks: list of `keras.callbacks.Callback`, which come after these.
        feed: function of `data.feeding` that makes `fit`'s input of a function
            that gives batches. Defaults to `feeding.ahead`.
        verbose: int or str. As `keras.Model.fit`; `"auto"` is a bar on a
            terminal and a line now and then elsewhere. Defaults to `"auto"`.

    Returns:
        list of dict, the metrics of each epoch, those before a kill too.

    Raises:
        InputError: if the saved state is damaged or another model's.
        Diverged: at the first loss that is not finite.
    """
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    os.makedirs(directory, exist_ok=True)
    epochs = _Epochs(steps_per_epoch, num_steps)
    parts = parts or {}
    saver = SaveState(
        os.path.join(directory, STATE),
        epochs=epochs,
        num_steps=num_steps,
        every_seconds=every_seconds,
        every_steps=every_steps,
        parts=parts,
    )
    saver.restore(model)
    if not hosts.is_first():
        verbose = 0
    if saver.done and verbose:
        print(f"      going on after step {saver.done}/{num_steps}", flush=True)
    if verbose == "auto" and not sys.stdout.isatty():
        verbose = 0
        lines = ProgressLines(num_steps, first_step=saver.done)
        callbacks = [*callbacks, lines]
    # The first, so that no other sees a loss that is not finite; the last, so
    # that the others have seen the step that is saved.
    callbacks = [StopAtNonFinite(), *parts.values(), *callbacks, saver]
    while not saver.is_over:
        epoch, step = epochs.locate(saver.done)
        steps, num_epochs = epochs.run_from(epoch, step)
        model.fit(
            feed(functools.partial(batches, epoch, step)),
            initial_epoch=epoch,
            epochs=epoch + num_epochs,
            steps_per_epoch=steps,
            # The batches come shuffled.
            shuffle=False,
            verbose=verbose,
            callbacks=callbacks,
        )
    return saver.history


class _Epochs:
    """Where the epochs of a run begin and end."""

    def __init__(self, steps_per_epoch, num_steps):
        if isinstance(steps_per_epoch, int):
            num_epochs = -(-num_steps // steps_per_epoch)
            steps_per_epoch = [steps_per_epoch] * num_epochs
        # The last one may be cut short.
        self._limits = [
            min(limit, num_steps)
            for limit in itertools.accumulate(steps_per_epoch, initial=0)
        ]

    def locate(self, done):
        """(epoch, step) of the next step."""
        epoch = bisect.bisect_right(self._limits, done) - 1
        return epoch, done - self._limits[epoch]

    def run_from(self, epoch, step):
        """(steps an epoch, epochs) that one `fit` can do from there."""
        lengths = np.diff(self._limits[epoch:]).tolist()
        if step:
            return lengths[0] - step, 1
        same = itertools.takewhile(lambda each: each == lengths[0], lengths)
        return lengths[0], len(list(same))

    def is_end(self, done):
        """Whether an epoch ends after so many steps."""
        return done in self._limits


def state_of(directory: str, part: str):
    """The state of a part that `fit` would go on with.

    Args:
        directory: str. As `fit`.
        part: str. A name in `parts`.

    Returns:
        What the part's `get_state` gave, or `None`: nothing was saved.

    Raises:
        InputError: if the saved state is damaged.
    """
    path = os.path.join(directory, STATE)
    if not os.path.exists(path):
        return None
    (information,) = weight_files.read(path, [_INFORMATION]).values()
    return json.loads(str(information))["parts"].get(part)


class SaveState(keras.callbacks.Callback):
    """The callback of `fit`; see there."""

    def __init__(
        self,
        path,
        *,
        num_steps,
        epochs,
        every_seconds,
        every_steps,
        parts,
    ):
        super().__init__()
        self.path = path
        self.done = 0
        self.is_over = num_steps == 0
        self.history = []
        self._num_steps = num_steps
        self._epochs = epochs
        self._every_seconds = every_seconds
        self._every_steps = every_steps
        self._parts = parts
        self._saved_at = time.monotonic()
        self._saved_after = 0
        self._before_epoch = 0
        # Of an epoch that was broken off: Keras resets them before a step.
        self._metrics = {}

    def on_epoch_begin(self, epoch, logs=None):
        self._before_epoch = self.done
        for name, value in self._metrics.items():
            _variables(self.model)[name].assign(value)
        self._metrics = {}

    def on_train_batch_end(self, batch, logs=None):
        self.done = self._before_epoch + batch + 1
        # The end of an epoch is saved with its metrics, below.
        if self._is_due() and not self._epochs.is_end(self.done):
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        self.history.append({k: float(v) for k, v in (logs or {}).items()})
        self.is_over = self.done == self._num_steps or self.model.stop_training
        if self._is_due() or self.is_over:
            self._save()

    def _is_due(self):
        steps = self.done - self._saved_after
        return bool(self._every_steps and steps >= self._every_steps) or (
            time.monotonic() - self._saved_at >= self._every_seconds
        )

    def _save(self):
        if not hosts.is_first():
            return
        content = {
            name: np.asarray(variable)
            for name, variable in _variables(self.model).items()
        }
        information = {
            "done": self.done,
            "is_over": self.is_over,
            "history": self.history,
            "parts": {k: v.get_state() for k, v in self._parts.items()},
        }
        content[_INFORMATION] = np.array(json.dumps(information))
        weight_files.write(self.path, content)
        self._saved_at = time.monotonic()
        self._saved_after = self.done

    def restore(self, model):
        """Puts model, optimizer and this at the saved state, if there is."""
        if not os.path.exists(self.path):
            return
        arrays = weight_files.read(self.path)
        information = json.loads(str(arrays.pop(_INFORMATION)))
        variables = _variables(model)
        shapes = {name: tuple(v.shape) for name, v in variables.items()}
        if shapes != {name: value.shape for name, value in arrays.items()}:
            raise InputError(
                f"{self.path} is the state of another model: remove it to "
                "train from the start."
            )
        self.done = self._saved_after = information["done"]
        self.is_over = information["is_over"]
        for name, value in arrays.items():
            if not name.startswith(_METRICS):
                variables[name].assign(value)
            elif not self._epochs.is_end(self.done):
                self._metrics[name] = value
        self.history = information["history"]
        for name, part in self._parts.items():
            part.set_state(information["parts"][name])


def _variables(model):
    """Name in the file to variable."""
    groups = {
        # The states of the random generators are among them.
        "model": without_given(model.variables),
        "optimizer": model.optimizer.variables,
        _METRICS: model.metrics_variables,
    }
    return {
        f"{group}/{number}": variable
        for group, variables in groups.items()
        for number, variable in enumerate(variables)
    }
