"""A model of two others' parts does what each of them does."""

import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.model_card import Card
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import random_weights
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.combine_models import CombineModels
from realm_tf.operations.embed import Embed

SHAPE = {"num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}


def _combine(towers, reader, output):
    made = CombineModels(towers=towers, reader=reader, output=output).run()
    return made.path


@pytest.fixture(scope="module")
def directories(tmp_path_factory, vocabulary_path):
    """Two models of one vocabulary: widths, layers and scales differ."""
    root = tmp_path_factory.mktemp("combined")
    paths = {}
    for seed, (name, layers, dim, cosine) in enumerate(
        (("towers", 1, 4, False), ("reader", 2, 6, True))
    ):
        loaded = random_weights.random(
            vocab=vocabulary_path,
            num_layers=layers,
            projection_dim=dim,
            cosine=cosine,
            seed=seed,
            **SHAPE,
        )
        for variable in loaded.model.trainable_variables:
            if len(variable.shape) > 1:
                variable.assign(25.0 * variable)
        loaded.model.knowledge_augmented_encoder = KnowledgeAugmentedEncoder(
            loaded.model.reader.encoder
        )
        loaded.card = Card(
            f"From {name}.",
            "mit",
            notes=("Small.", name),
            languages=("de", "en", name),
        )
        paths[name] = str(root / name)
        model_directory.save(loaded, paths[name])
    paths["combined"] = _combine(
        paths["towers"], paths["reader"], root / "combined"
    )
    return paths


@pytest.fixture(scope="module")
def models(directories):
    return {
        name: model_directory.load(path) for name, path in directories.items()
    }


def _inputs():
    random = np.random.default_rng(0)
    return {
        "token_ids": random.integers(5, 40, (3, 12)).astype("int32"),
        "segment_ids": np.repeat([[0] * 5 + [1] * 7], 3, 0).astype("int32"),
        "padding_mask": np.ones((3, 12), "int32"),
    }


def test_embeddings_are_those_of_the_towers(models):
    inputs = _inputs()
    for embed in ("embed_queries", "embed_blocks"):
        expected, other, found = (
            np.asarray(getattr(models[name].model, embed)(inputs))
            for name in ("towers", "reader", "combined")
        )
        np.testing.assert_array_equal(found, expected)
        assert found.shape != other.shape
    assert models["combined"].model.score_scale == 1.0
    assert models["reader"].model.score_scale == 20.0
    assert models["combined"].block_segment_ids == (0, 1)
    assert models["combined"].model.share_embedders


def test_scores_are_those_of_the_reader(models):
    inputs = _inputs()
    towers, expected, found = (
        np.asarray(models[name].model.reader(inputs))
        for name in ("towers", "reader", "combined")
    )
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(found, towers)


@pytest.mark.slow
def test_an_index_of_the_towers_fits(directories, blocks_dir, tmp_path):
    embeddings, index = str(tmp_path / "embeddings"), str(tmp_path / "index")
    Embed(
        model=directories["towers"], blocks=blocks_dir, output=embeddings
    ).run()
    BuildIndex(embeddings=embeddings, output=index, kind="brute_force").run()
    corpus = Corpus.load(directories["combined"], blocks_dir, index)
    assert corpus.index.embedding_dim == 4
    with pytest.raises(InputError, match="not made from the block tower of"):
        Corpus.load(directories["reader"], blocks_dir, index)


@pytest.mark.slow
def test_a_licence_that_is_not_shared_is_not_claimed(
    directories, models, tmp_path
):
    other = model_directory.load(directories["reader"])
    other.card = Card("Elsewhere.", "apache-2.0")
    model_directory.save(other, str(tmp_path / "other"))
    both = _combine(directories["towers"], tmp_path / "other", tmp_path / "b")
    assert model_directory.load(both).card.license == "unknown"
    # The same card is handed on as it is.
    towers = directories["towers"]
    same = _combine(towers, towers, tmp_path / "same")
    assert model_directory.load(same).card == models["towers"].card


def test_another_vocabulary_is_refused(directories, vocabulary_path, tmp_path):
    with open(vocabulary_path, encoding="utf-8") as file:
        longer = file.read() + "zebra\n"
    (tmp_path / "vocab.txt").write_text(longer)
    loaded = random_weights.random(
        vocab=str(tmp_path / "vocab.txt"), num_layers=1, **SHAPE
    )
    other, output = str(tmp_path / "other"), str(tmp_path / "output")
    model_directory.save(loaded, other)
    with pytest.raises(InputError, match="different vocabularies"):
        _combine(directories["towers"], other, output)
    assert not Path(output).exists() and not Path(f"{output}.partial").exists()
