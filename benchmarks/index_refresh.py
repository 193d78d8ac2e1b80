"""What an index refresh costs the trainer that it runs beside.

    python benchmarks/index_refresh.py --blocks DIR --corpus DIR --model DIR

Pre-trains a model while a process of its own embeds all blocks anew, until so
many indices were exchanged, and compares the steps before which one was with
the others: medians, and the 99th percentile to the median. `traced` counts
how often a step was traced (once) and `waited` is the longest step.

Ratios are of times in one run.
"""

import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tyro

from realm_tf.models.realm import RealmModel
from realm_tf.operations.operation import Repeated
from realm_tf.operations.pretrain import Pretrain


def main(
    *,
    blocks: str,
    corpus: str,
    model: str,
    num_refreshes: int = 20,
    recipe: str = "wiki-small",
    set: Repeated = (),
):
    """Trains until the index was exchanged so often."""
    steps = _Steps(num_refreshes)
    call, traced = RealmModel.call, []

    def count(self, inputs, training=False):
        traced.append(training)
        return call(self, inputs, training=training)

    RealmModel.call = count
    with tempfile.TemporaryDirectory() as directory:
        Pretrain(
            model=model,
            blocks=blocks,
            corpus=corpus,
            output=f"{directory}/trained",
            recipe=recipe,
            set=(
                *("refresh=process", "refresh_every=10", "num_steps=1000000"),
                *set,
            ),
        ).run(callbacks=[steps])
    return {**steps.summary(), "traced": sum(traced)}


class _Steps(keras.callbacks.Callback):
    """Times steps, those with an exchange apart."""

    def __init__(self, num_refreshes):
        super().__init__()
        self._num_refreshes = num_refreshes
        self._started = None
        self._index_step = 0
        self._done = 0
        self.seconds = {False: [], True: []}
        self.ages = []

    # From end to end, so that what callbacks do before a step counts.
    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        index_step = self._done - logs["index_age"]
        exchanged = index_step != self._index_step
        # The first compiles.
        if self._done > 1:
            self.seconds[exchanged].append(now - self._started)
        self._index_step = index_step
        self.ages.append(logs["index_age"])
        self._done += 1
        self._started = now
        if len(self.seconds[True]) >= self._num_refreshes:
            self.model.stop_training = True

    def summary(self):
        plain, exchanged = (
            np.array(self.seconds[key]) for key in (False, True)
        )
        every = np.concatenate([plain, exchanged])
        return {
            "cpus": os.cpu_count(),
            "steps": len(every),
            "exchanges": len(exchanged),
            "median_seconds": round(float(np.median(plain)), 4),
            "median_with_exchange_to_median": round(
                float(np.median(exchanged) / np.median(plain)), 3
            ),
            "p99_to_median": round(
                float(np.percentile(every, 99) / np.median(every)), 3
            ),
            "p99_with_exchange_to_median": round(
                float(np.percentile(exchanged, 99) / np.median(plain)), 3
            ),
            "waited": round(float(every.max()), 4),
            "mean_index_age": round(float(np.mean(self.ages)), 1),
        }


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
