import pickle
import time

import numpy as np
import pytest

from realm_tf.artifacts import model_directory
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.beam_pipelines.embed_shard import EmbedShard
from realm_tf.beam_pipelines.embed_shard import length_buckets
from realm_tf.errors import InputError
from realm_tf.operations.embed import Embed


def _ids(*lengths):
    return [np.full(length, 7, "int32") for length in lengths]


def _step(model, blocks, directory, **arguments):
    defaults = {"batch_size": 8, "num_blocks": 11}
    return EmbedShard(
        Model(model),
        Blocks(blocks),
        error_directory=str(directory),
        **{**defaults, **arguments},
    )


def test_length_buckets_are_sorted_and_keep_every_block():
    # Lengths 10, 4, 4, 6, 4: equal ones stay in order.
    batches = length_buckets(_ids(1, 1, 2, 1, 1), _ids(9, 3, 2, 5, 3), 2)
    assert [batch.tolist() for batch in batches] == [[1, 2], [4, 3], [0]]


def test_length_buckets_leave_little_padding():
    lengths = np.random.default_rng(0).integers(1, 285, 4_000)

    def share_of_padding(batches):
        computed = sum(len(b) * lengths[b].max() for b in batches)
        return 1 - lengths.sum() / computed

    bucketed = length_buckets(_ids(*[0] * 4_000), _ids(*lengths), 32)
    assert share_of_padding(np.split(np.arange(4_000), 125)) > 0.4
    assert share_of_padding(bucketed) < 0.02


def test_a_model_is_loaded_once_and_serves_every_shard(
    tmp_path, monkeypatch, model_dir, blocks_dir, embeddings_dir
):
    loads = []
    load = model_directory.load

    def load_and_count(model):
        loads.append(model)
        return load(model)

    monkeypatch.setattr(model_directory, "load", load_and_count)
    made = Embed(
        model=model_dir,
        blocks=blocks_dir,
        output=str(tmp_path / "rows"),
        rows_per_shard=2,
        beam_options=[
            "--direct_num_workers=2",
            "--direct_running_mode=multi_threading",
        ],
    ).run()
    assert loads == [Model(model_dir)]
    assert made.counts["blocks"] == 11
    found, expected = (
        np.concatenate([np.load(path) for path, _ in each.shards])
        for each in (made, Embeddings(embeddings_dir))
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_values_do_not_depend_on_what_came_before(
    tmp_path, model_dir, blocks_dir
):
    # To the bit: which shard a worker gets first is chance.
    shards = [(str(tmp_path / "a"), 0, 3), (str(tmp_path / "b"), 3, 11)]
    results = []
    for order in (shards, shards[::-1]):
        step = _step(model_dir, blocks_dir, tmp_path)
        before = len(pickle.dumps(step))
        step.setup()
        for shard in order:
            assert list(step.process(shard)) == [shard[0]]
        results.append([np.load(path) for path, _, _ in shards])
        # It travels without the model.
        del step._worker
        assert len(pickle.dumps(step)) == before < 1_000
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_damaged_model_is_named(tmp_path, model_dir, blocks_dir):
    loaded = model_directory.load(model_dir)
    model = tmp_path / "model"
    model_directory.save(loaded, str(model))
    (model / "model.weights.h5").write_bytes(b"not HDF5")
    with pytest.raises(InputError, match=r"model\.weights\.h5 is damaged"):
        Embed(
            model=str(model), blocks=blocks_dir, output=str(tmp_path / "output")
        ).run()
    assert not (tmp_path / "output").exists()


def test_a_model_that_gives_no_numbers_is_refused(
    tmp_path, model_dir, blocks_dir
):
    loaded = model_directory.load(model_dir)
    kernel = loaded.model.block_embedder.get_layer("projection").kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    model = str(tmp_path / "model")
    model_directory.save(loaded, model)
    step = _step(model, blocks_dir, tmp_path)
    step.setup()
    with pytest.raises(ValueError, match="not finite"):
        list(step.process((str(tmp_path / "a"), 0, 3)))


@pytest.mark.parametrize(
    "num_processes, line",
    [
        (1, "embed: 300 of 1,000 blocks, 20.0 a second, 0.6 minutes left\n"),
        (
            2,
            "embed: 300 of about 500 blocks of this worker, 20.0 a second, "
            "0.2 minutes left\n",
        ),
        (None, "embed: 300 blocks, 20.0 a second\n"),
    ],
)
def test_progress_has_an_estimate(capsys, monkeypatch, num_processes, line):
    times = iter([0.0, 5.0, 15.0, 16.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    step = _step("m", "b", "o", num_blocks=1_000, num_processes=num_processes)
    progress = step.progress()
    progress.add(100)
    assert capsys.readouterr().err == ""
    progress.add(200)
    assert capsys.readouterr().err == line
    progress.add(1)
    assert capsys.readouterr().err == ""
