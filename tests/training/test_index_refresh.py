"""The exchange of indices between a trainer and a builder."""

import os
import signal
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.errors import InputError
from realm_tf.operations import rebuild_index
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.training import index_builder
from realm_tf.training import index_refresh
from realm_tf.training import index_workers
from realm_tf.training.index_exchange import IndexExchange
from realm_tf.training.index_exchange import Snapshot

_LENGTH = 24
# Seconds that a process may take to start on a busy machine.
_PATIENCE = 240


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


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, blocks_dir):
    packed = str(tmp_path_factory.mktemp("packed") / "blocks")
    pack_blocks(blocks_dir, packed)
    return PackedBlocks(packed)


@pytest.fixture(scope="module")
def moved(model_dir, blocks):
    """Weights of a tower that has moved, and the embeddings it gives."""
    loaded = model_directory.load(model_dir)
    tower = loaded.model.block_embedder
    generator = np.random.default_rng(3)
    weights = [
        (w + 0.1 * generator.standard_normal(w.shape)).astype(w.dtype)
        for w in tower.get_weights()
    ]
    tower.set_weights(weights)
    embedder = BlockEmbedder(loaded, max_length=_LENGTH)
    return weights, index_builder.embed_blocks(embedder, blocks)


def _wait_for_index(exchange, step, worker):
    limit = time.monotonic() + _PATIENCE
    while exchange.newest_index() != step:
        if worker.death() is not None or time.monotonic() > limit:
            reason = worker.death()
            worker.stop()
            pytest.fail(f"no index of step {step}: {reason}")
        time.sleep(0.05)
    return exchange.read_index(step)


def _wait_for_death(worker):
    limit = time.monotonic() + _PATIENCE
    while worker.death() is None and time.monotonic() < limit:
        time.sleep(0.05)
    return worker.death()


def test_a_thread_builds_with_a_tower_of_its_own(
    tmp_path, model_dir, blocks, moved
):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    before = loaded.model.block_embedder.get_weights()
    exchange = IndexExchange(str(tmp_path))
    worker = index_workers.ThreadWorker(
        exchange, loaded, blocks, max_block_length=_LENGTH
    )
    worker.start()
    exchange.write_snapshot(Snapshot(3, weights))
    found = _wait_for_index(exchange, 3, worker)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = loaded.model.block_embedder.get_weights()
    assert all(map(np.array_equal, before, after))
    metadata = artifact.read(exchange.index_path(3), kind="index")
    assert metadata["parents"]["blocks"] == blocks.fingerprint
    # Weights of another tower: it stops, and says why.
    exchange.write_snapshot(Snapshot(4, weights[:-1]))
    reason = _wait_for_death(worker)
    worker.stop()
    assert "ValueError" in reason


def _arguments(model_dir, blocks):
    return [
        *("--model", model_dir, "--blocks", blocks.directory),
        *("--max-block-length", str(_LENGTH)),
    ]


def test_a_process_survives_being_killed(
    tmp_path, model_dir, blocks, moved, monkeypatch
):
    weights, expected = moved
    exchange = IndexExchange(str(tmp_path))
    worker = index_workers.ProcessWorker(
        exchange, _arguments(model_dir, blocks)
    )
    worker.start()
    exchange.write_snapshot(Snapshot(3, weights))
    os.kill(worker.process_id, signal.SIGKILL)
    reason = _wait_for_death(worker)
    worker.stop()
    assert f"exit status {-signal.SIGKILL}" in reason
    worker.start()
    found = _wait_for_index(exchange, 3, worker)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert os.getpriority(os.PRIO_PROCESS, worker.process_id) == 10
    worker.stop()
    assert worker.death() is not None


def test_a_process_ends_with_the_trainer(tmp_path, model_dir, blocks):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "realm_tf.operations.rebuild_index"),
            *("--exchange", str(tmp_path)),
            *_arguments(model_dir, blocks),
        ],
        stdin=subprocess.PIPE,
    )
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_a_mistake_is_told(tmp_path, model_dir, blocks):
    worker = index_workers.ProcessWorker(
        IndexExchange(str(tmp_path)), _arguments("nowhere", blocks)
    )
    worker.start()
    reason = _wait_for_death(worker)
    worker.stop()
    assert reason.startswith("exit status 2; ")
    assert "nowhere does not exist" in reason


def test_the_pipelines_build_the_same(tmp_path, model_dir, blocks_dir, moved):
    weights, expected = moved
    exchange = IndexExchange(str(tmp_path))
    build = rebuild_index.PipelineBuild(
        exchange, model_directory.load(model_dir), blocks_dir
    )
    exchange.write_snapshot(Snapshot(3, weights))
    build(3)
    np.testing.assert_allclose(exchange.read_index(3), expected, atol=1e-5)
    assert sorted(os.listdir(tmp_path)) == [
        "index-00000003",
        "snapshot-00000003",
    ]
