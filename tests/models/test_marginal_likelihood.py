"""The layer in a Functional model, beside the functions it is made of."""

import keras
import numpy as np
import pytest
from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.marginal_likelihood import MarginalLikelihood
from realm_tf.models.packing import JoinBert


@pytest.fixture
def inputs():
    random = np.random.default_rng(0)
    return {
        "log_probs": -random.gamma(2, 2, (2, 3, 4)).astype("float32"),
        "query_embeddings": random.normal(size=(2, 5)).astype("float32"),
        "block_embeddings": random.normal(size=(2, 3, 5)).astype("float32"),
        "mask_weights": np.array([[1, 1, 0, 0], [1, 0, 0, 0]], "float32"),
        "candidate_mask": np.array([[True, True, False], [True] * 3]),
    }


def _expected(inputs, marginalization):
    log_probs, queries, blocks, weights, mask = inputs.values()
    priors = losses.retrieval_log_probs(queries, blocks, mask)
    arguments = (log_probs, priors, weights, mask)
    marginal = losses.marginal_log_likelihood(
        *arguments, marginalization=marginalization
    )
    return {
        "retrieval_log_probs": priors,
        "marginal_log_likelihood": marginal,
        "retrieval_utility": metrics.retrieval_utility(*arguments),
    }, -losses.mean_over_masked(marginal, weights)


@pytest.mark.parametrize("marginalization", losses.MARGINALIZATIONS)
def test_a_functional_model_gives_what_the_functions_give(
    inputs, marginalization
):
    symbolic = {
        name: keras.Input(array.shape[1:], dtype=str(array.dtype), name=name)
        for name, array in inputs.items()
    }
    layer = MarginalLikelihood(marginalization)
    model = keras.Model(symbolic, layer(**symbolic))
    copy = keras.Model.from_config(model.get_config())
    expected, loss = _expected(inputs, marginalization)
    for each in (model, copy):
        outputs = each(inputs)
        assert set(outputs) == set(expected)
        np.testing.assert_allclose(
            np.asarray(each.losses[0]), np.asarray(loss), atol=1e-6
        )
        for name, value in expected.items():
            np.testing.assert_allclose(
                np.asarray(outputs[name]), np.asarray(value), atol=1e-6
            )


def test_mixed_precision_leaves_it_in_float32(inputs):
    expected, _ = _expected(inputs, "token")
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        outputs = MarginalLikelihood()(**inputs)
    finally:
        keras.config.set_dtype_policy("float32")
    for name, value in expected.items():
        np.testing.assert_allclose(
            np.asarray(outputs[name]), np.asarray(value), atol=1e-6
        )


def test_serialised_and_back_it_is_equal():
    layer = MarginalLikelihood("span", name="likelihood")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert copy.get_config() == layer.get_config()
    assert copy.marginalization == "span"
    assert copy.compute_dtype == "float32"


def test_an_unknown_marginalization_is_refused():
    with pytest.raises(ValueError, match="marginalization='all'"):
        MarginalLikelihood("all")


def test_the_chain_goes_downhill_with_fit(make_encoder):
    """Join, encode, marginalise, as one Functional model."""
    num_candidates, num_masks = 3, 1
    encoder = KnowledgeAugmentedEncoder(make_encoder(num_layers=1, dropout=0.0))
    symbolic = {
        "query_ids": keras.Input((4,), dtype="int32", name="query_ids"),
        "block_ids": keras.Input((3, 2), dtype="int32", name="block_ids"),
        "block_lengths": keras.Input((3,), dtype="int32", name="block_lengths"),
        "mask_ids": keras.Input((1,), dtype="int32", name="mask_ids"),
        "query_embeddings": keras.Input((3,), name="query_embeddings"),
        "block_embeddings": keras.Input((3, 3), name="block_embeddings"),
    }
    joined = JoinBert(sep_id=3)(
        symbolic["query_ids"],
        ops.ones_like(symbolic["query_ids"]),
        symbolic["block_ids"],
        symbolic["block_lengths"],
    )
    # (b * k, m)
    mask_ids = ops.repeat(symbolic["mask_ids"], num_candidates, axis=0)
    logits = encoder({**joined, "mask_positions": ops.ones_like(mask_ids)})
    log_probs = ops.reshape(
        losses.masked_lm_log_probs(logits, mask_ids),
        (-1, num_candidates, num_masks),
    )
    projection = keras.layers.Dense(3, kernel_initializer="identity")
    outputs = MarginalLikelihood()(
        log_probs,
        projection(symbolic["query_embeddings"]),
        symbolic["block_embeddings"],
        ops.ones_like(symbolic["mask_ids"]),
        ops.ones_like(symbolic["block_lengths"], dtype="bool"),
    )
    model = keras.Model(symbolic, outputs)
    data = {
        "query_ids": np.array([[2, 4, 11, 3], [2, 4, 12, 3]]),
        # The null block, then one that holds the word, then another one.
        "block_ids": np.array(
            [[[0, 0], [21, 21], [22, 23]], [[0, 0], [31, 31], [22, 23]]]
        ),
        "block_lengths": np.array([[0, 2, 2]] * 2),
        "mask_ids": np.array([[21], [31]]),
        "query_embeddings": np.eye(2, 3, dtype="float32"),
        "block_embeddings": np.eye(3, dtype="float32")[None].repeat(2, 0),
    }
    model.compile(
        keras.optimizers.SGD(0.01),
        # Tracing takes longer than three steps; JAX compiles either way.
        run_eagerly=keras.backend.backend() == "tensorflow",
    )
    before = projection.get_weights()[0]
    history = model.fit(data, epochs=3, verbose=0).history["loss"]
    # Nothing is drawn at random: each step goes down.
    assert (np.diff(history) < -1e-3).all(), history
    # The retriever learned too.
    assert np.abs(projection.get_weights()[0] - before).max() > 1e-5
