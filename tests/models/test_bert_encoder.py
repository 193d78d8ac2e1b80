"""The encoder against BERT's equations in numpy float64."""

import math

import numpy as np
import pytest

from realm_tf.models.bert_encoder import BertEncoder

GELU = {
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "gelu_approximate": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
}


def _layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    normed = centred / np.sqrt(variance + 1e-12)
    return normed * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def _numpy_bert(encoder, inputs):
    """Devlin et al., 2018: post-LayerNorm Transformer, one row at a time."""
    weights = {
        v.path: np.asarray(v, dtype="float64")
        for v in encoder.variables
        if "seed_generator" not in v.path
    }
    outputs = []
    for ids, segments, mask in zip(*inputs.values(), strict=True):
        x = (
            weights["token_embedding/embeddings"][ids]
            + weights["position_embedding/embeddings"][: len(ids)]
            + weights["segment_embedding/embeddings"][segments]
        )
        x = _layer_norm(x, weights, "embeddings_layer_norm")
        for layer in range(encoder.num_layers):
            x = _numpy_layer(
                x, mask, weights, f"transformer_layer_{layer}", encoder
            )
        outputs.append(x)
    sequence = np.stack(outputs)
    pooled = np.tanh(
        sequence[:, 0] @ weights["pooled_dense/kernel"]
        + weights["pooled_dense/bias"]
    )
    return {"sequence_output": sequence, "pooled_output": pooled}


def _numpy_layer(x, mask, weights, layer, encoder):
    attention = f"{layer}/self_attention_layer"

    def heads(name):
        # (heads, l, d)
        kernel = weights[f"{attention}/{name}/kernel"]
        bias = weights[f"{attention}/{name}/bias"]
        return np.einsum("lh,hnd->nld", x, kernel) + bias[:, None]

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = np.einsum("nld,nmd->nlm", query, key) / np.sqrt(query.shape[-1])
    scores[:, :, mask == 0] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    attended = np.einsum(
        "nlm,nmd,ndh->lh",
        shares,
        value,
        weights[f"{attention}/attention_output/kernel"],
    )
    attended += weights[f"{attention}/attention_output/bias"]
    x = _layer_norm(x + attended, weights, f"{attention}_norm")
    inner = GELU[encoder.activation](
        x @ weights[f"{layer}/feedforward_intermediate_dense/kernel"]
        + weights[f"{layer}/feedforward_intermediate_dense/bias"]
    )
    outer = (
        inner @ weights[f"{layer}/feedforward_output_dense/kernel"]
        + weights[f"{layer}/feedforward_output_dense/bias"]
    )
    return _layer_norm(x + outer, weights, f"{layer}/feedforward_layer_norm")


@pytest.mark.parametrize("activation", GELU)
def test_outputs_are_those_of_the_equations(
    make_encoder, token_batch, activation
):
    encoder = make_encoder(activation=activation)
    outputs = encoder(token_batch)
    expected = _numpy_bert(encoder, token_batch)
    kept = token_batch["padding_mask"] == 1
    np.testing.assert_allclose(
        np.asarray(outputs["sequence_output"])[kept],
        expected["sequence_output"][kept],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        np.asarray(outputs["pooled_output"]),
        expected["pooled_output"],
        atol=1e-5,
    )


def test_the_two_gelus_differ_in_the_fourth_digit(make_encoder, token_batch):
    exact = make_encoder(activation="gelu")
    approximate = make_encoder(activation="gelu_approximate")
    difference = np.abs(
        np.asarray(exact(token_batch)["pooled_output"])
        - np.asarray(approximate(token_batch)["pooled_output"])
    ).max()
    assert 1e-5 < difference < 1e-2


def test_padding_changes_nothing(make_encoder, token_batch):
    encoder = make_encoder()
    outputs = encoder(token_batch)
    # Wordpieces where the mask is 0 are not read either.
    padded = {
        name: np.pad(array, [[0, 0], [0, 4]], constant_values=value)
        for (name, array), value in zip(
            token_batch.items(), (17, 1, 0), strict=True
        )
    }
    wider = encoder(padded)
    kept = token_batch["padding_mask"] == 1
    np.testing.assert_allclose(
        np.asarray(wider["sequence_output"])[:, :7][kept],
        np.asarray(outputs["sequence_output"])[kept],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        np.asarray(wider["pooled_output"]),
        np.asarray(outputs["pooled_output"]),
        atol=1e-5,
    )


def test_dropout_is_for_training_only(make_encoder, token_batch):
    encoder = make_encoder(dropout=0.5)
    calm = np.asarray(encoder(token_batch)["pooled_output"])
    np.testing.assert_array_equal(
        np.asarray(encoder(token_batch)["pooled_output"]), calm
    )
    trained = np.asarray(encoder(token_batch, training=True)["pooled_output"])
    assert np.abs(trained - calm).max() > 1e-2


def test_freeze_leaves_the_upper_part_trainable(make_encoder):
    encoder = make_encoder(num_layers=3)
    assert len(encoder.trainable_variables) == len(encoder.weights)
    encoder.freeze(embeddings=True, num_layers=2)
    assert {v.path.split("/")[0] for v in encoder.trainable_variables} == {
        "transformer_layer_2",
        "pooled_dense",
    }
    assert {v.path.split("/")[0] for v in encoder.non_trainable_weights} == {
        "token_embedding",
        "position_embedding",
        "segment_embedding",
        "embeddings_layer_norm",
        "transformer_layer_0",
        "transformer_layer_1",
    }


def test_layers_can_be_frozen_without_the_embeddings(make_encoder):
    encoder = make_encoder()
    encoder.freeze(num_layers=1)
    frozen = {v.path.split("/")[0] for v in encoder.non_trainable_weights}
    assert frozen == {"transformer_layer_0"}


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='relu'"):
        BertEncoder(9, 1, 1, 4, 8, activation="relu")
