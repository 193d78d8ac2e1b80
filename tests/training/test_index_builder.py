"""Those who build indices for a trainer: threads, processes."""

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from realm_tf.models import model_directory
from realm_tf.operations import rebuild_index
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import exchange
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


def test_it_builds_with_its_own_tower(model_dir, packed_blocks, moved, stopped):
    weights, expected = moved
    loaded = model_directory.load(model_dir)
    before = loaded.model.block_embedder.get_weights()
    build = index_builder.builder_in_process(
        loaded, packed_blocks, max_block_length=_LENGTH
    )
    found = build(weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    after = loaded.model.block_embedder.get_weights()
    assert all(map(np.array_equal, before, after))
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        build(weights, stopped)


def _builders(directory, model, blocks, **arguments):
    task = {
        "model": model,
        "blocks": blocks.directory,
        "max_block_length": _LENGTH,
        "precision": "float32",
    }
    return index_builder.ProcessBuilders(
        str(directory), task, num_blocks=len(blocks), **arguments
    )


def _join(directory, *arguments):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "realm_tf.operations.rebuild_index"),
            *("--exchange", str(directory), *arguments),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_killed_processes(tmp_path, model_dir, packed_blocks, moved, stopped):
    weights, expected = moved
    directory = tmp_path / "exchange"
    # Of a run that was lost.
    (directory / "abc").mkdir(parents=True)
    build = _builders(directory, model_dir, packed_blocks, num_processes=2)
    assert [each.name for each in directory.iterdir()] == [exchange.TASK]

    def kill(*numbers):
        for number in numbers:
            os.kill(build._processes[number].pid, signal.SIGKILL)

    threading.Timer(0.5, kill, [0, 1]).start()
    with pytest.raises(ChildProcessError, match="exit status -9"):
        build(weights, stopped)
    # One of two is gone, whatever it was at.
    threading.Timer(0.5, kill, [1]).start()
    found = build(weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    process = build._processes[0]
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
    stopped.set()
    with pytest.raises(concurrent.futures.CancelledError):
        build([-each for each in weights], stopped)
    build.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_others_join(tmp_path, model_dir, packed_blocks, moved, stopped):
    weights, expected = moved
    directory = tmp_path / "exchange"
    build = _builders(directory, model_dir, packed_blocks, num_processes=0)
    other = _join(directory)
    found = build(weights, stopped)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert other.poll() is None
    # As at the end of a run.
    shutil.rmtree(directory)
    other.communicate()
    assert other.returncode == 0


def test_a_process_ends_with_the_trainer(tmp_path, model_dir, packed_blocks):
    _builders(tmp_path / "exchange", model_dir, packed_blocks)
    process = _join(tmp_path / "exchange", "--with-trainer")
    process.communicate()
    assert process.returncode == 0


def test_nothing_to_join(tmp_path, capsys):
    assert rebuild_index.build(exchange=str(tmp_path)) == 2
    assert "no training with refresh=process" in capsys.readouterr().err


@pytest.mark.slow
def test_a_mistake_is_told(tmp_path, packed_blocks, stopped):
    build = _builders(tmp_path / "exchange", "nowhere", packed_blocks)
    with pytest.raises(
        ChildProcessError, match="exit status 2; .*nowhere does not exist"
    ):
        build([], stopped)
    build.close()
