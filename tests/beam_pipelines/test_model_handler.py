import os
import pickle
import time

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.inference.base import RunInference

from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts import schema
from realm_tf.beam_pipelines.execution import pipeline_options
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.beam_pipelines.model_handler import BlockModelHandler
from realm_tf.beam_pipelines.model_handler import Shard
from realm_tf.beam_pipelines.model_handler import length_buckets
from realm_tf.errors import InputError
from realm_tf.operations.embed import Embed


def _ids(*lengths):
    return [np.full(length, 7, "int32") for length in lengths]


def _handler(model_dir, directory, **arguments):
    defaults = {"max_length": 20, "num_blocks": 11}
    return BlockModelHandler(
        model_dir, error_directory=str(directory), **{**defaults, **arguments}
    )


def _shard(path, blocks_dir, *, rows=slice(None), batch_size=2):
    blocks = list(schema.read_blocks(blocks_dir))[rows]
    return Shard(
        path,
        length_buckets(
            [np.array(block.title_ids, "int32") for block in blocks],
            [np.array(block.token_ids, "int32") for block in blocks],
            batch_size=batch_size,
        ),
    )


def test_length_buckets_are_sorted_and_keep_every_block():
    batches = length_buckets(
        _ids(1, 1, 2, 1, 1), _ids(9, 3, 2, 5, 3), batch_size=2
    )
    # Lengths 10, 4, 4, 6, 4: equal ones stay in order.
    assert [batch.rows.tolist() for batch in batches] == [[1, 2], [4, 3], [0]]
    assert [len(ids) for ids in batches[0].title_ids] == [1, 2]
    assert [len(ids) for ids in batches[0].token_ids] == [3, 2]
    assert [len(ids) for ids in batches[2].token_ids] == [9]
    assert Shard("path", batches).num_rows == 5


def test_length_buckets_leave_little_padding():
    lengths = np.random.default_rng(0).integers(1, 285, 4_000)

    def share_of_padding(batches):
        computed = sum(len(ids) * max(map(len, ids)) for ids in batches)
        return 1 - lengths.sum() / computed

    token_ids = _ids(*lengths)
    by_id = [token_ids[i : i + 32] for i in range(0, len(token_ids), 32)]
    bucketed = length_buckets(_ids(*[0] * 4_000), token_ids, batch_size=32)
    assert share_of_padding(by_id) > 0.4
    assert share_of_padding([batch.token_ids for batch in bucketed]) < 0.02


def test_a_model_is_loaded_once_and_serves_every_shard(
    tmp_path, monkeypatch, model_dir, blocks_dir, embeddings_dir
):
    loads = []
    load = model_directory.load

    def load_and_count(directory):
        loads.append(directory)
        return load(directory)

    monkeypatch.setattr(model_directory, "load", load_and_count)
    found = {}
    handler = _handler(model_dir, tmp_path).with_no_batching()
    shards = [
        [_shard(str(first), blocks_dir, rows=slice(first, first + 4))]
        for first in (0, 4, 8)
    ]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(shards)
            | beam.Reshuffle()
            | RunInference(handler)
            | beam.Map(
                lambda prediction: np.save(
                    tmp_path / prediction[0], prediction[1]
                )
            )
        )

    counters = run_pipeline(build, pipeline_options())
    assert loads == [model_dir]
    assert counters["blocks"] == 11
    # What RunInference itself counts: its examples are shards.
    assert counters["num_inferences"] == 3
    found = np.concatenate(
        [np.load(tmp_path / f"{first}.npy") for first in (0, 4, 8)]
    )
    expected = np.concatenate(
        [
            np.load(os.path.join(embeddings_dir, name))
            for name in artifact.read(embeddings_dir, kind="embeddings")[
                "shards"
            ]
        ]
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_values_do_not_depend_on_what_came_before(
    tmp_path, model_dir, blocks_dir
):
    # To the bit: which shard a worker gets first is chance.
    shards = [
        _shard("a", blocks_dir, rows=slice(0, 3), batch_size=3),
        _shard("b", blocks_dir, rows=slice(3, 11), batch_size=8),
    ]
    results = []
    for order in (shards, shards[::-1]):
        handler = _handler(model_dir, tmp_path)
        found = dict(handler.run_inference(order, handler.load_model()))
        results.append([found["a"], found["b"]])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_the_handler_travels_without_the_model(tmp_path, model_dir, blocks_dir):
    handler = _handler(model_dir, tmp_path)
    before = len(pickle.dumps(handler))
    model = handler.load_model()
    list(handler.run_inference([_shard("a", blocks_dir)], model))
    assert len(pickle.dumps(handler)) == before < 1_000
    assert not handler.share_model_across_processes()


def test_num_bytes_counts_wordpieces(tmp_path, model_dir):
    batches = length_buckets(_ids(1, 2), _ids(3, 4), batch_size=1)
    handler = _handler(model_dir, tmp_path)
    assert handler.get_num_bytes([Shard("a", batches)]) == 4 * (1 + 2 + 3 + 4)


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
    handler = _handler(model, tmp_path)
    with pytest.raises(ValueError, match="not finite"):
        list(
            handler.run_inference(
                [_shard("a", blocks_dir)], handler.load_model()
            )
        )


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
    progress = BlockModelHandler(
        "model",
        max_length=8,
        error_directory="out",
        num_blocks=1_000,
        num_processes=num_processes,
    ).progress()
    progress.add(100)
    assert capsys.readouterr().err == ""
    progress.add(200)
    assert capsys.readouterr().err == line
    progress.add(1)
    assert capsys.readouterr().err == ""
