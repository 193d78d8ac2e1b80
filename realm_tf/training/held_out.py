"""The best state of a pre-training, by sentences that it does not learn from."""

import os

import keras
import numpy as np

from realm_tf.artifacts.paths import remove
from realm_tf.data import feeding

_WEIGHTS = "best_{step}.weights.h5"
LOG_LIKELIHOOD = "held_out_log_likelihood"


class HeldOut(keras.callbacks.Callback):
    """Measures before the first step, every so many steps and after the last.

    What it measures is in the step's logs, in `measured` and, of the state with
    the highest log-likelihood, the weights in a file; `restore_best` loads them.
    The model is run without training: its metrics and the state of the random
    generators stay as they are. Equal states: the earlier one.

    As one of the `parts` of `training.resume`, it goes on after a kill.

    Args:
        batches: list of dict. Of masked queries, always the same.
        weights: `keras.Model`. What is kept; it may be a part of the trained
            model.
        directory: str. Where its files go; local.
        every_steps: int. 0: at the beginning and the end alone.
        num_steps: int. Of the whole run.

    Attributes:
        measured: list of dict. `step`, `held_out_log_likelihood` and
            `held_out_retrieval_utility`, means over the masked wordpieces, in
            nats: of log sum_z p(z | x) p(y | z, x), and of what it is more than
            log p(y | null, x).
    """

    def __init__(
        self,
        batches: list[dict],
        weights: keras.Model,
        directory: str,
        *,
        every_steps: int,
        num_steps: int,
    ):
        super().__init__()
        self._batches = batches
        self._weights = weights
        self._directory = directory
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._step = 0
        self.measured = []
        # The last is the best; its forerunner's file stays, for a kill may
        # come before the state is saved that knows of a new one.
        self._best_steps = []

    def get_state(self):
        """What `training.resume` keeps of this."""
        return {"measured": self.measured, "best_steps": self._best_steps}

    def set_state(self, state):
        """Takes up what `get_state` gave."""
        self.measured = list(state["measured"])
        self._best_steps = list(state["best_steps"])

    def on_train_begin(self, logs=None):
        self._step = feeding.steps_done(self.model.optimizer)

    def on_train_batch_begin(self, batch, logs=None):
        if not self.measured:
            self._measure()

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        is_due = self._every_steps and self._step % self._every_steps == 0
        if is_due or self._step == self._num_steps:
            found = self._measure()
            if logs is not None:
                logs.update(found)

    def _measure(self):
        # On JAX the model's variables are elsewhere while `fit` runs, until
        # Keras is asked for it.
        model = self.model
        likelihoods, utilities = [], []
        for batch in self._batches:
            outputs = model.predict_on_batch(batch)
            is_masked = batch["mask_weights"] > 0
            utility = np.asarray(outputs["retrieval_utility"])
            alone = np.asarray(outputs["log_probs"], "float32")[:, 0]
            likelihoods.append((utility + alone)[is_masked])
            utilities.append(utility[is_masked])
        found = {
            LOG_LIKELIHOOD: float(np.concatenate(likelihoods).mean()),
            "held_out_retrieval_utility": float(
                np.concatenate(utilities).mean()
            ),
        }
        if found[LOG_LIKELIHOOD] > self._best:
            os.makedirs(self._directory, exist_ok=True)
            self._weights.save_weights(self._path(self._step))
            self._best_steps.append(self._step)
            while len(self._best_steps) > 2:
                remove(self._path(self._best_steps.pop(0)))
        self.measured.append({"step": self._step, **found})
        return found

    @property
    def _best(self):
        return max(
            (each[LOG_LIKELIHOOD] for each in self.measured),
            default=-float("inf"),
        )

    def restore_best(self) -> int:
        """Loads the weights of the best state; returns its step."""
        step = self._best_steps[-1]
        self._weights.load_weights(self._path(step))
        return step

    def _path(self, step):
        return os.path.join(self._directory, _WEIGHTS.format(step=step))
