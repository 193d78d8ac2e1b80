"""The best epoch of a run, by questions that it does not learn from."""

import os

import keras

from realm_tf.artifacts.paths import remove

_WEIGHTS = "best_{epoch}.weights.h5"


class SelectBest(keras.callbacks.Callback):
    """Measures after each epoch, keeps the best weights, stops in time.

    What it measured is in the epoch's logs, and so in `History`, with `dev_`
    before each name. The weights of the best epoch are in a file, not in
    memory; `restore_best` loads them. Equal epochs: the earlier one.

    As one of the `parts` of `training.resume`, it goes on after a kill.

    Args:
        evaluate: function without arguments that returns a dict of float.
        weights: `keras.Model`. What is kept; it may be a part of the trained
            model.
        directory: str. Where its files go; local.
        metric: str. A key of what `evaluate` returns; the highest is best.
        patience: int. Stop after so many epochs in a row that are no better.
            Defaults to `0`: never.
    """

    def __init__(
        self,
        evaluate,
        weights: keras.Model,
        directory: str,
        *,
        metric: str,
        patience: int = 0,
    ):
        super().__init__()
        self._evaluate = evaluate
        self._weights = weights
        self._directory = directory
        self._metric = metric
        self._patience = patience
        # The last is the best; its forerunner's file stays, for a kill may
        # come before the state is saved that knows of a new one.
        self.best_epochs = []
        self.best = {}

    def get_state(self):
        """What `training.resume` keeps of this."""
        return {"best_epochs": self.best_epochs, "best": self.best}

    def set_state(self, state):
        """Takes up what `get_state` gave."""
        self.best_epochs = list(state["best_epochs"])
        self.best = state["best"]

    def on_epoch_end(self, epoch, logs=None):
        # On JAX the model's variables are elsewhere while `fit` runs, until
        # Keras is asked for it.
        model = self.model
        found = self._evaluate()
        if logs is not None:
            logs.update({f"dev_{k}": float(v) for k, v in found.items()})
        if not self.best or found[self._metric] > self.best[self._metric]:
            os.makedirs(self._directory, exist_ok=True)
            self._weights.save_weights(self._path(epoch))
            self.best_epochs.append(epoch)
            while len(self.best_epochs) > 2:
                remove(self._path(self.best_epochs.pop(0)))
            self.best = {k: float(v) for k, v in found.items()}
        if 0 < self._patience <= epoch - self.best_epochs[-1]:
            model.stop_training = True

    def restore_best(self) -> dict:
        """Loads the weights of the best epoch.

        Returns:
            dict, for metadata: `best_epoch`, from 1, and `best`, what was
            measured after it.
        """
        self._weights.load_weights(self._path(self.best_epochs[-1]))
        return {"best_epoch": self.best_epochs[-1] + 1, "best": self.best}

    def _path(self, epoch):
        return os.path.join(self._directory, _WEIGHTS.format(epoch=epoch))
