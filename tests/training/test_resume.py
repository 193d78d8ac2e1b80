import errno
import itertools
import pathlib
import types

import keras
import numpy as np
import pytest
from training_runs import Stop

from realm_tf import progress
from realm_tf.errors import InputError
from realm_tf.training import resume
from realm_tf.training.optimizers import BertAdamW
from realm_tf.training.optimizers import LinearWarmupAndDecay
from realm_tf.training.training_log import steps_done

JIT = keras.backend.backend() == "jax"
NUM_STEPS, EPOCH_ENDS = 13, [5, 10, 13]


class Counter(keras.callbacks.Callback):
    """What else may have a state."""

    def __init__(self):
        super().__init__()
        self.num_steps = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.num_steps += 1

    def get_state(self):
        return {"num_steps": self.num_steps}

    def set_state(self, state):
        self.num_steps = state["num_steps"]


class Regression(keras.Model):
    """Weights, moving averages, dropout and a metric of its own."""

    def __init__(self, width=4):
        super().__init__()
        self.layers_of_mine = [
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
        self.error = keras.metrics.Mean(name="error")
        self.build({"x": (None, 3)})

    def build(self, shape):
        shape = shape["x"]
        for layer in self.layers_of_mine:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        self.built = True

    def call(self, inputs, training=False):
        x = inputs["x"]
        for layer in self.layers_of_mine:
            kind = isinstance(layer, keras.layers.Dense)
            x = layer(x) if kind else layer(x, training=training)
        return x

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        error = keras.ops.abs(y_pred[:, 0] - x["y"])
        self.error.update_state(error)
        return keras.ops.mean(error**2)


def _model(**arguments):
    keras.utils.set_random_seed(0)
    model = Regression(**arguments)
    optimizer = BertAdamW(LinearWarmupAndDecay(0.05, NUM_STEPS))
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, jit_compile=JIT)
    return model


def _batches(first):
    for step in itertools.count(first):
        x = np.random.default_rng(step).normal(size=(8, 3)).astype("float32")
        yield {"x": x, "y": x.sum(-1)}


def _fit(directory, *callbacks, model=None, **arguments):
    model = model or _model()
    counter = Counter()
    rows = resume.fit(
        model,
        _batches,
        directory=str(directory),
        log=str(directory / "log.jsonl"),
        parts={"counter": counter},
        callbacks=callbacks,
        **{
            "log_every": 2,
            "epoch_ends": EPOCH_ENDS,
            "every_seconds": 0.0,
            "verbose": 0,
            **arguments,
        },
    )
    return model, rows, counter


def _state(model):
    return [
        np.asarray(v).copy()
        for v in (*model.variables, *model.optimizer.variables)
    ]


def _assert_same(one, two):
    for first, second in zip(_state(one), _state(two), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing interrupts."""
    return _fit(tmp_path_factory.mktemp("straight"))


def test_it_is_what_keras_does(straight):
    model = _model()
    model.fit(
        ((batch,) for batch in _batches(0)),
        steps_per_epoch=NUM_STEPS,
        shuffle=False,
        verbose=0,
    )
    _assert_same(model, straight[0])
    _, history, counter = straight
    assert counter.num_steps == NUM_STEPS
    assert [set(row) for row in history] == [{"loss", "error"}] * 3
    alone = _model()
    error = alone.fit(
        ((batch,) for batch in _batches(0)),
        steps_per_epoch=1,
        epochs=NUM_STEPS,
        shuffle=False,
        verbose=0,
    ).history["error"]
    for row, steps in zip(
        history, (slice(5), slice(5, 10), slice(10, 13)), strict=True
    ):
        assert row["error"] == pytest.approx(np.mean(error[steps]), rel=1e-6)


# Before the first saving; on it; inside an interval; at the end of a pass and
# after it; at the last step.
@pytest.mark.parametrize("killed_after", [1, 2, 3, 5, 6, 10, 13])
def test_killed_and_resumed_it_is_the_same(straight, tmp_path, killed_after):
    with pytest.raises(KeyboardInterrupt):
        _fit(tmp_path, Stop(killed_after))
    model, rows, counter = _fit(tmp_path)
    _assert_same(model, straight[0])
    assert rows == straight[1]
    assert counter.num_steps == NUM_STEPS


def test_a_finished_run_does_nothing_more(straight, tmp_path):
    _fit(tmp_path)
    # What a kill in the midst of a saving leaves.
    (tmp_path / f"{resume.STATE}.tmp").write_bytes(b"PK\x03\x04 half")
    model, rows, _ = _fit(tmp_path, Stop(1))
    _assert_same(model, straight[0])
    assert rows == straight[1]


def test_savings_by_time(tmp_path, monkeypatch):
    seconds = itertools.count(0, 2)
    clock = types.SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(resume, "time", clock)
    saved = []
    save = resume.SaveState._save

    def spy(self):
        saved.append(steps_done(self.model))
        save(self)

    monkeypatch.setattr(resume.SaveState, "_save", spy)
    _fit(tmp_path, every_seconds=5.0)
    # The clock goes on by two seconds with each look at it: once an interval,
    # once more at a saving.
    assert saved == [5, 10, 13]


def test_a_callback_may_end_the_run(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self._model.stop_training = True

    stopped, rows, _ = _fit(tmp_path, Stop())
    assert len(rows) == 1
    # Killed before anything came of it, it stays at its end.
    again, more, counter = _fit(tmp_path)
    assert more == rows and counter.num_steps == 1
    _assert_same(again, stopped)


@pytest.mark.slow
def test_what_is_damaged_or_anothers_is_refused(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        _fit(tmp_path, Stop(4))
    with pytest.raises(InputError, match="state of another model"):
        _fit(tmp_path, model=_model(width=5))
    path = pathlib.Path(tmp_path, resume.STATE)
    content = bytearray(path.read_bytes())
    for damage in (content[: len(content) // 2], b"", b"text"):
        path.write_bytes(damage)
        with pytest.raises(InputError, match="is damaged"):
            _fit(tmp_path)
    # What the machine lacks now says nothing of the file.
    path.write_bytes(content)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="many"):

        def load(*_, **__):
            raise OSError(errno.EMFILE, "too many open files")

        patch.setattr(np, "load", load)
        _fit(tmp_path)
    # One bit of a weight.
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        _fit(tmp_path)


def test_progress_of_a_resumed_run(tmp_path, capsys, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        _fit(tmp_path, Stop(4))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    _fit(tmp_path, verbose=1)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("train: 3 of 13 steps, ")
    assert last.startswith("train: 13 of 13 steps, ") and "loss" in last
