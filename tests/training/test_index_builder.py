"""Those who build indices for a trainer: threads, processes, pipelines."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from realm_tf.artifacts import weight_files
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations import rebuild_index
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import index_builder

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
def stopped():
    return threading.Event()


def test_a_thread_builds_with_a_tower_of_its_own(
    model_dir, packed_blocks, moved, stopped
):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    before = loaded.model.block_embedder.get_weights()
    build = index_builder.thread_builder(
        loaded, packed_blocks, max_block_length=_LENGTH
    )
    found = build(weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = loaded.model.block_embedder.get_weights()
    assert all(map(np.array_equal, before, after))
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        build(weights, stopped)


def _arguments(model_dir, blocks):
    return [
        *("--model", model_dir, "--blocks", blocks.directory),
        *("--max-block-length", str(_LENGTH), "--precision", "float32"),
    ]


@pytest.mark.slow
def test_a_process_survives_being_killed(
    tmp_path, model_dir, packed_blocks, moved, stopped, monkeypatch
):
    weights, expected = moved
    directory = tmp_path / "exchange"
    # Of a run that was lost.
    directory.mkdir()
    (directory / index_builder.EMBEDDINGS).write_text("old")
    build = index_builder.ProcessBuilder(
        str(directory), _arguments(model_dir, packed_blocks)
    )
    assert not any(directory.iterdir())
    timer = threading.Timer(
        0.5, lambda: os.kill(build._process.pid, signal.SIGKILL)
    )
    timer.start()
    with pytest.raises(ChildProcessError, match="exit status -9"):
        build(weights, stopped)
    # What it leaves first is damaged, and made again.
    read = weight_files.read

    def read_torn(path):
        assert path.endswith(index_builder.EMBEDDINGS)
        os.truncate(path, os.path.getsize(path) - 4)
        monkeypatch.undo()
        return read(path)

    monkeypatch.setattr(weight_files, "read", read_torn)
    with pytest.raises(InputError, match="is damaged"):
        build(weights, stopped)
    found = build(weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    process = build._process
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        build(weights, stopped)
    build.close()
    assert process.returncode == -signal.SIGKILL


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


@pytest.mark.slow
def test_a_mistake_is_told(tmp_path, packed_blocks, stopped):
    build = index_builder.ProcessBuilder(
        str(tmp_path / "exchange"), _arguments("nowhere", packed_blocks)
    )
    with pytest.raises(
        ChildProcessError, match="exit status 2; .*nowhere does not exist"
    ):
        build([], stopped)
    build.close()


def test_the_pipeline_builds_the_same(tmp_path, model_dir, blocks_dir, moved):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    loaded.model.block_embedder.set_weights(weights)
    found = rebuild_index.build_by_pipeline(str(tmp_path), loaded, blocks_dir)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not any(tmp_path.iterdir())
