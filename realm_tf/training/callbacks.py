"""Keras callbacks of ours."""

import math

import keras

from realm_tf.data import feeding
from realm_tf.errors import InputError
from realm_tf.progress import Progress


class Diverged(InputError):
    """Training cannot go on: a number is not finite."""


class StopAtNonFinite(keras.callbacks.Callback):
    """Stops training at the first loss that is not finite.

    Raises:
        Diverged: with the step and the learning rate.
    """

    def on_train_batch_end(self, batch, logs=None):
        # The mean since the epoch began: one loss is enough.
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            optimizer = self.model.optimizer
            raise Diverged(
                f"The loss of step {feeding.steps_done(optimizer)} is {loss}, at a "
                f"learning rate of {float(optimizer.learning_rate):.3g}: the "
                "weights are lost. Train again with a lower one, such as "
                "--set learning_rate=1e-5."
            )


class ProgressLines(keras.callbacks.Callback):
    """Prints a line now and then where no progress bar can be drawn.

    Args:
        num_steps: int. Of the whole run, over all its epochs.
        first_step: int. Steps done before, by a run that this one goes on
            from. Defaults to `0`.
    """

    def __init__(self, num_steps, *, first_step=0):
        super().__init__()
        self._num_steps = num_steps
        self._done = first_step
        self._progress = None

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        if self._progress is None:
            # The first step is long: it compiles. The estimate starts after.
            self._progress = Progress(
                "train", "steps", self._num_steps, before=self._done
            )
        elif self._progress.is_due():
            shown = [f"{k} {float(v):.3f}" for k, v in (logs or {}).items()]
            self._progress.show(self._done, *shown)
