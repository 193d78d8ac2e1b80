"""The exchange of indices between a trainer and a builder."""

import os
import threading
import time

import keras
import numpy as np
import pytest

from realm_tf.artifacts import index_files
from realm_tf.errors import InputError
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.training import index_builder
from realm_tf.training import index_refresh
from realm_tf.training import index_workers
from realm_tf.training.index_exchange import IndexExchange
from realm_tf.training.index_exchange import Snapshot


class Trainer(keras.Model):
    """A step reads the whole index; each weight counts the steps done."""

    def __init__(self):
        super().__init__()
        self.index = BruteForce(np.zeros((4, 2), "float32"))
        self.tower = keras.layers.Dense(1, use_bias=False)
        self.tower.build((None, 1))
        self.tower.set_weights([np.zeros((1, 1), "float32")])
        self.seen = []

    def call(self, inputs):
        return self.tower(inputs) + 0.0 * keras.ops.sum(self.index.embeddings)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        # The gradient is -1.
        return -keras.ops.sum(y_pred)


class _Seen(keras.callbacks.Callback):
    """What the index held at each step, and what the logs say."""

    def __init__(self, seconds=0.0):
        super().__init__()
        self.indices, self.logs = [], []
        self._seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self._seconds)
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.indices.append(np.array(self.model.index.embeddings))
        self.logs.append(dict(logs))


class _Worker(index_workers.Worker):
    """Publishes indices filled with the tower's weight: the step."""

    def __init__(self, exchange, *, seconds=0.0, deaths=()):
        self._exchange = exchange
        self._seconds = seconds
        self._deaths = set(deaths)
        self._reason = None
        self._stopped = threading.Event()
        self._thread = None
        self.num_starts = 0

    def start(self):
        self.num_starts += 1
        self._reason = None
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        index_builder.build_indices(
            self._exchange,
            self._build,
            should_stop=lambda: self._stopped.is_set() or bool(self._reason),
        )

    def _build(self, step):
        if step in self._deaths:
            self._deaths.remove(step)
            self._reason = "out of memory"
            return
        time.sleep(self._seconds)
        value = self._exchange.read_snapshot(step).weights[0].item()
        index_files.write_exact(
            np.full((4, 2), value, "float32"),
            self._exchange.index_path(step),
            parents={},
        )

    def death(self):
        return self._reason

    def stop(self):
        self._stopped.set()
        self._thread.join()


def _fit(tmp_path, *, num_steps, every_steps, seconds=0.05, **worker):
    model = Trainer()
    model.compile(optimizer=keras.optimizers.SGD(1.0))
    exchange = IndexExchange(str(tmp_path / "exchange"))
    worker = _Worker(exchange, **worker)
    refresh = index_refresh.IndexRefresh(
        model.index, model.tower, exchange, worker, every_steps=every_steps
    )
    seen = _Seen(seconds)
    model.fit(
        np.ones((num_steps, 1), "float32"),
        batch_size=1,
        verbose=0,
        shuffle=False,
        callbacks=[refresh, seen],
    )
    return refresh, seen, worker


def test_indices_are_whole_and_as_old_as_the_logs_say(tmp_path):
    refresh, seen, _ = _fit(tmp_path, num_steps=60, every_steps=5)
    values = [np.unique(index) for index in seen.indices]
    assert all(len(value) == 1 for value in values), "a mixed index"
    made_from = [int(value[0]) for value in values]
    ages = [logs["index_age"] for logs in seen.logs]
    assert ages == [step - made for step, made in enumerate(made_from)]
    assert made_from == sorted(made_from)
    # The builder keeps up: an index is due every five steps, and used soon.
    assert len(refresh.swaps) >= 6
    assert dict(refresh.swaps)[refresh.swaps[0][0]] == 5
    assert all(
        later - earlier >= 5
        for (_, earlier), (_, later) in zip(
            refresh.swaps, refresh.swaps[1:], strict=False
        )
    )
    for step, made in refresh.swaps:
        assert made_from[step] == made and made_from[step - 1] < made
    assert all(0 <= logs["index_minutes"] < 1 for logs in seen.logs)


def test_a_slow_builder_sets_the_pace_and_nobody_waits(tmp_path):
    started = time.monotonic()
    refresh, seen, _ = _fit(tmp_path, num_steps=40, every_steps=1, seconds=0.05)
    quick = time.monotonic() - started
    started = time.monotonic()
    model = Trainer()
    model.compile(optimizer=keras.optimizers.SGD(1.0))
    exchange = IndexExchange(str(tmp_path / "slow"))
    refresh = index_refresh.IndexRefresh(
        model.index,
        model.tower,
        exchange,
        _Worker(exchange, seconds=1.0),
        every_steps=1,
    )
    seen = _Seen(0.05)
    model.fit(
        np.ones((40, 1), "float32"),
        batch_size=1,
        verbose=0,
        callbacks=[refresh, seen],
    )
    # 40 indices of a second each would take 40.
    assert time.monotonic() - started < quick + 10
    assert 1 <= len(refresh.swaps) <= 3
    assert seen.logs[-1]["index_age"] > 5


def test_a_dead_builder_is_started_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(index_refresh, "_FIRST_PAUSE", 0.1)
    refresh, seen, worker = _fit(
        tmp_path, num_steps=80, every_steps=5, deaths=(5,)
    )
    assert refresh.num_restarts == 1 and worker.num_starts == 2
    assert refresh.swaps[0][1] == 5, "the same snapshot, built after all"
    assert "the builder stopped (out of memory)" in capsys.readouterr().err


def test_a_damaged_index_is_made_again(tmp_path, capsys, monkeypatch):
    write, spoilt = index_files.write_exact, []

    def write_torn(embeddings, output, **arguments):
        write(embeddings, output, **arguments)
        if not spoilt:
            spoilt.append(output)
            path = os.path.join(output, "embeddings.npy")
            os.truncate(path, os.path.getsize(path) - 4)

    monkeypatch.setattr(index_files, "write_exact", write_torn)
    refresh, seen, _ = _fit(tmp_path, num_steps=60, every_steps=5)
    assert "is damaged" in capsys.readouterr().err
    assert refresh.swaps[0][1] == 5
    assert all(len(np.unique(index)) == 1 for index in seen.indices)


def test_a_resumed_run_knows_the_age_of_its_index(tmp_path):
    exchange = IndexExchange(str(tmp_path / "exchange"))
    model = Trainer()
    worker = _Worker(exchange)
    refresh = index_refresh.IndexRefresh(
        model.index, model.tower, exchange, worker, every_steps=1000
    )
    refresh.set_state({"index_step": 7, "taken_at": time.time() - 120})
    model.compile(optimizer=keras.optimizers.SGD(1.0))
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(10)
    exchange.write_snapshot(Snapshot(999, [np.zeros(1)]))
    seen = _Seen()
    model.fit(
        np.ones((2, 1), "float32"),
        batch_size=1,
        verbose=0,
        callbacks=[refresh, seen],
    )
    assert [logs["index_age"] for logs in seen.logs] == [3, 4]
    assert 2.0 <= seen.logs[0]["index_minutes"] < 2.5
    assert refresh.get_state()["index_step"] == 7
    assert exchange.newest_snapshot() is None, "of the run that was lost"


def test_versions_are_whole_or_not_there(tmp_path):
    exchange = IndexExchange(str(tmp_path))
    weights = [np.arange(3.0), np.ones((2, 2), "float32")]
    for step in (5, 20):
        exchange.write_snapshot(Snapshot(step, weights, taken_at=1.5))
    assert exchange.newest_snapshot() == 20
    with pytest.raises(InputError, match="does not exist"):
        exchange.read_snapshot(5)
    found = exchange.read_snapshot(20)
    assert found.taken_at == 1.5
    for one, two in zip(found.weights, weights, strict=True):
        np.testing.assert_array_equal(one, two)
    for step in (5, 20, 30):
        index_files.write_exact(
            np.full((2, 2), step, "float32"),
            exchange.index_path(step),
            parents={},
        )
    # What a writer leaves that was killed.
    os.makedirs(f"{exchange.index_path(40)}.partial")
    os.makedirs(exchange.index_path(50))
    assert exchange.newest_index() == 30
    exchange.prune_indices(keep=2)
    assert not os.path.exists(exchange.index_path(5))
    assert exchange.read_index(20)[0, 0] == 20
    exchange.clear()
    assert os.listdir(tmp_path) == []
