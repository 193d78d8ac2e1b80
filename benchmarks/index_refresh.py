"""Cost of an index refresh for the trainer that runs beside it.

    python benchmarks/index_refresh.py --blocks DIR --corpus DIR --model DIR

Pre-trains a model while another process embeds all blocks again and again. The
steps that begin with an exchange of the index are compared with the others.
"""

import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tyro

from realm_tf.operations.pretrain import Pretrain

_SETTINGS = (
    *("refresh=process", "refresh_every=10", "num_steps=1000000"),
    *("batch_size=8", "max_block_length=128", "num_retrieved=3"),
    *("dropout=0.1", "masked_lm_steps=0"),
)


def main(*, blocks: str, corpus: str, model: str, num_refreshes: int = 20):
    """Trains until the index was exchanged `num_refreshes` times."""
    steps = _Steps(num_refreshes)
    with tempfile.TemporaryDirectory() as directory:
        Pretrain(
            model=model,
            blocks=blocks,
            corpus=corpus,
            output=f"{directory}/trained",
            recipe="small",
            set=_SETTINGS,
        ).run(callbacks=[steps])
    plain, exchanged = (np.array(steps.seconds[key]) for key in (False, True))
    every = np.concatenate([plain, exchanged])
    return {
        "exchanges": len(exchanged),
        "median_with_exchange_to_median": np.median(exchanged)
        / np.median(plain),
        "p99_to_median": np.percentile(every, 99) / np.median(every),
    }


class _Steps(keras.callbacks.Callback):
    """Seconds of the steps without and with an exchange."""

    def __init__(self, num_refreshes):
        super().__init__()
        self._num_refreshes = num_refreshes
        self._ended = None
        self._index_step = 0
        self._done = 0
        self.seconds = {False: [], True: []}

    # From end to end, so that the work of callbacks before a step counts.
    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        index_step = self._done - logs["index_age"]
        # The first step compiles.
        if self._done > 1:
            is_exchange = index_step != self._index_step
            self.seconds[is_exchange].append(now - self._ended)
        self._index_step, self._ended = index_step, now
        self._done += 1
        if len(self.seconds[True]) == self._num_refreshes:
            self.model.stop_training = True


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
