import sys

import numpy as np
import pytest

from realm_tf.artifacts.objects import Blocks
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.embedder import Embedder
from realm_tf.operations.embed import Embed
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.retrieval.int8_tower import Int8Tower


def _cosines(one, two):
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return (one * two).sum(axis=1) / norms


@pytest.mark.parametrize(
    ("activation", "arguments"),
    [
        ("gelu_approximate", {"projection_dim": 6}),
        (
            "gelu",
            {"pooling": "mean", "projection_dim": None, "normalize": True},
        ),
        (
            "gelu",
            {"pooling": "first", "projection_dim": None, "prefix_ids": (5, 6)},
        ),
    ],
    ids=["projected", "mean", "prompt"],
)
def test_it_is_the_tower_but_for_rounding(
    make_encoder, token_batch, randomize, activation, arguments
):
    tower = Embedder(make_encoder(activation=activation), **arguments)
    randomize(tower)
    rounded = Int8Tower(tower)
    assert rounded.embedding_dim == tower.embedding_dim
    expected = np.asarray(tower(token_batch))
    found = rounded.predict_on_batch(token_batch)
    assert found.dtype == "float32" and found.shape == expected.shape
    assert _cosines(found, expected).min() > 0.99
    assert np.abs(found - expected).max() > 1e-5


def test_blocks_are_embedded_in_batches_as_others_are(
    tmp_path, model_dir, blocks_dir
):
    made = Embed(
        model=model_dir,
        blocks=blocks_dir,
        output=tmp_path / "rows",
        precision="int8",
    ).run()
    assert made.parameters["precision"] == "int8"
    (found,) = (np.load(path) for path, _ in made.shards)
    loaded = model_directory.load(model_dir)
    blocks = list(Blocks(blocks_dir).read())
    expected, _ = BlockEmbedder(loaded, max_length=20).embed_ids(
        [block.title_ids for block in blocks],
        [block.token_ids for block in blocks],
    )
    assert _cosines(found, expected).min() > 0.99


def test_what_is_not_installed_is_named(make_encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install .realm-tf\[int8\]"):
        Int8Tower(Embedder(make_encoder()))
