import keras
import numpy as np
import pytest
import tiny_models

from realm_tf.artifacts.objects import Blocks
from realm_tf.configs.pretrain import RECIPES
from realm_tf.models import model_directory
from realm_tf.training import run_directory
from realm_tf.training import trainers


@pytest.fixture
def open_qa(model_dir):
    return model_directory.load(model_dir).model


def _layers(encoder):
    return [
        encoder.get_layer(f"transformer_layer_{number}")
        for number in range(encoder.num_layers)
    ]


def _rates(encoder):
    return {
        layer.rate
        for layer in encoder._flatten_layers()
        if isinstance(layer, keras.layers.Dropout)
    }


def test_the_recipe_reaches_every_encoder(open_qa):
    recipe = RECIPES["tiny"].parse(
        [
            "dropout=0.25",
            "gradient_checkpointing=true",
            "num_frozen_layers=1",
            "freeze_word_embeddings=true",
        ]
    )
    trainers.prepare(open_qa, recipe)
    reader, tower = open_qa.reader.encoder, open_qa.query_embedder.encoder
    assert reader is not tower
    for encoder in (reader, tower):
        assert _rates(encoder) == {0.25}
        assert all(layer.recompute for layer in _layers(encoder))
        assert not encoder.get_layer("token_embedding").trainable
    assert not _layers(tower)[0].trainable
    assert all(layer.trainable for layer in _layers(reader))


def test_the_dropout_of_a_projection_is_the_recipes(model_dir):
    tower = model_directory.load(model_dir).model.query_embedder
    layer = tower.get_layer("projection_dropout")
    assert layer.rate == 0.1
    recipe = RECIPES["tiny"].parse(["dropout=0"])
    trainers.set_up(tower, recipe, num_frozen=0)
    assert layer.rate == 0 and not tower.drops_out


def test_who_had_no_dropout_can_be_given_one():
    encoder = tiny_models.encoder(20, dropout=0.0)
    encoder.set_dropout(0.5)
    inputs = {
        name: np.ones((1, 4), "int32")
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    keras.utils.set_random_seed(0)
    one, two, still = (
        np.asarray(encoder(inputs, training=training)["sequence_output"])
        for training in (True, True, False)
    )
    assert not np.allclose(one, two) and not np.allclose(one, still)
    # Each layer's state is one of the model's.
    paths = [v.path for v in encoder.variables]
    assert len([path for path in paths if "seed_generator" in path]) >= 2


def test_blocks_that_the_recipe_cuts_are_told_of(blocks_dir, capsys):
    run_directory.open_blocks(Blocks(blocks_dir), 6)
    told = capsys.readouterr().err
    assert "longer than max_block_length=6" in told
    assert "realm chunk --max-block-length 6" in told
    run_directory.open_blocks(Blocks(blocks_dir), 512)
    assert not capsys.readouterr().err
