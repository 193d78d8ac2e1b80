"""Keras callbacks of ours."""

import math
import time

import keras

from realm_tf.errors import InputError


class Diverged(InputError):
    """Training cannot go on: a number is not finite."""


class StopAtNonFinite(keras.callbacks.Callback):
    """Stops training at the first loss that is not finite.

    Args:
        first_step: int. Steps done before, by a run that this one goes on
            from. Defaults to `0`.

    Raises:
        Diverged: with the step and the learning rate.
    """

    def __init__(self, *, first_step=0):
        super().__init__()
        self._done = first_step

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        # The mean since the epoch began: one loss is enough.
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            raise Diverged(
                f"The loss of step {self._done} is {loss}, at a learning rate "
                f"of {float(self.model.optimizer.learning_rate):.3g}: the "
                "weights are lost. Train again with a lower one, such as "
                "--set learning_rate=1e-5."
            )


class ProgressLines(keras.callbacks.Callback):
    """Prints a line now and then where no progress bar can be drawn.

    Args:
        num_steps: int. Of the whole run, over all its epochs.
        first_step: int. Steps done before, by a run that this one goes on
            from. Defaults to `0`.
        every_seconds: float. Time between two lines. Defaults to `15.0`.
        clock: function that gives the time in seconds.
    """

    def __init__(
        self,
        num_steps,
        *,
        first_step=0,
        every_seconds=15.0,
        clock=time.monotonic,
    ):
        super().__init__()
        self._num_steps = num_steps
        self._every_seconds = every_seconds
        self._clock = clock
        self._before = first_step
        self._done = first_step
        # The first step is long: it compiles. The estimate starts after it.
        self._first = None
        self._last = None

    def on_train_batch_end(self, batch, logs=None):
        now = self._clock()
        self._done += 1
        if self._first is None:
            self._first = self._last = now
            return
        finished = self._done == self._num_steps
        if now - self._last < self._every_seconds and not finished:
            return
        self._last = now
        seconds = (now - self._first) / (self._done - self._before - 1)
        shown = "  ".join(
            f"{k} {float(v):.3f}" for k, v in (logs or {}).items()
        )
        print(
            f"      step {self._done}/{self._num_steps}, "
            f"{seconds * (self._num_steps - self._done):.0f} s left  {shown}",
            flush=True,
        )
