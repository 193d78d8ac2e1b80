"""What a calibration is worth over a corpus that it was not fitted to."""

import confidence
import numpy as np
import pytest


def test_each_corpus_is_left_out():
    random = np.random.default_rng(0)
    scores, is_right, is_answerable, groups = [], [], [], []
    for name, shift in (("a", 0.0), ("b", 0.2), ("c", -9.0)):
        # Right answers, wrong ones and near misses.
        scores += [
            random.normal(6 + shift, 1, 300),
            random.normal(1 + shift, 2, 100),
            random.normal(0 + shift, 1, 200),
        ]
        is_right += 300 * [True] + 300 * [False]
        is_answerable += 400 * [True] + 200 * [False]
        groups += 600 * [name]
    told = confidence.leave_one_out(
        np.concatenate(scores),
        *map(np.array, (is_right, is_answerable, groups)),
    )
    for name in ("a", "b"):
        figures = told[name]
        assert (figures["right"], figures["near misses"]) == (300, 200)
        assert figures["area"] > 0.99
        assert figures["refused at 5 % lost"] > 0.99
        assert figures["right refused"] < 0.15
    # Its order is as good, but its scores are not comparable with others'.
    assert told["c"]["area"] > 0.99
    assert told["c"]["refused by its own"] > 0.95
    assert told["c"]["right refused"] > 0.95


def test_figures_of_a_few_scores():
    told = confidence.leave_one_out(
        np.array([3.0, 1.0, 2.0, 0.0, 5.0, 4.0]),
        np.array([True, True, False, False, True, False]),
        np.array([True, True, False, False, True, False]),
        np.array([*"aaaabb"]),
    )
    # 3 is above both near misses, 1 above one.
    assert told["a"]["area"] == pytest.approx(0.75)
    assert told["a"]["refused at 5 % lost"] == 0.5
    assert told["b"]["area"] == 1.0
