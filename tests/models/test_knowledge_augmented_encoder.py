"""The encoder and its head against transformers 4.40.2.

tests/golden/README.md says how the goldens were made, and where the two
definitions differ.
"""

import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from realm_tf import losses
from realm_tf.checkpoints import assignment
from realm_tf.checkpoints import hugging_face
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)

GOLDENS = pathlib.Path(__file__).parents[1] / "golden" / "hf_realm_encoder.npz"
TOLERANCE = {"atol": 1e-4, "rtol": 1e-5}
LAYOUT = next(x for x in hugging_face.NAMES.layouts if x.part == "encoder")
MAPPING = hugging_face.NAMES.mapping(LAYOUT, 2)


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDENS) as file:
        return dict(file)


@pytest.fixture(scope="module")
def model(goldens):
    model = KnowledgeAugmentedEncoder(
        BertEncoder(1000, 2, 2, 32, 64, max_sequence_length=40)
    )
    tensors = {
        name.removeprefix("weights/"): array
        for name, array in goldens.items()
        if name.startswith("weights/")
    }
    assignment.assign(
        model,
        MAPPING,
        assignment.Tensors(tensors, "goldens"),
    )
    return model


def _rows(goldens):
    """The model's inputs and the gold ids, one row a candidate."""
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }
    inputs = {
        ours: goldens[f"in/{theirs}"].reshape(8, -1).astype("int32")
        for ours, theirs in names.items()
    }
    inputs["mask_positions"] = goldens["in/mask_positions"].repeat(4, axis=0)
    return inputs, goldens["in/mask_ids"].repeat(4, axis=0)


def _log_probs(model, goldens):
    inputs, mask_ids = _rows(goldens)
    log_probs = losses.masked_lm_log_probs(model(inputs), mask_ids)
    return ops.reshape(log_probs, (2, 4, -1))


def _loss(log_probs, relevance, goldens):
    mask = np.ones((2, 4), bool)
    weights = goldens["in/mask_weights"]
    priors = losses.masked_log_softmax(relevance, mask)
    return -losses.mean_over_masked(
        losses.marginal_log_likelihood(log_probs, priors, weights, mask),
        weights,
    )


def test_logits_are_the_peers(model, goldens):
    inputs, _ = _rows(goldens)
    logits = np.asarray(model(inputs)).reshape(2, 4, 4, 1000)
    expected = goldens["out/logits"]
    masked = np.broadcast_to(
        goldens["in/mask_weights"][:, None] > 0, logits.shape[:3]
    )
    assert np.abs(expected[masked]).max() > 10
    np.testing.assert_allclose(logits[masked], expected[masked], **TOLERANCE)


def test_log_probs_marginals_and_loss_are_the_peers(model, goldens):
    log_probs = np.asarray(_log_probs(model, goldens))
    weights = goldens["in/mask_weights"]
    relevance = goldens["in/relevance_score"]
    np.testing.assert_allclose(
        log_probs * weights[:, None], goldens["out/gold_log_prob"], **TOLERANCE
    )
    mask = np.ones((2, 4), bool)
    priors = losses.masked_log_softmax(relevance, mask)
    np.testing.assert_allclose(
        np.asarray(
            losses.marginal_log_likelihood(log_probs, priors, weights, mask)
        ),
        goldens["out/marginal_gold_log_probs"],
        **TOLERANCE,
    )
    loss = np.asarray(_loss(log_probs, relevance, goldens))
    np.testing.assert_allclose(loss, goldens["out/loss"], **TOLERANCE)
    # Without its mask, it divides by all 80 positions instead of 7.
    np.testing.assert_allclose(
        loss * weights.sum() / 80,
        goldens["out/loss_without_mlm_mask"],
        **TOLERANCE,
    )
    nothing = {"in/mask_weights": np.zeros_like(weights)}
    assert np.asarray(_loss(log_probs, relevance, nothing)) == 0.0
    assert goldens["out/loss_all_masked_out"] == 0.0


def test_span_form_is_the_papers_equation(model, goldens):
    mask = np.ones((2, 4), bool)
    np.testing.assert_allclose(
        np.asarray(
            losses.marginal_log_likelihood(
                _log_probs(model, goldens),
                losses.masked_log_softmax(goldens["in/relevance_score"], mask),
                goldens["in/mask_weights"],
                mask,
                marginalization="span",
            )
        ),
        goldens["paper/sequence_marginal_loglik"],
        **TOLERANCE,
    )


def _gradients(model, goldens):
    """By the relevance scores, and by every trainable variable's path."""
    relevance = goldens["in/relevance_score"]
    variables = model.trainable_variables
    if keras.backend.backend() == "jax":
        import jax

        inputs, mask_ids = _rows(goldens)

        def loss(values, relevance):
            logits, _ = model.stateless_call(
                values, model.non_trainable_variables, inputs, training=False
            )
            log_probs = losses.masked_lm_log_probs(logits, mask_ids)
            return _loss(ops.reshape(log_probs, (2, 4, -1)), relevance, goldens)

        by_variable, by_relevance = jax.jit(jax.grad(loss, (0, 1)))(
            [v.value for v in variables], ops.convert_to_tensor(relevance)
        )
    else:
        import tensorflow as tf

        relevance = tf.Variable(relevance)
        with tf.GradientTape() as tape:
            loss = _loss(_log_probs(model, goldens), relevance, goldens)
        by_variable, by_relevance = tape.gradient(
            loss, ([v.value for v in variables], relevance)
        )
        # Of a table, slices.
        by_variable = [tf.convert_to_tensor(g) for g in by_variable]
    by_path = {
        v.path: np.asarray(g)
        for v, g in zip(variables, by_variable, strict=True)
    }
    return np.asarray(by_relevance), by_path


def test_gradients_are_the_peers(model, goldens):
    by_relevance, by_path = _gradients(model, goldens)
    np.testing.assert_allclose(
        by_relevance, goldens["grad/relevance_score"], **TOLERANCE
    )
    norms = dict(
        zip(
            goldens["grad/param_names"].tolist(),
            goldens["grad/param_norms"],
            strict=True,
        )
    )
    assert set(norms) == set(MAPPING)
    for name, norm in norms.items():
        path, _ = MAPPING[name]
        if path.startswith("pooled_dense"):
            assert norm == 0.0 and path not in by_path
            continue
        np.testing.assert_allclose(
            np.linalg.norm(by_path[path]), norm, **TOLERANCE, err_msg=name
        )


@pytest.fixture
def inputs(token_batch):
    return {**token_batch, "mask_positions": np.array([[1, 5, 2], [1, 0, 0]])}


def test_mixed_precision_keeps_logits_in_float32(
    make_encoder, randomize, inputs
):
    mask_ids = np.array([[7, 9, 11], [13, 0, 0]])
    model = KnowledgeAugmentedEncoder(make_encoder())
    randomize(model, seed=1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = KnowledgeAugmentedEncoder(make_encoder())
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(model.get_weights())
    logits = mixed(inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    logits = np.asarray(logits)
    # Not rounded to the 8 bits of bfloat16 on the way either.
    rounded = ops.cast(ops.cast(logits, "bfloat16"), "float32")
    assert np.mean(np.asarray(rounded) == logits) < 0.1
    np.testing.assert_allclose(
        np.asarray(losses.masked_lm_log_probs(logits, mask_ids)),
        np.asarray(losses.masked_lm_log_probs(model(inputs), mask_ids)),
        atol=0.1,
    )
