"""What is watched in training, against loops and gradients."""

import keras
import numpy as np
import pytest
from gradients import gradient

from realm_tf import losses
from realm_tf import metrics


@pytest.fixture
def world():
    """3 queries, 4 candidates, 3 masks; one query masks nothing."""
    random = np.random.default_rng(0)
    mask = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
    scores = random.normal(0, 2, (3, 4)).astype("float32")
    return {
        "log_probs": -random.gamma(2, 2, (3, 4, 3)).astype("float32"),
        "retrieval_log_probs": np.asarray(
            losses.masked_log_softmax(scores, mask)
        ),
        "mask_weights": np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]]),
        "mask": mask,
    }


@pytest.mark.parametrize("marginalization", losses.MARGINALIZATIONS)
def test_retrieval_gradient_is_the_derivative(world, marginalization):
    pulls = np.asarray(
        metrics.retrieval_gradient(**world, marginalization=marginalization)
    )
    # A log-softmax of log-probabilities is itself.
    scores = world["retrieval_log_probs"]

    def likelihood(scores):
        return keras.ops.sum(
            losses.marginal_log_likelihood(
                world["log_probs"],
                losses.masked_log_softmax(scores, world["mask"]),
                world["mask_weights"],
                world["mask"],
                marginalization=marginalization,
            )
        )

    expected = gradient(likelihood, scores)
    if marginalization == "token":
        expected = expected / np.array([[2], [1], [3]])
    np.testing.assert_allclose(pulls, expected, atol=1e-6)
    np.testing.assert_allclose(pulls.sum(axis=1), 0.0, atol=1e-6)
    assert np.abs(pulls[0]).max() > 0.1
    assert not pulls[1:].any() and not pulls[0, 2]


def test_predictions_are_those_of_the_mixture():
    # Each block alone would say 0 or 2; both together say 1.
    probs = np.array(
        [[[0.55, 0.45, 1e-9]], [[1e-9, 0.45, 0.55]], [[1e-9, 1e-9, 1.0]]]
    )
    logits = np.log(probs)[None] + 3.0
    priors = np.log([[0.5, 0.5, 1.0]]).astype("float32")
    mask = np.array([[True, True, False]])
    predictions = metrics.marginal_predictions(
        logits.astype("float32"), priors, mask
    )
    assert np.asarray(predictions).tolist() == [[1]]
    mask = np.array([[True, False, False]])
    predictions = metrics.marginal_predictions(
        logits.astype("float32"), priors, mask
    )
    assert np.asarray(predictions).tolist() == [[0]]
