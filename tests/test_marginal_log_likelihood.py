"""The marginal log-likelihood against a float64 loop, and at the edges."""

import keras
import numpy as np
import pytest
from gradients import differences
from gradients import gradient
from gradients import logsumexp
from keras import ops

from realm_tf import losses

MARGINALIZATIONS = losses.MARGINALIZATIONS


def _marginal_loop(world, marginalization):
    """Of each row: its L by masked wordpiece, or the one L of the span."""
    rows = []
    for b in range(len(world["queries"])):
        candidates = np.flatnonzero(world["mask"][b])
        scores = {
            k: sum(
                float(q) * float(z)
                for q, z in zip(
                    world["queries"][b], world["blocks"][b][k], strict=True
                )
            )
            for k in candidates
        }
        total = logsumexp(list(scores.values()))
        masked = np.flatnonzero(world["mask_weights"][b])
        log_probs = world["log_probs"][b]
        groups = (
            [[m] for m in masked] if marginalization == "token" else [masked]
        )
        values = []
        for group in groups:
            if not len(group) or not len(candidates):
                continue
            joint = [
                scores[k] - total + sum(float(log_probs[k][m]) for m in group)
                for k in candidates
            ]
            values.append(logsumexp(joint))
        rows.append(values)
    return rows


def _loss_loop(world, marginalization):
    values = sum(map(sum, _marginal_loop(world, marginalization)))
    return -values / max(1, np.count_nonzero(world["mask_weights"]))


def _loss(world, marginalization):
    marginal = losses.marginal_log_likelihood(
        world["log_probs"],
        losses.retrieval_log_probs(
            world["queries"], world["blocks"], world["mask"]
        ),
        world["mask_weights"],
        world["mask"],
        marginalization=marginalization,
    )
    return -losses.mean_over_masked(marginal, world["mask_weights"])


def _world(seed=0):
    """4 queries, 5 candidates, 3 masks; the null block is always allowed."""
    random = np.random.default_rng(seed)
    mask = random.random((4, 5)) < 0.7
    mask[:, 0] = True
    # One candidate only; one wordpiece only.
    mask[1, 1:] = False
    mask_weights = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]])
    return {
        "queries": random.normal(0, 1, (4, 6)).astype("float32"),
        "blocks": random.normal(0, 1, (4, 5, 6)).astype("float32"),
        "log_probs": -random.gamma(2, 2, (4, 5, 3)).astype("float32"),
        "mask_weights": mask_weights.astype("float32"),
        "mask": mask,
    }


@pytest.mark.parametrize("marginalization", MARGINALIZATIONS)
def test_marginal_likelihood_and_its_gradient_against_a_loop(marginalization):
    world = _world()
    np.testing.assert_allclose(
        np.asarray(_loss(world, marginalization)),
        _loss_loop(world, marginalization),
        rtol=1e-5,
    )
    for name in ("queries", "blocks", "log_probs"):
        found = gradient(
            lambda value, name=name: _loss(
                {**world, name: value}, marginalization
            ),
            world[name],
        )
        expected = differences(
            lambda value, name=name: _loss_loop(
                {**world, name: value}, marginalization
            ),
            world[name],
        )
        assert np.abs(expected).max() > 1e-2
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("marginalization", MARGINALIZATIONS)
def test_each_marginal_stands_in_its_place(marginalization):
    world = _world(1)
    marginal = np.asarray(
        losses.marginal_log_likelihood(
            world["log_probs"],
            losses.retrieval_log_probs(
                world["queries"], world["blocks"], world["mask"]
            ),
            world["mask_weights"],
            world["mask"],
            marginalization=marginalization,
        )
    )
    expected = np.zeros(marginal.shape)
    for b, values in enumerate(_marginal_loop(world, marginalization)):
        if marginalization == "span":
            expected[b] = values[0]
        else:
            expected[b][: len(values)] = values
    np.testing.assert_allclose(marginal, expected, atol=1e-5)
    assert marginal.dtype == "float32"


def test_the_forms_agree_on_one_candidate_or_one_wordpiece():
    world = _world(3)
    one_candidate = {**world, "mask": np.eye(1, 5, dtype=bool).repeat(4, 0)}
    one_wordpiece = {**world, "mask_weights": np.eye(1, 3).repeat(4, 0)}
    for changed in (one_candidate, one_wordpiece):
        token, span = (np.asarray(_loss(changed, m)) for m in MARGINALIZATIONS)
        np.testing.assert_allclose(token, span, rtol=1e-6)
    assert abs(_loss(world, "token") - _loss(world, "span")) > 1e-2


@pytest.mark.parametrize("marginalization", MARGINALIZATIONS)
def test_what_is_masked_out_counts_for_nothing(marginalization):
    world = _world()
    # Row 0 masks no wordpiece, row 2 has no candidate: their values are
    # not read.
    world["mask_weights"][0] = 0
    world["mask"][2] = False
    world["log_probs"][0] = np.nan
    world["log_probs"][2] = -np.inf
    world["log_probs"][3, :, 2] = np.nan
    loss = np.asarray(_loss(world, marginalization))
    np.testing.assert_allclose(
        loss, _loss_loop(world, marginalization), rtol=1e-5
    )
    for name in ("queries", "blocks", "log_probs"):
        found = gradient(
            lambda v, name=name: _loss({**world, name: v}, marginalization),
            world[name],
        )
        assert not found[0].any() and not found[2].any()
        assert found[3].any() and np.isfinite(found).all()
    world["mask_weights"][:] = 0
    assert np.asarray(_loss(world, marginalization)) == 0.0
    found = gradient(
        lambda v: _loss({**world, "blocks": v}, marginalization),
        world["blocks"],
    )
    assert not found.any()


@pytest.mark.parametrize("marginalization", MARGINALIZATIONS)
def test_scores_of_ten_thousand_lose_nothing(marginalization):
    world = _world()
    world["queries"][0] = 0.0
    world["queries"][0, 0] = 100.0
    world["blocks"][0, :, 0] = [100.0, -100.0, 99.99, 100.0, 0.0]
    world["log_probs"][1] = -1e4
    world["log_probs"][0, :, 0] = [-1e4, -1.0, -3.0, -1e4, -1e4]
    world["mask"][0] = True
    np.testing.assert_allclose(
        np.asarray(_loss(world, marginalization)),
        _loss_loop(world, marginalization),
        rtol=1e-5,
    )
    for name in ("queries", "blocks", "log_probs"):
        found = gradient(
            lambda v, name=name: _loss({**world, name: v}, marginalization),
            world[name],
        )
        assert np.isfinite(found).all()


def test_bfloat16_is_read_exactly_and_computed_in_float32():
    world = _world()
    names = ("queries", "blocks", "log_probs", "mask_weights")
    low = {k: ops.cast(world[k], "bfloat16") for k in names}
    rounded = {k: np.asarray(ops.cast(low[k], "float32")) for k in names}
    for marginalization in MARGINALIZATIONS:
        loss = _loss({**world, **low}, marginalization)
        assert keras.backend.standardize_dtype(loss.dtype) == "float32"
        np.testing.assert_allclose(
            np.asarray(loss),
            _loss_loop({**world, **rounded}, marginalization),
            rtol=1e-5,
        )


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


def test_an_unknown_marginalization_is_refused():
    with pytest.raises(ValueError, match="marginalization='block'"):
        _loss(_world(), "block")
