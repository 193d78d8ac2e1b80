import itertools
import types

import keras
import numpy as np
import pytest
from training_runs import Stop

from realm_tf.errors import InputError
from realm_tf.training import resume
from realm_tf.training import tensorboard
from realm_tf.training import training_log
from realm_tf.training.training_log import MASKED_LM_LOG
from realm_tf.training.training_log import TrainingLog
from realm_tf.training.training_log import read_log

JIT = keras.backend.backend() == "jax"
NUM_STEPS, STEPS_PER_EPOCH, EVERY = 13, 5, 4


class Age(keras.callbacks.Callback):
    """Puts a number into the logs, as a refresh does: 0, 1, 2, 0, 1, ..."""

    def on_train_begin(self, logs=None):
        self._done = int(self.model.optimizer.iterations)

    def on_train_batch_end(self, batch, logs=None):
        logs["index_age"] = self._done % 3
        self._done += 1

    def get_state(self):
        """None: its age follows from the step."""

    def set_state(self, state):
        assert state is None


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


def _batches(epoch, step):
    while True:
        for number in range(step, STEPS_PER_EPOCH):
            yield _batch(epoch, number)
        epoch, step = epoch + 1, 0


def _model():
    model = Echo()
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, jit_compile=JIT)
    return model


def _fit(directory, *, log=None, callbacks=(), parts=True, **arguments):
    log = log or TrainingLog(
        directory / training_log.LOG,
        every_steps=EVERY,
        num_steps=NUM_STEPS,
    )
    resume.fit(
        _model(),
        _batches,
        directory=str(directory / "state"),
        callbacks=callbacks if parts else [Age(), log, *callbacks],
        parts={"age": Age(), "log": log} if parts else None,
        **{
            "num_steps": NUM_STEPS,
            "steps_per_epoch": STEPS_PER_EPOCH,
            "every_seconds": 1e9,
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
        "index_age": pytest.approx(np.mean(np.arange(first, limit) % 3)),
    }


TIMES = ("seconds", "examples_per_second")


def _without(lines, *names):
    return [{k: v for k, v in e.items() if k not in names} for e in lines]


WINDOWS = [(0, 4), (4, 8), (8, 12), (12, 13)]


def test_a_line_is_the_mean_of_its_steps(tmp_path):
    """The second and the last but one go over the end of an epoch."""
    lines = _fit(tmp_path)
    assert _without(lines, *TIMES) == [_expected(*w) for w in WINDOWS]


def test_times(tmp_path):
    log = TrainingLog(
        tmp_path / "log.jsonl",
        every_steps=2,
        num_steps=5,
    )
    lines = _fit(tmp_path, log=log, num_steps=5, parts=False)
    assert [line["step"] for line in lines] == [2, 4, 5]
    # The clock is looked at when training begins, at the end of the first
    # step, and at each line.
    assert [line["seconds"] for line in lines] == [2, 3, 4]
    # One step of 6 examples after the first; two of them; one of 2 examples.
    rates = [line["examples_per_second"] for line in lines]
    assert rates == [6.0, 12.0, 2.0]


def test_what_is_unknown_is_null(tmp_path):
    log = TrainingLog(tmp_path / "log.jsonl", every_steps=1, num_steps=1)
    model = _model()
    batch = {
        "x": np.array([np.inf], "float32"),
        "weights": np.zeros(1, "float32"),
    }
    model.fit(batch, callbacks=[log], verbose=0)
    (line,) = read_log(str(tmp_path))
    assert line["step"] == 1
    assert line["loss"] is None and line["share"] is None
    # Its one step compiled.
    assert line["examples_per_second"] is None


@pytest.mark.parametrize("after, save_every", [(1, 1), (5, 1), (7, 3)])
def test_killed_and_resumed_the_lines_are_the_same(tmp_path, after, save_every):
    with pytest.raises(KeyboardInterrupt):
        _fit(tmp_path, callbacks=[Stop(after)], every_steps=save_every)
    with open(tmp_path / "log.jsonl", "a") as file:
        # What else a kill may leave: a torn line.
        file.write('{"step": 1')
    lines = _fit(tmp_path, every_steps=save_every)
    # The state may be saved before the other callbacks have had their say of
    # the step.
    names = *TIMES, "index_age"
    expected = [_expected(*window) for window in WINDOWS]
    assert _without(lines, *names) == _without(expected, *names)
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


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.util import tensor_util

    directory = tmp_path / "board"
    writer = tensorboard.TensorBoardWriter(str(directory))
    log = TrainingLog(
        tmp_path / "log.jsonl",
        every_steps=EVERY,
        num_steps=NUM_STEPS,
        writer=writer,
    )
    lines = _fit(tmp_path, log=log)
    writer.text("samples/0", "a | b", step=4)
    events = event_accumulator.EventAccumulator(str(directory))
    events.Reload()
    tags = events.Tags()["tensors"]
    assert set(tags) == {*lines[0], "samples/0"} - {"step", "steps"}
    for name in ("loss", "index_age"):
        found = [
            (event.step, float(tensor_util.make_ndarray(event.tensor_proto)))
            for event in events.Tensors(name)
        ]
        assert found == [
            (line["step"], pytest.approx(line[name])) for line in lines
        ]
    (event,) = events.Tensors("samples/0")
    assert event.step == 4
    assert event.tensor_proto.string_val[0] == b"a | b"


def test_tensorboard_without_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(InputError, match="pip install tensorflow"):
        tensorboard.TensorBoardWriter(str(tmp_path))
