"""Those who build indices for a trainer: threads, processes, pipelines."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from realm_tf.artifacts import index_files
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations import rebuild_index
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import index_builder
from realm_tf.training.index_exchange import IndexExchange

_LENGTH = 24


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


@pytest.fixture
def exchange(tmp_path):
    return IndexExchange(str(tmp_path))


@pytest.fixture
def stopped():
    return threading.Event()


def test_a_thread_builds_with_a_tower_of_its_own(
    model_dir, packed_blocks, moved, stopped
):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    before = loaded.model.block_embedder.get_weights()
    builder = index_builder.ThreadBuilder(
        loaded, packed_blocks, max_block_length=_LENGTH
    )
    found = builder.build(3, weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = loaded.model.block_embedder.get_weights()
    assert all(map(np.array_equal, before, after))
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        builder.build(4, weights, stopped)


def _arguments(model_dir, blocks):
    return [
        *("--model", model_dir, "--blocks", blocks.directory),
        *("--max-block-length", str(_LENGTH)),
    ]


def test_a_process_survives_being_killed(
    exchange, model_dir, packed_blocks, moved, stopped, monkeypatch
):
    weights, expected = moved
    builder = index_builder.ProcessBuilder(
        exchange, _arguments(model_dir, packed_blocks)
    )
    # Of a run that was lost.
    exchange.write_snapshot(999, weights)
    builder.start()
    assert exchange.newest_snapshot() is None
    timer = threading.Timer(0.5, os.kill, (builder.process_id, signal.SIGKILL))
    timer.start()
    with pytest.raises(ChildProcessError, match="exit status -9"):
        builder.build(3, weights, stopped)
    # What it writes first is damaged, and made again.
    read = exchange.read_index

    def read_torn(step):
        path = os.path.join(exchange.index_path(step), "embeddings.npy")
        os.truncate(path, os.path.getsize(path) - 4)
        monkeypatch.undo()
        return read(step)

    monkeypatch.setattr(exchange, "read_index", read_torn)
    with pytest.raises(InputError, match="is damaged"):
        builder.build(3, weights, stopped)
    found = builder.build(3, weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert os.getpriority(os.PRIO_PROCESS, builder.process_id) == 10
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        builder.build(4, weights, stopped)
    builder.stop()


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


def test_a_mistake_is_told(exchange, packed_blocks, stopped):
    builder = index_builder.ProcessBuilder(
        exchange, _arguments("nowhere", packed_blocks)
    )
    builder.start()
    with pytest.raises(
        ChildProcessError, match="exit status 2; .*nowhere does not exist"
    ):
        builder.build(3, [], stopped)
    builder.stop()


def test_the_pipelines_build_the_same(exchange, model_dir, blocks_dir, moved):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    loaded.model.block_embedder.set_weights(weights)
    rebuild_index.build_by_pipeline(exchange, loaded, 3, blocks_dir)
    np.testing.assert_allclose(exchange.read_index(3), expected, atol=1e-5)
    assert os.listdir(exchange.directory) == ["index-00000003"]


def test_versions_are_whole_or_not_there(exchange):
    weights = [np.arange(3.0), np.ones((2, 2), "float32")]
    for step in (5, 20):
        exchange.write_snapshot(step, weights)
    assert exchange.newest_snapshot() == 20
    with pytest.raises(InputError, match="No such file"):
        exchange.read_snapshot(5)
    for one, two in zip(exchange.read_snapshot(20), weights, strict=True):
        np.testing.assert_array_equal(one, two)
    index_files.write_exact(
        np.ones((2, 2), "float32"), exchange.index_path(20), parents={}
    )
    # What a writer leaves that was killed.
    os.makedirs(f"{exchange.index_path(40)}.partial")
    os.makedirs(exchange.index_path(50))
    assert exchange.newest_index() == 20
    exchange.clear()
    assert os.listdir(exchange.directory) == []
