"""Batches made ahead by a thread, or each when its step begins."""

import gc
import threading
import time

import keras
import numpy as np
import pytest
from waiting import wait_for

from realm_tf.data.feeding import ReadAhead
from realm_tf.data.feeding import on_demand


def _num_threads():
    return sum(t.name.startswith("read-ahead") for t in threading.enumerate())


def test_items_come_in_order_and_no_more_are_ready_than_asked_for():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    ahead = ReadAhead(items(), 3)
    # Three wait, a fourth waits for its place.
    wait_for(lambda: len(made) == 4)
    time.sleep(0.05)
    assert len(made) == 4
    assert list(ahead) == list(range(20))
    assert next(ahead, None) is None
    assert _num_threads() == 0


def test_what_the_thread_raises_reaches_the_consumer():
    def items():
        yield 1
        raise OSError("the disk is gone")

    ahead = ReadAhead(items(), 2)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
    assert next(ahead, None) is None
    assert _num_threads() == 0


def _endless():
    number = 0
    while True:
        yield number
        number += 1


def test_left_early_the_thread_ends():
    ahead = ReadAhead(_endless(), 2)
    assert next(ahead) == 0
    ahead.close()
    ahead.close()
    assert _num_threads() == 0
    assert next(ahead, None) is None
    # Forgotten, by whoever held it.
    ahead = ReadAhead(_endless(), 2)
    assert next(ahead) == 0
    del ahead
    gc.collect()
    wait_for(lambda: not _num_threads())


def test_one_who_waits_is_woken_at_the_end():
    go_on = threading.Event()

    def items():
        go_on.wait()
        yield 1

    ahead, seen = ReadAhead(items(), 1), []
    waiting = threading.Thread(target=lambda: seen.append(next(ahead, "end")))
    waiting.start()
    closing = threading.Thread(target=ahead.close)
    closing.start()
    go_on.set()
    for thread in (closing, waiting):
        thread.join()
    assert seen in (["end"], [1])


class _Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.begun = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.begun += 1


def test_on_demand_a_batch_is_made_when_its_step_begins():
    steps, made = _Steps(), []

    def batches():
        made.clear()
        for number in range(100):
            made.append(steps.begun)
            yield {"x": np.full((2, 1), number, "float32")}

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.total = self.add_weight(shape=(), initializer="zeros")

        def call(self, inputs):
            return self.total * keras.ops.sum(inputs["x"])

        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            return y_pred

    model = Model()
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(
        on_demand(batches),
        steps_per_epoch=3,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[steps],
    )
    assert made == [1, 2, 3, 4, 5, 6]
    # Each batch was trained on, once: the gradient is the batch's sum.
    assert float(np.asarray(model.total)) == -2.0 * sum(range(6))
