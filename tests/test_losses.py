"""Losses and their gradients against loops in float64, and at the edges."""

import keras
import loss_oracle as oracle
import numpy as np
import pytest
from gradients import differences
from gradients import gradient
from keras import ops

from realm_tf import losses

FORMS = pytest.mark.parametrize("form", losses.MARGINALIZATIONS)


def _check(loss, expected, arrays):
    """Values of two functions of arrays by name, and their gradients."""
    np.testing.assert_allclose(
        np.asarray(loss(**arrays)), expected(**arrays), rtol=1e-5, atol=1e-5
    )
    for name, array in arrays.items():
        found = gradient(lambda v, n=name: loss(**{**arrays, n: v}), array)
        wanted = differences(
            lambda v, n=name: expected(**{**arrays, n: v}).sum(), array
        )
        assert np.abs(wanted).max() > 1e-2
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)


def test_marginal_span_loss():
    random = np.random.default_rng(1)
    scores = random.normal(0, 3, (12, 9)).astype("float32")
    mask = random.random((12, 9)) < 0.7
    correct = random.random((12, 9)) < 0.3
    # Nothing is correct; nothing is allowed.
    correct[4] = mask[5] = False

    def expected(scores):
        rows = zip(scores, correct, mask, strict=True)
        return np.array([oracle.span_loss(*row) for row in rows])

    values = expected(scores)
    assert values[4] == values[5] == 0 < np.sort(values)[3]
    _check(
        lambda scores: losses.marginal_span_loss(scores, correct, mask),
        expected,
        {"scores": scores},
    )


def test_none_span_loss():
    """A row of blocks, as well as a row of all spans."""
    random = np.random.default_rng(3)
    scores = random.normal(0, 3, (4, 3, 6)).astype("float32")
    mask = random.random((4, 3, 6)) < 0.8
    correct = random.random((4, 3, 6)) < 0.3
    none_is_right = np.zeros((4, 3), bool)
    # Only "none", which is far; nothing; spans and "none"; no span at all.
    none_is_right[0] = True
    correct[:2] = mask[2, 0] = False
    scores[0, 0], none_is_right[2, 0], none_is_right[3, 0] = 30, True, True

    def expected(scores):
        parts = (scores, correct, mask)
        rows = zip(
            *(each.reshape(12, 6) for each in parts),
            none_is_right.reshape(12),
            strict=True,
        )
        return np.array([oracle.none_loss(*row) for row in rows]).reshape(4, 3)

    values = expected(scores)
    assert values[0, 0] > 30 and values[2:].max() > 1
    assert not values[1].any() and values[2, 0] == 0
    _check(
        lambda scores: losses.none_span_loss(
            scores, correct, mask, none_is_right
        ),
        expected,
        {"scores": scores},
    )
    # Far below all spans "none" changes nothing, to the last bit.
    pushed = losses.none_span_loss(
        scores + 200, correct, mask, np.zeros_like(none_is_right)
    )
    np.testing.assert_array_equal(
        pushed, losses.marginal_span_loss(scores + 200, correct, mask)
    )


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_teacher_loss(temperature):
    random = np.random.default_rng(2)
    scores = random.normal(0, 3, (6, 7)).astype("float32")
    of_teachers = random.normal(0, 3, (6, 2, 7)).astype("float32")
    mask = random.random((6, 7)) < 0.7
    # One thing alone may be chosen; both agree; a score far below the others.
    mask[5] = np.arange(7) == 3
    of_teachers[4] = 5 + scores[4]
    mask[1, :2] = True
    of_teachers[1, :, 0] = -1e4

    def expected(scores):
        rows = zip(scores, of_teachers, mask, strict=True)
        return np.array([oracle.teacher_loss(*r, temperature) for r in rows])

    assert expected(scores)[:4].min() > 0.1
    np.testing.assert_allclose(expected(scores)[4:], 0, atol=1e-6)
    _check(
        lambda scores: losses.teacher_loss(
            scores, of_teachers, mask, temperature
        ),
        expected,
        {"scores": scores},
    )
    nothing = losses.teacher_loss(scores, of_teachers, np.zeros_like(mask))
    assert not np.asarray(nothing).any()


def _world(seed=0):
    """4 queries, 5 candidates, 3 masks; the null block is always allowed."""
    random = np.random.default_rng(seed)
    mask = random.random((4, 5)) < 0.7
    mask[:, 0] = True
    # One candidate only; one wordpiece only.
    mask[1, 1:] = False
    mask_weights = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]])
    arrays = {
        "queries": random.normal(0, 1, (4, 6)).astype("float32"),
        "blocks": random.normal(0, 1, (4, 5, 6)).astype("float32"),
        "log_probs": -random.gamma(2, 2, (4, 5, 3)).astype("float32"),
    }
    return arrays, mask_weights.astype("float32"), mask


def _marginal(mask_weights, mask, form):
    def marginal(queries, blocks, log_probs):
        priors = losses.retrieval_log_probs(queries, blocks, mask)
        return losses.marginal_log_likelihood(
            log_probs, priors, mask_weights, mask, marginalization=form
        )

    def expected(queries, blocks, log_probs):
        return np.array(
            [
                oracle.marginal(
                    [oracle.dot(queries[row], z) for z in blocks[row]],
                    *(log_probs[row], mask_weights[row], mask[row], form),
                )
                for row in range(len(queries))
            ]
        )

    return marginal, expected


@FORMS
def test_marginal_log_likelihood(form):
    arrays, mask_weights, mask = _world()
    marginal, expected = _marginal(mask_weights, mask, form)
    _check(marginal, expected, arrays)
    found = marginal(**arrays)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    mean = losses.mean_over_masked(found, mask_weights)
    assert float(mean) == pytest.approx(expected(**arrays).sum() / 8, rel=1e-5)
    nothing = _marginal(0 * mask_weights, mask, form)[0](**arrays)
    assert not float(losses.mean_over_masked(nothing, 0 * mask_weights))


@FORMS
def test_excluded_wordpieces_and_candidates_are_not_read(form):
    arrays, mask_weights, mask = _world()
    # Row 0 masks no wordpiece, row 2 has no candidate.
    mask_weights[0] = 0
    mask[2] = False
    arrays["log_probs"][0] = np.nan
    arrays["log_probs"][2] = -np.inf
    arrays["log_probs"][3, :, 2] = np.nan
    marginal, expected = _marginal(mask_weights, mask, form)
    np.testing.assert_allclose(
        np.asarray(marginal(**arrays)), expected(**arrays), atol=1e-5
    )
    for name, array in arrays.items():
        found = gradient(lambda v, n=name: marginal(**{**arrays, n: v}), array)
        assert not found[0].any() and not found[2].any()
        assert found[3].any() and np.isfinite(found).all()


@FORMS
def test_scores_of_ten_thousand_lose_nothing(form):
    arrays, mask_weights, mask = _world()
    arrays["queries"][0] = [100.0, 0, 0, 0, 0, 0]
    arrays["blocks"][0, :, 0] = [100.0, -100.0, 99.99, 100.0, 0.0]
    arrays["log_probs"][1] = -1e4
    arrays["log_probs"][0, :, 0] = [-1e4, -1.0, -3.0, -1e4, -1e4]
    mask[0] = True
    marginal, expected = _marginal(mask_weights, mask, form)
    np.testing.assert_allclose(
        np.asarray(marginal(**arrays)), expected(**arrays), rtol=1e-5, atol=2e-3
    )
    for name, array in arrays.items():
        found = gradient(lambda v, n=name: marginal(**{**arrays, n: v}), array)
        assert np.isfinite(found).all()


@FORMS
def test_bfloat16_is_read_exactly_and_computed_in_float32(form):
    arrays, mask_weights, mask = _world()
    low = {k: ops.cast(v, "bfloat16") for k, v in arrays.items()}
    rounded = {k: np.asarray(ops.cast(v, "float32")) for k, v in low.items()}
    marginal, expected = _marginal(mask_weights, mask, form)
    found = marginal(**low)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(
        np.asarray(found), expected(**rounded), rtol=1e-5
    )


@pytest.mark.parametrize(
    "scores", [[1e37, -1e37, 3.0], [-1e4, -1e4, -1e4], [80.0, 90.0, -90.0]]
)
def test_extreme_scores_stay_finite(scores):
    scores = np.array([scores], "float32")
    mask = np.ones((1, 3), bool)
    correct = np.array([[False, True, False]])

    def loss(s):
        return losses.marginal_span_loss(s, correct, mask)

    assert np.isfinite(np.asarray(loss(scores))).all()
    assert np.isfinite(gradient(loss, scores)).all()


def test_retrieval_log_probs_of_few_candidates():
    queries = np.array([[1.0, 2.0]] * 3, "float32")
    blocks = np.array([[[0.0, 0.0], [3.0, 1.0], [1.0, 1.0]]] * 3, "float32")
    mask = np.array([[True, True, False], [False, True, False], [False] * 3])

    def log_probs(b):
        return losses.retrieval_log_probs(queries, b, mask)

    # Scores 0, 5, 3.
    np.testing.assert_allclose(
        np.exp(np.asarray(log_probs(blocks))),
        [[1 / (1 + np.exp(5)), 1 / (1 + np.exp(-5)), 0], [0, 1, 0], [0] * 3],
        rtol=1e-6,
    )
    found = gradient(lambda b: ops.where(mask, log_probs(b), 0.0), blocks)
    # Nothing else to choose, and nothing to choose from.
    assert found[0].any() and not found[1:].any()


def test_masked_lm_log_probs():
    random = np.random.default_rng(5)
    logits = random.normal(0, 4, (2, 3, 7)).astype("float32")
    logits[1, 2] = [1e4, -1e4, 0, 0, 0, 0, 0]
    ids = random.integers(0, 7, (2, 3))
    ids[1, 2] = 1
    expected = [
        [oracle.log_softmax(logits[b, m])[ids[b, m]] for m in range(3)]
        for b in range(2)
    ]
    found = np.asarray(losses.masked_lm_log_probs(logits, ids))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by_query", [False, True])
def test_in_batch_softmax(by_query):
    random = np.random.default_rng(6)
    arrays = {
        "queries": random.normal(0, 2, (5, 4)).astype("float32"),
        "blocks": random.normal(0, 2, (7, 4)).astype("float32"),
    }
    targets = np.array([2, 0, 5, 6, 3])
    # The fourth query's own block is not a candidate.
    mask = np.array([True, True, True, True, False, True, False])
    if by_query:
        mask = np.stack([mask, mask, ~mask, mask, ~mask])
        mask[2, 5] = mask[4, 3] = True

    def loss(queries, blocks):
        return losses.in_batch_softmax(queries, blocks, targets, mask)[0]

    def expected(queries, blocks):
        return oracle.in_batch(queries, blocks, targets, mask)[0]

    assert expected(**arrays)[3] == 0
    _check(loss, expected, arrays)


def test_in_batch_ranks():
    random = np.random.default_rng(3)
    # Integers, so that scores are equal often.
    queries = random.integers(-1, 2, size=(40, 3)).astype("float32")
    blocks = random.integers(-1, 2, size=(12, 3)).astype("float32")
    targets = random.integers(0, 12, size=40).astype("int32")
    mask = random.random((40, 12)) < 0.8
    mask[np.arange(40), targets] = True
    _, ranks = losses.in_batch_softmax(queries, blocks, targets, mask)
    _, expected = oracle.in_batch(queries, blocks, targets, mask)
    np.testing.assert_array_equal(ranks, expected)
    assert expected.max() > 1


def test_products_are_of_float32_on_every_backend():
    queries, blocks = np.eye(2, 3, dtype="float32"), np.eye(3, dtype="float32")

    def loss(queries):
        mask = np.ones(3, bool)
        return losses.in_batch_softmax(queries, blocks, np.arange(2), mask)[0]

    if keras.backend.backend() == "jax":
        import jax

        assert "HIGHEST" in str(jax.make_jaxpr(loss)(queries))
        return
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(True)
    loss(queries)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
