"""Every model over an encoder is equal when it was saved and loaded."""

import keras
import numpy as np
import pytest

from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

MAKERS = {
    "encoder": lambda encoder: encoder,
    "embedder": lambda encoder: Embedder(
        encoder, pooling="mean", projection_dim=4, normalize=True
    ),
    "reader": lambda encoder: Reader(
        encoder, span_hidden_dim=6, max_span_width=3, none_span=True
    ),
    "reader of endpoints": lambda encoder: Reader(
        encoder, span_hidden_dim=0, max_span_width=3
    ),
    "knowledge_augmented_encoder": KnowledgeAugmentedEncoder,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_saved_and_loaded(kind, make_encoder, randomize, token_batch, tmp_path):
    model = MAKERS[kind](
        make_encoder(
            activation="gelu",
            dropout=0.3,
            layer_norm_epsilon=1e-5,
            num_relative_buckets=32 * (kind == "encoder"),
        )
    )
    randomize(model, seed=2)
    inputs = dict(token_batch)
    if kind == "knowledge_augmented_encoder":
        inputs["mask_positions"] = np.array([[1, 5, 2], [1, 0, 0]])

    def outputs(model):
        return [np.asarray(x) for x in keras.tree.flatten(model(inputs))]

    config = keras.saving.serialize_keras_object(model)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    # Twice from one config: reading must not use it up.
    for copy in (
        keras.saving.deserialize_keras_object(config),
        keras.saving.deserialize_keras_object(config),
    ):
        assert copy.get_config() == model.get_config()
        copy.load_weights(tmp_path / "model.weights.h5")
        for found, expected in zip(outputs(copy), outputs(model), strict=True):
            np.testing.assert_array_equal(found, expected)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for found, expected in zip(outputs(loaded), outputs(model), strict=True):
        np.testing.assert_array_equal(found, expected)
