"""Losses against a float64 loop, and at the edges."""

import keras
import numpy as np
import pytest
from gradients import differences
from gradients import gradient
from gradients import logsumexp

from realm_tf import losses


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
    assert np.isfinite(gradient(loss, scores)).all()


def test_nothing_correct_or_nothing_allowed_teaches_nothing():
    scores = np.array([[5.0, 1.0], [2.0, 3.0]], "float32")
    correct = np.array([[False, False], [True, True]])
    mask = np.array([[True, True], [False, False]])

    def loss(s):
        return losses.marginal_span_loss(s, correct, mask)

    assert np.asarray(loss(scores)).tolist() == [0.0, 0.0]
    assert gradient(loss, scores).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def _softmax(scores):
    weights = np.exp(np.float64(scores))
    return weights / weights.sum()


def test_teacher_loss_against_a_loop():
    random = np.random.default_rng(2)
    scores = random.normal(0, 3, (6, 7)).astype("float32")
    of_teachers = random.normal(0, 3, (6, 2, 7)).astype("float32")
    mask = random.random((6, 7)) < 0.7
    # Nothing may be chosen; one thing alone; a score far below the others.
    mask[4] = False
    mask[5] = np.arange(7) == 3
    mask[1, :2] = True
    of_teachers[1, :, 0] = -1e4
    expected = []
    for row in range(6):
        allowed = mask[row]
        wanted = np.mean(
            [_softmax(each[allowed]) for each in of_teachers[row]], axis=0
        )
        found = _softmax(scores[row][allowed])
        expected.append(
            sum(
                q * np.log(q / p)
                for q, p in zip(wanted, found, strict=True)
                if q
            )
        )
    assert (np.array(expected)[:4] > 0.1).all() and expected[4:] == [0, 0]

    def loss(s):
        return losses.teacher_loss(s, of_teachers, mask)

    np.testing.assert_allclose(np.asarray(loss(scores)), expected, atol=1e-5)
    # Its derivative is what is chosen less what teachers choose.
    slope = gradient(loss, scores)
    for row in range(4):
        wanted = np.mean(
            [_softmax(each[mask[row]]) for each in of_teachers[row]], axis=0
        )
        np.testing.assert_allclose(
            slope[row][mask[row]],
            _softmax(scores[row][mask[row]]) - wanted,
            atol=1e-5,
        )
    assert not slope[~mask].any() and not slope[4:].any()


def test_a_teacher_that_agrees_teaches_nothing():
    scores = np.array([[1.0, 3.0, -2.0]], "float32")
    mask = np.ones((1, 3), bool)
    found = losses.teacher_loss(scores, 5 + scores[:, None], mask)
    np.testing.assert_allclose(np.asarray(found), [0.0], atol=1e-6)


def test_masked_lm_log_probs_against_numpy():
    random = np.random.default_rng(5)
    logits = random.normal(0, 4, (2, 3, 7)).astype("float32")
    logits[1, 2] = [1e4, -1e4, 0, 0, 0, 0, 0]
    ids = random.integers(0, 7, (2, 3))
    ids[1, 2] = 1
    expected = np.zeros((2, 3))
    for place in np.ndindex(2, 3):
        row = logits[place].astype("float64")
        expected[place] = row[ids[place]] - logsumexp(list(row))
    np.testing.assert_allclose(
        np.asarray(losses.masked_lm_log_probs(logits, ids)),
        expected,
        rtol=1e-5,
        atol=1e-5,
    )


def test_in_batch_softmax_and_its_gradient_against_a_loop():
    random = np.random.default_rng(6)
    queries = random.normal(0, 2, (5, 4)).astype("float32")
    blocks = random.normal(0, 2, (7, 4)).astype("float32")
    targets = np.array([2, 0, 5, 6, 3])
    mask = np.array([True, True, True, True, False, True, False])

    def loop(queries, blocks):
        rows = []
        for query, target in zip(queries, targets, strict=True):
            scores = {
                j: sum(q * z for q, z in zip(query, blocks[j], strict=True))
                for j in np.flatnonzero(mask)
            }
            rows.append(
                logsumexp(list(scores.values())) - scores[target]
                if target in scores
                else 0.0
            )
        return np.array(rows)

    loss, _ = losses.in_batch_softmax(queries, blocks, targets, mask)
    np.testing.assert_allclose(
        np.asarray(loss),
        loop(queries.astype("float64"), blocks.astype("float64")),
        rtol=1e-5,
        atol=1e-5,
    )
    # The fourth query's own block is not a candidate.
    assert np.asarray(loss)[3] == 0.0
    for number, array in enumerate((queries, blocks)):
        pair = [queries, blocks]

        def replaced(value, number=number, pair=pair):
            return [*pair[:number], value, *pair[number + 1 :]]

        found = gradient(
            lambda v, f=replaced: losses.in_batch_softmax(*f(v), targets, mask)[
                0
            ],
            array,
        )
        np.testing.assert_allclose(
            found,
            differences(lambda v, f=replaced: loop(*f(v)).sum(), array),
            atol=1e-5,
        )


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


def test_in_batch_softmax_takes_a_mask_by_query():
    embeddings = np.eye(3, dtype="float32") * 5
    embeddings[2] = embeddings[0]
    # The third block is a copy of the first: no mistake to choose it.
    mask = np.array([[True, True, False], [True] * 3, [False, True, True]])
    loss, ranks = losses.in_batch_softmax(
        embeddings, embeddings, np.arange(3), mask
    )
    assert (np.asarray(ranks) == 1).all()
    np.testing.assert_allclose(
        np.asarray(loss),
        np.log1p(np.array([1, 2, 1]) * np.exp(-25.0)),
        atol=1e-6,
    )


def test_in_batch_ranks_against_a_loop():
    random = np.random.default_rng(3)
    # Integers, so that scores are equal often.
    queries = random.integers(-1, 2, size=(40, 3)).astype("float32")
    blocks = random.integers(-1, 2, size=(12, 3)).astype("float32")
    targets = random.integers(0, 12, size=40).astype("int32")
    mask = random.random((40, 12)) < 0.8
    mask[np.arange(40), targets] = True
    _, ranks = losses.in_batch_softmax(queries, blocks, targets, mask)
    for row, rank in enumerate(np.asarray(ranks)):
        scores = blocks @ queries[row]
        order = sorted(np.flatnonzero(mask[row]), key=lambda j: (-scores[j], j))
        assert rank == 1 + order.index(targets[row])
    assert np.asarray(ranks).max() > 1
