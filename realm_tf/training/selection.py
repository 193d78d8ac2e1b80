"""The best weights of a run, by examples that it does not learn from."""

import os
from collections.abc import Callable

import keras

from realm_tf.artifacts.paths import remove
from realm_tf.training.training_log import steps_done

_WEIGHTS = "best_{step}.weights.h5"


class SelectBest(keras.callbacks.Callback):
    """Measures after some steps, keeps the best weights, stops in time.

    The metrics join the logs of the interval in which they are measured. The
    weights of the best step are in a file, not in memory; `restore_best` loads
    them. Of equal steps the earlier one is best. `keras.callbacks`'
    ModelCheckpoint and EarlyStopping do not resume: as one of the `parts` of
    `training.resume`, this callback goes on after a kill.

    Args:
        evaluate: function without arguments that returns a dict of float. It
            leaves the model, its metrics apart, as it is.
        weights: `keras.Model`. The weights to keep; may be a part of the
            trained model.
        directory: str. Where the files go; local.
        at: iterable of int. Steps after which it measures, at the end of their
            interval; 0: before the first step.
        metric: str. A key of what `evaluate` returns; the highest is best.
        patience: int. Stop after so many measurements in a row that are no
            better. Defaults to `0`: never.

    Attributes:
        measured: list of dict. `step` and the metrics of each measurement.
    """

    def __init__(
        self,
        evaluate: Callable[[], dict],
        weights: keras.Model,
        directory: str,
        *,
        at,
        metric: str,
        patience: int = 0,
    ):
        super().__init__()
        self._evaluate = evaluate
        self._weights = weights
        self._directory = directory
        self._at = sorted(at)
        self._metric = metric
        self._patience = patience
        self.measured = []

    def get_state(self):
        """The state that `training.resume` keeps."""
        return self.measured

    def set_state(self, state):
        """Takes up the state of `get_state`."""
        self.measured = list(state)

    def on_train_begin(self, logs=None):
        if not self.measured and 0 in self._at:
            self._measure(0)

    def on_epoch_end(self, epoch, logs=None):
        # On JAX the model's variables are elsewhere while `fit` runs, until
        # Keras is asked for it.
        model = self.model
        step = steps_done(model)
        last = self.measured[-1]["step"] if self.measured else -1
        if not any(last < each <= step for each in self._at):
            return
        found = self._measure(step)
        if logs is not None:
            logs.update(found)
        since_best = self.measured[::-1].index(self._bests()[-1])
        if 0 < self._patience <= since_best:
            model.stop_training = True

    def _measure(self, step):
        found = {name: float(v) for name, v in self._evaluate().items()}
        self.measured.append({"step": step, **found})
        bests = self._bests()
        if bests[-1]["step"] == step:
            os.makedirs(self._directory, exist_ok=True)
            self._weights.save_weights(self._path(step))
            # The file before stays: a kill may come before the state is saved
            # that names the new one.
            for before in bests[:-2]:
                remove(self._path(before["step"]))
        return found

    def _bests(self):
        """The measurements that were better than all before."""
        bests = []
        for each in self.measured:
            if not bests or each[self._metric] > bests[-1][self._metric]:
                bests.append(each)
        return bests

    def restore_best(self) -> dict:
        """Loads the best weights.

        Returns:
            dict, for metadata: `best_step`, and `best`, what was measured
            there.
        """
        step = self._bests()[-1]["step"]
        self._weights.load_weights(self._path(step))
        found = self._bests()[-1]
        return {
            "best_step": found["step"],
            "best": {n: v for n, v in found.items() if n != "step"},
        }

    def _path(self, step):
        return os.path.join(self._directory, _WEIGHTS.format(step=step))
