"""Losses against a float64 loop, and at the edges."""

import keras
import numpy as np
import pytest

from realm_tf import losses


def _gradient(function, scores):
    """d sum(function) / d scores, on either backend."""
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(
            jax.grad(lambda s: keras.ops.sum(function(s)))(
                keras.ops.convert_to_tensor(scores)
            )
        )
    import tensorflow as tf

    variable = tf.Variable(scores)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(function(variable))
    return tape.gradient(loss, variable).numpy()


def _loop(scores, correct, mask):
    rows = []
    for row in range(len(scores)):
        allowed = [
            np.exp(np.float64(s))
            for s, m in zip(scores[row], mask[row], strict=True)
            if m
        ]
        right = [
            np.exp(np.float64(s))
            for s, m, c in zip(
                scores[row], mask[row], correct[row], strict=True
            )
            if m and c
        ]
        rows.append(-np.log(sum(right) / sum(allowed)) if right else 0.0)
    return np.array(rows)


def test_marginal_span_loss_against_a_loop():
    random = np.random.default_rng(1)
    scores = random.normal(0, 3, (12, 9)).astype("float32")
    mask = random.random((12, 9)) < 0.7
    correct = random.random((12, 9)) < 0.3
    correct[4] = False
    expected = _loop(scores, correct, mask)
    assert (expected > 0).any() and (expected == 0).any()
    np.testing.assert_allclose(
        np.asarray(losses.marginal_span_loss(scores, correct, mask)),
        expected,
        atol=1e-5,
    )


def test_gradient_is_probability_minus_share_of_the_correct():
    scores = np.array([[1.0, 2.0, 0.5, 9.0]], "float32")
    mask = np.array([[True, True, True, False]])
    correct = np.array([[True, False, True, False]])
    gradient = _gradient(
        lambda s: losses.marginal_span_loss(s, correct, mask), scores
    )
    weights = np.exp(scores[0]) * mask[0]
    right = weights * correct[0]
    np.testing.assert_allclose(
        gradient[0], weights / weights.sum() - right / right.sum(), atol=1e-6
    )


@pytest.mark.parametrize(
    "scores",
    [[1e37, -1e37, 3.0], [-1e4, -1e4, -1e4], [80.0, 90.0, -90.0]],
)
def test_extreme_scores_stay_finite(scores):
    scores = np.array([scores], "float32")
    mask = np.ones((1, 3), bool)
    correct = np.array([[False, True, False]])

    def loss(s):
        return losses.marginal_span_loss(s, correct, mask)

    assert np.isfinite(np.asarray(loss(scores))).all()
    assert np.isfinite(_gradient(loss, scores)).all()


def test_nothing_correct_or_nothing_allowed_teaches_nothing():
    scores = np.array([[5.0, 1.0], [2.0, 3.0]], "float32")
    correct = np.array([[False, False], [True, True]])
    mask = np.array([[True, True], [False, False]])

    def loss(s):
        return losses.marginal_span_loss(s, correct, mask)

    assert np.asarray(loss(scores)).tolist() == [0.0, 0.0]
    assert _gradient(loss, scores).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_all_correct_is_zero_and_order_does_not_matter():
    random = np.random.default_rng(2)
    scores = random.normal(size=(3, 6)).astype("float32")
    mask = np.ones((3, 6), bool)
    np.testing.assert_allclose(
        np.asarray(losses.marginal_span_loss(scores, mask, mask)), 0, atol=1e-6
    )
    correct = random.random((3, 6)) < 0.5
    order = random.permutation(6)
    np.testing.assert_allclose(
        np.asarray(losses.marginal_span_loss(scores, correct, mask)),
        np.asarray(
            losses.marginal_span_loss(scores[:, order], correct[:, order], mask)
        ),
        atol=1e-6,
    )


def test_several_axes_are_one_set_of_entries():
    random = np.random.default_rng(3)
    scores = random.normal(size=(2, 3, 4)).astype("float32")
    correct = random.random((2, 3, 4)) < 0.4
    mask = np.ones((2, 3, 4), bool)
    np.testing.assert_allclose(
        np.asarray(
            losses.marginal_span_loss(scores, correct, mask, axis=(1, 2))
        ),
        _loop(
            scores.reshape(2, 12), correct.reshape(2, 12), mask.reshape(2, 12)
        ),
        atol=1e-5,
    )


def test_bfloat16_is_accepted():
    scores = keras.ops.cast([[1.0, 2.0, 3.0]], "bfloat16")
    mask = np.ones((1, 3), bool)
    correct = np.array([[False, False, True]])
    loss = losses.marginal_span_loss(scores, correct, mask)
    np.testing.assert_allclose(
        np.asarray(keras.ops.cast(loss, "float32")), 0.4076, atol=2e-2
    )
