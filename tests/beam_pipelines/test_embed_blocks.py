import functools
import os

import numpy as np
import pytest
from one_row import one_row

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.embed import Embed

_load = model_directory.load


@pytest.fixture(autouse=True, scope="module")
def load_once():
    """Loads a model once for all runs: most of their time is compiling."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_directory, "load", functools.cache(_load))
        yield


def _rows(directory):
    """All rows, read as a user would."""
    names = artifact.read(str(directory), kind="embeddings")["shards"]
    return np.concatenate([np.load(f"{directory}/{name}") for name in names])


def _embed(model, blocks, output, **arguments):
    made = Embed(
        model=model, blocks=blocks, output=str(output), **arguments
    ).run()
    return made.counts, _rows(output)


@pytest.fixture(scope="module")
def expected(model_dir, blocks_dir):
    """Each block by itself, packed by hand, without any padding."""
    loaded = model_directory.load(model_dir)
    tokenizer = loaded.tokenizer
    rows = []
    for block in Blocks(blocks_dir).read():
        title = [tokenizer.cls_id, *block.title_ids, tokenizer.sep_id]
        body = [*block.token_ids, tokenizer.sep_id]
        segments = [0] * len(title) + [1] * len(body)
        rows.append(
            loaded.model.block_embedder(one_row(title + body, segments))
        )
    return np.concatenate(rows)


def test_against_a_direct_computation(embeddings_dir, expected):
    rows = _rows(embeddings_dir)
    assert rows.dtype == "float32"
    np.testing.assert_allclose(rows, expected, atol=1e-5)


@pytest.mark.parametrize(
    "batch_size, rows_per_shard", [(1, 40_000), (3, 4), (32, 1)]
)
def test_batches_and_shards_change_nothing(
    tmp_path, model_dir, blocks_dir, expected, batch_size, rows_per_shard
):
    counts, rows = _embed(
        model_dir,
        blocks_dir,
        tmp_path / "embeddings",
        batch_size=batch_size,
        rows_per_shard=rows_per_shard,
    )
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    num_shards = -(-11 // rows_per_shard)
    assert counts["shards"] == num_shards
    assert counts["shards_skipped"] == 0


def test_bfloat16_rounds_the_rows(
    tmp_path, model_dir, blocks_dir, embeddings_dir, expected
):
    made = Embed(
        model=model_dir,
        blocks=blocks_dir,
        output=tmp_path / "embeddings",
        precision="bfloat16",
    ).run()
    rows = _rows(made.path)
    assert rows.dtype == "float32"
    cosines = (rows * expected).sum(axis=1) / (
        np.linalg.norm(rows, axis=1) * np.linalg.norm(expected, axis=1)
    )
    assert cosines.min() > 0.999
    assert np.abs(rows - expected).max() > 1e-4
    assert made.parameters["precision"] == "bfloat16"
    assert made.fingerprint != Embeddings(embeddings_dir).fingerprint


def test_what_the_directory_says(embeddings_dir, model_dir, blocks_dir):
    metadata = artifact.read(embeddings_dir, kind="embeddings")
    blocks = artifact.read(blocks_dir, kind="blocks")
    model = artifact.read(model_dir, kind="model")
    assert metadata["parents"] == {
        "blocks": blocks["fingerprint"],
        "block_tower": model["block_tower"],
    }
    assert metadata["num_blocks"] == 11
    assert metadata["dtype"] == "float32"
    assert metadata["shards"] == [
        "embeddings-00000-of-00003.npy",
        "embeddings-00001-of-00003.npy",
        "embeddings-00002-of-00003.npy",
    ]
    assert sorted(os.listdir(embeddings_dir)) == [
        "COMPLETED",
        *metadata["shards"],
        "metadata.json",
    ]
    sizes = [
        len(np.load(f"{embeddings_dir}/{name}")) for name in metadata["shards"]
    ]
    assert sizes == [5, 5, 1]


def test_what_does_not_belong_together(tmp_path, model_dir, blocks_dir):
    loaded = _load(model_dir)
    tokenizer = type(loaded.tokenizer)(
        loaded.tokenizer.vocabulary, lowercase=False
    )
    model = str(tmp_path / "model")
    model_directory.save(
        model_directory.LoadedModel(loaded.model, tokenizer), model
    )
    with pytest.raises(
        InputError, match=f"{model} have different vocabularies"
    ):
        _embed(model, blocks_dir, tmp_path / "embeddings")
    with pytest.raises(InputError, match="holds 'blocks', expected 'model'"):
        _embed(blocks_dir, blocks_dir, tmp_path / "embeddings")
    with pytest.raises(InputError, match="holds 'model', expected 'blocks'"):
        _embed(model_dir, model_dir, tmp_path / "embeddings")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"batch_size": 0}, "--batch-size 0: expected 1 or more"),
        ({"rows_per_shard": -1}, "--rows-per-shard -1: expected 1 or more"),
        ({"beam_options": ["--no-such-option=1"]}, "--no-such-option"),
    ],
)
def test_wrong_arguments(tmp_path, model_dir, blocks_dir, arguments, reason):
    with pytest.raises(InputError, match=reason):
        _embed(model_dir, blocks_dir, tmp_path / "embeddings", **arguments)
    assert not os.listdir(tmp_path)
