"""Those who build indices for a trainer: threads, processes, pipelines."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.operations import rebuild_index
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import index_builder
from realm_tf.training import index_workers
from realm_tf.training.index_exchange import IndexExchange
from realm_tf.training.index_exchange import Snapshot

_LENGTH = 24
# Seconds that a process may take to start on a busy machine.
_PATIENCE = 240


@pytest.fixture(scope="module")
def moved(model_dir, packed_blocks):
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
    return weights, index_builder.embed_blocks(embedder, packed_blocks)


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
    tmp_path, model_dir, packed_blocks, moved
):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    before = loaded.model.block_embedder.get_weights()
    exchange = IndexExchange(str(tmp_path))
    worker = index_workers.ThreadWorker(
        exchange, loaded, packed_blocks, max_block_length=_LENGTH
    )
    worker.start()
    exchange.write_snapshot(Snapshot(3, weights))
    found = _wait_for_index(exchange, 3, worker)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = loaded.model.block_embedder.get_weights()
    assert all(map(np.array_equal, before, after))
    metadata = artifact.read(exchange.index_path(3), kind="index")
    assert metadata["parents"]["blocks"] == packed_blocks.fingerprint
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
    tmp_path, model_dir, packed_blocks, moved, monkeypatch
):
    weights, expected = moved
    exchange = IndexExchange(str(tmp_path))
    worker = index_workers.ProcessWorker(
        exchange, _arguments(model_dir, packed_blocks)
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


def test_a_process_ends_with_the_trainer(tmp_path, model_dir, packed_blocks):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "realm_tf.operations.rebuild_index"),
            *("--exchange", str(tmp_path)),
            *_arguments(model_dir, packed_blocks),
        ],
        stdin=subprocess.PIPE,
    )
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_a_mistake_is_told(tmp_path, model_dir, packed_blocks):
    worker = index_workers.ProcessWorker(
        IndexExchange(str(tmp_path)), _arguments("nowhere", packed_blocks)
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
