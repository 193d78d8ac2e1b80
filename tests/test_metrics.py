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


def _priors(world):
    return np.exp(world["retrieval_log_probs"].astype("float64"))


def test_entropy(world):
    priors = _priors(world)
    expected = [
        -sum(p * np.log(p) for p, m in zip(row, mask, strict=True) if m)
        for row, mask in zip(priors, world["mask"], strict=True)
    ]
    entropy = np.asarray(
        metrics.retrieval_entropy(world["retrieval_log_probs"], world["mask"])
    )
    np.testing.assert_allclose(entropy, expected, atol=1e-6)
    assert entropy[2] == 0.0
    uniform = np.full((1, 8), -np.log(8.0), "float32")
    np.testing.assert_allclose(
        np.asarray(metrics.retrieval_entropy(uniform, uniform < 0)),
        [np.log(8.0)],
        rtol=1e-6,
    )


def test_retrieval_utility_is_the_gain_over_the_null_block(world):
    utility = np.asarray(metrics.retrieval_utility(**world))
    priors = _priors(world)
    for b, m in np.ndindex(3, 3):
        expected = 0.0
        if world["mask_weights"][b, m]:
            probs = np.exp(world["log_probs"][b, :, m].astype("float64"))
            average = sum(
                priors[b, k] * probs[k]
                for k in np.flatnonzero(world["mask"][b])
            )
            expected = np.log(average / probs[0])
        np.testing.assert_allclose(utility[b, m], expected, atol=1e-5)
    # The last query has the null block alone.
    np.testing.assert_allclose(utility[2], 0.0, atol=1e-6)
    assert np.abs(utility[0, :2]).min() > 0.1


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


def test_in_batch_ranks_against_a_loop():
    random = np.random.default_rng(3)
    # Integers, so that scores are equal often.
    queries = random.integers(-1, 2, size=(40, 3)).astype("float32")
    blocks = random.integers(-1, 2, size=(12, 3)).astype("float32")
    targets = random.integers(0, 12, size=40).astype("int32")
    mask = random.random((40, 12)) < 0.8
    mask[np.arange(40), targets] = True
    arguments = queries, blocks, targets, mask
    found = np.asarray(metrics.in_batch_ranks(*arguments))
    for row in range(40):
        scores = blocks @ queries[row]
        order = sorted(np.flatnonzero(mask[row]), key=lambda j: (-scores[j], j))
        assert found[row] == 1 + order.index(targets[row])
    assert found.max() > 6
    # A rank of 1 is what the loss calls correct.
    correct = np.asarray(losses.in_batch_softmax(*arguments)[1])
    np.testing.assert_array_equal(found == 1, correct)
    assert 0 < correct.sum() < 40
