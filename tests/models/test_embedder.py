"""Pooling, projection and normalisation against numpy."""

import numpy as np
import pytest

from realm_tf.models.embedder import Embedder


def _weights(embedder, name):
    return [np.asarray(v, "float64") for v in embedder.get_layer(name).weights]


def _numpy_embeddings(embedder, inputs):
    encoded = {
        name: np.asarray(value, "float64")
        for name, value in embedder.encoder(inputs).items()
    }
    if embedder.pooling == "cls":
        x = encoded["pooled_output"]
    else:
        x = np.stack(
            [
                row[mask == 1].mean(axis=0)
                for row, mask in zip(
                    encoded["sequence_output"],
                    inputs["padding_mask"],
                    strict=True,
                )
            ]
        )
    if embedder.projection_dim is not None:
        kernel, bias = _weights(embedder, "projection")
        gamma, beta = _weights(embedder, "projection_layer_norm")
        x = x @ kernel + bias
        x = x - x.mean(-1, keepdims=True)
        variance = (x**2).mean(-1, keepdims=True)
        x = x / np.sqrt(variance + embedder.layer_norm_epsilon) * gamma + beta
    if embedder.normalize:
        x = x / np.sqrt((x**2).sum(-1, keepdims=True))
    return x


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(
    ("projection_dim", "normalize"), [(5, False), (None, True), (5, True)]
)
def test_embeddings_against_numpy(
    make_encoder, randomize, token_batch, pooling, projection_dim, normalize
):
    embedder = Embedder(
        make_encoder(),
        pooling=pooling,
        projection_dim=projection_dim,
        normalize=normalize,
        layer_norm_epsilon=1e-3,
    )
    randomize(embedder)
    embeddings = np.asarray(embedder(token_batch))
    assert embeddings.shape == (2, embedder.embedding_dim)
    np.testing.assert_allclose(
        embeddings, _numpy_embeddings(embedder, token_batch), atol=1e-5
    )
    if normalize:
        np.testing.assert_allclose(
            np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-6
        )


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_nothing(make_encoder, token_batch, pooling):
    embedder = Embedder(make_encoder(), pooling=pooling, projection_dim=None)
    row = {name: array[1:, :3] for name, array in token_batch.items()}
    np.testing.assert_allclose(
        np.asarray(embedder(row))[0],
        np.asarray(embedder(token_batch))[1],
        atol=1e-5,
    )


def test_a_row_of_padding_is_zero_and_not_nan(make_encoder, token_batch):
    embedder = Embedder(
        make_encoder(), pooling="mean", projection_dim=None, normalize=True
    )
    inputs = {
        **token_batch,
        "padding_mask": np.zeros_like(token_batch["padding_mask"]),
    }
    np.testing.assert_array_equal(np.asarray(embedder(inputs)), 0.0)


def test_what_is_not_read_is_not_trained(make_encoder):
    mean = Embedder(make_encoder(), pooling="mean", projection_dim=None)
    assert not mean.encoder.get_layer("pooled_dense").trainable
    assert {v.path.split("/")[0] for v in mean.non_trainable_weights} == {
        "pooled_dense"
    }
    assert not Embedder(make_encoder()).non_trainable_weights


def test_an_unknown_pooling_is_refused(make_encoder):
    with pytest.raises(ValueError, match="pooling='max'"):
        Embedder(make_encoder(), pooling="max")
