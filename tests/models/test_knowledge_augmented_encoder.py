"""The encoder and its head against transformers 4.40.2.

tests/golden/README.md says how the goldens were made, and where the two
definitions differ.
"""

import pathlib

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
    assignment.assign(model, MAPPING, assignment.Tensors(tensors, "goldens"))
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


def test_log_probs_marginals_and_loss_are_the_peers(model, goldens):
    log_probs = np.asarray(_log_probs(model, goldens))
    weights = goldens["in/mask_weights"]
    np.testing.assert_allclose(
        log_probs * weights[:, None], goldens["out/gold_log_prob"], **TOLERANCE
    )
    mask = np.ones((2, 4), bool)
    priors = losses.masked_log_softmax(goldens["in/relevance_score"], mask)
    # The peer has the token form; the paper's equation is the span form.
    token, span = (
        losses.marginal_log_likelihood(
            log_probs, priors, weights, mask, marginalization=form
        )
        for form in ("token", "span")
    )
    for found, name in (
        (token, "out/marginal_gold_log_probs"),
        (span, "paper/sequence_marginal_loglik"),
        (-losses.mean_over_masked(token, weights), "out/loss"),
    ):
        np.testing.assert_allclose(
            np.asarray(found), goldens[name], **TOLERANCE
        )
