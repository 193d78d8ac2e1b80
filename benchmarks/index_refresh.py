"""What an index refresh costs the trainer that it runs beside.

    python benchmarks/index_refresh.py --blocks DIR --corpus DIR --model DIR

Pre-trains a model while a process of its own embeds all blocks anew, until so
many indices were exchanged, and compares the steps before which one was with
the others: medians, and the 99th percentile to the median. `traced` counts
how often a step was traced (once) and `waited` is the longest step.

With --num-blocks there are as many blocks, those of the directory over and over,
and the first index is of numbers drawn at random: what is found means nothing,
what an exchange costs does. On JAX the bytes that stay on each device are told,
beside those of `realm plan pretrain`:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 KERAS_BACKEND=jax \
        python benchmarks/index_refresh.py ... --num-blocks 1000000 --output DIR

Ratios are of times in one run.
"""

import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import drawn
import keras
import numpy as np
import tyro

from realm_tf.models.realm import RealmModel
from realm_tf.operations.operation import Repeated
from realm_tf.operations.plan import Plan
from realm_tf.operations.pretrain import Pretrain

# What of a plan is there between two steps.
_LASTING = ("weights", "AdamW", "embeddings", "wordpieces")


def main(
    *,
    blocks: str,
    corpus: str,
    model: str,
    num_refreshes: int = 20,
    num_steps: int = 0,
    num_blocks: int | None = None,
    recipe: str = "wiki-small",
    set: Repeated = (),
    output: str | None = None,
):
    """Trains until the index was exchanged so often.

    Args:
        num_steps: least steps.
        num_blocks: if not given, those of the directory.
        output: where they are made.
    """
    steps = _Steps(num_refreshes, num_steps)
    index = None
    if num_blocks:
        blocks, index = _repeated(blocks, model, num_blocks, output)
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
            index=index,
            output=f"{directory}/trained",
            recipe=recipe,
            set=(
                *("refresh=process", "refresh_every=10", "num_steps=1000000"),
                *set,
            ),
        ).run(callbacks=[steps])
    found = {**steps.summary(), "traced": sum(traced)}
    if steps.device_bytes:
        plan = Plan(
            what="pretrain",
            recipe=recipe,
            set=set,
            model=model,
            blocks=blocks,
            num_devices=len(steps.device_bytes),
            precision="float32",
        ).run()
        found["device_megabytes"] = [
            round(each / 1e6, 1) for each in steps.device_bytes
        ]
        planned = sum(plan.memory[name] for name in _LASTING)
        found["planned_megabytes"] = round(planned / 1e6, 1)
    return found


def _repeated(blocks, model, num_blocks, output):
    """Blocks and an index of them."""
    made, index = f"{output}/blocks", f"{output}/index"
    if not os.path.exists(index):
        drawn.repeat_blocks(blocks, made, num_blocks)
        drawn.draw_index(model, made, index)
    return made, index


class _Steps(keras.callbacks.Callback):
    """Times steps, those with an exchange apart."""

    def __init__(self, num_refreshes, num_steps):
        super().__init__()
        self._num_refreshes = num_refreshes
        self._num_steps = num_steps
        self.device_bytes = []
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
        if (
            len(self.seconds[True]) >= self._num_refreshes
            and self._done >= self._num_steps
        ):
            self.device_bytes = _bytes_of_devices()
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
            "waited_with_exchange": round(float(exchanged.max()), 4),
            "mean_index_age": round(float(np.mean(self.ages)), 1),
        }


def _bytes_of_devices():
    """What is held on each device of JAX."""
    if keras.backend.backend() != "jax":
        return []
    import jax

    found = dict.fromkeys(jax.local_devices(), 0)
    for array in jax.live_arrays():
        for shard in array.addressable_shards:
            found[shard.device] += shard.data.nbytes
    return list(found.values())


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
