import itertools
import types

import keras
import numpy as np
import pytest
from training_runs import Stop

from realm_tf.errors import InputError
from realm_tf.training import resume
from realm_tf.training import training_log
from realm_tf.training.training_log import MASKED_LM_LOG
from realm_tf.training.training_log import read_log

JIT = keras.backend.backend() == "jax"
NUM_STEPS, STEPS_PER_EPOCH = 13, 5
EPOCH_ENDS = [5, 10, 13]


class Age(keras.callbacks.Callback):
    """Puts a number into the logs, as a refresh does."""

    def on_epoch_end(self, epoch, logs=None):
        logs["index_age"] = training_log.steps_done(self.model) % 3


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A second more at every look."""
    seconds = itertools.count()
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(training_log, "time", clock)


class Echo(keras.Model):
    """Its loss is the mean of what comes in, whatever it learns."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 1))
        self.share = keras.metrics.Mean(name="share")
        self.built = True

    def call(self, inputs):
        return self.dense(inputs["x"][:, None])

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        self.share.update_state(x["x"] > 0, sample_weight=x["weights"])
        return keras.ops.mean(x["x"]) + 0.0 * keras.ops.sum(y_pred)


def _batch(epoch, number):
    random = np.random.default_rng([epoch, number])
    # The last batch of an epoch is smaller.
    size = 2 if number + 1 == STEPS_PER_EPOCH else 6
    return {
        "x": random.normal(size=size).astype("float32"),
        "weights": random.integers(0, 3, size).astype("float32"),
    }


def _batches(first):
    for step in itertools.count(first):
        yield _batch(*divmod(step, STEPS_PER_EPOCH))


def _model():
    model = Echo()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, jit_compile=JIT)
    return model


def _fit(directory, *callbacks, **arguments):
    resume.fit(
        _model(),
        _batches,
        directory=str(directory / "state"),
        log=str(directory / training_log.LOG),
        callbacks=[Age(), *callbacks],
        **{
            "log_every": 4,
            "epoch_ends": EPOCH_ENDS,
            "every_seconds": 0.0,
            "verbose": 0,
            **arguments,
        },
    )
    return read_log(str(directory))


def _expected(first, limit):
    """Means of the steps, with all examples and weights counted alike."""
    batches = [_batch(*divmod(s, STEPS_PER_EPOCH)) for s in range(first, limit)]
    x = np.concatenate([b["x"] for b in batches])
    weights = np.concatenate([b["weights"] for b in batches])
    return {
        "step": limit,
        "steps": limit - first,
        "loss": pytest.approx(x.mean(), abs=1e-6),
        "share": pytest.approx(np.average(x > 0, weights=weights), abs=1e-6),
        "index_age": limit % 3,
    }


def _without_times(lines):
    return [{k: v for k, v in e.items() if k != "seconds"} for e in lines]


# A pass over the data is five steps long.
EXPECTED = [
    _expected(*window) for window in [(0, 4), (4, 5), (5, 9), (9, 10), (10, 13)]
]


def test_a_line_is_the_mean_of_its_steps(tmp_path):
    assert _without_times(_fit(tmp_path)) == EXPECTED


def test_times(tmp_path):
    lines = _fit(tmp_path, epoch_ends=[5], log_every=2)
    assert [line["step"] for line in lines] == [2, 4, 5]
    # A second between two looks at the clock.
    assert [line["seconds"] for line in lines] == [1, 2, 3]


def test_what_is_unknown_is_null(tmp_path):
    log = training_log.TrainingLog(str(tmp_path / "log.jsonl"))
    batch = {name: np.zeros(1, "float32") for name in ("x", "weights")}
    _model().fit(batch, callbacks=[log], verbose=0)
    (line,) = read_log(str(tmp_path))
    assert line["step"] == line["steps"] == 1
    assert line["loss"] == 0.0 and line["share"] is None


@pytest.mark.parametrize("after, every_seconds", [(1, 0), (6, 0), (11, 1e9)])
def test_killed_and_resumed_lines_are_the_same(tmp_path, after, every_seconds):
    with pytest.raises(KeyboardInterrupt):
        _fit(tmp_path, Stop(after), every_seconds=every_seconds)
    with open(tmp_path / "log.jsonl", "a") as file:
        # What else a kill may leave: a torn line.
        file.write('{"step": 1')
    lines = _fit(tmp_path)
    assert _without_times(lines) == EXPECTED
    seconds = [line["seconds"] for line in lines]
    assert sorted(set(seconds)) == seconds


def test_read_log(tmp_path):
    partial = tmp_path / "model.partial"
    partial.mkdir()
    path = partial / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "loss": null}\n{"step": 3, "lo')
    for name in (tmp_path / "model", partial, path):
        assert read_log(str(name)) == [{"step": 1}, {"step": 2, "loss": None}]
    path.write_text('{"step": 1}\n[]\n{"step": 3}\n')
    with pytest.raises(InputError, match=r"log.jsonl:2: expected.*'\[\]'"):
        read_log(str(partial))
    with pytest.raises(InputError, match="holds no log.jsonl"):
        read_log(str(tmp_path))
    # The warm-up's log is read where there is no other.
    path.rename(partial / MASKED_LM_LOG).write_text('{"step": 7}\n')
    assert read_log(str(tmp_path / "model")) == [{"step": 7}]
