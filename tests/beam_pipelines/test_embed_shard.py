import pickle
import re

import numpy as np
import pytest
from beam_runs import TWO_THREADS

from realm_tf import progress
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.beam_pipelines.embed_blocks import EmbedShard
from realm_tf.beam_pipelines.resumable import Shard
from realm_tf.beam_pipelines.resumable import ShardProgress
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.embed import Embed


def _step(model, blocks, directory):
    shards = [
        Shard(str(directory / "embeddings-a.npy"), 0, 3),
        Shard(str(directory / "embeddings-b.npy"), 3, 11),
    ]
    step = EmbedShard(
        model=Model(model),
        blocks=Blocks(blocks),
        batch_size=3,
        precision="float32",
        directory=str(directory),
        progress=ShardProgress("embed", "blocks", shards),
    )
    return step, shards


def test_a_model_is_loaded_once_and_serves_every_shard(
    tmp_path, monkeypatch, model_dir, blocks_dir, embeddings_dir
):
    loads = []
    load = model_directory.load

    def load_and_count(model, **arguments):
        loads.append(model)
        return load(model, **arguments)

    monkeypatch.setattr(model_directory, "load", load_and_count)
    made = Embed(
        model=model_dir,
        blocks=blocks_dir,
        output=str(tmp_path / "rows"),
        rows_per_shard=2,
        beam_options=TWO_THREADS,
    ).run()
    assert loads == [Model(model_dir)]
    assert made.counts == {"shards": 6, "shards_skipped": 0}
    found, expected = (
        each.read() for each in (made, Embeddings(embeddings_dir))
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_values_do_not_depend_on_the_past(tmp_path, model_dir, blocks_dir):
    # To the bit: which shard a worker gets first is chance.
    results = []
    for direction in (1, -1):
        step, shards = _step(model_dir, blocks_dir, tmp_path)
        before = len(pickle.dumps(step))
        step.setup()
        for shard in shards[::direction]:
            step.process(shard)
        results.append([np.load(shard.path) for shard in shards])
        # It travels without the model.
        del step._tower
        assert len(pickle.dumps(step)) == before < 2_000
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_model_that_gives_no_numbers(tmp_path, model_dir, blocks_dir):
    loaded = model_directory.load(model_dir)
    kernel = loaded.model.block_embedder.get_layer("projection").kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    model = str(tmp_path / "model")
    model_directory.save(loaded, model)
    with pytest.raises(InputError, match="norm nan, .*: the weights of the mo"):
        Embed(
            model=model, blocks=blocks_dir, output=str(tmp_path / "rows")
        ).run()


def test_progress_counts_what_all_workers_have_done(
    tmp_path, model_dir, blocks_dir, capsys, monkeypatch
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1)
    step, shards = _step(model_dir, blocks_dir, tmp_path)
    # Of an earlier run, or of another worker.
    np.save(shards[0].path, np.zeros((3, 8)))
    step.setup()
    step.process(shards[1])
    lines = capsys.readouterr().err.splitlines()
    counts = [
        int(re.fullmatch(r"embed: (\d+) of 11 blocks,.*", line)[1])
        for line in lines
    ]
    # Two batches are computed at once, and either may end first.
    steps = np.diff([3, *counts]).tolist()
    assert sorted(steps) == [2, 3, 3]
    assert lines[-1].endswith(", 0.0 minutes left")
