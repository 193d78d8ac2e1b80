"""Means and differences with bootstrap intervals."""

import numpy as np
import pytest

from realm_tf.answering import bootstrap


def test_the_interval_is_that_of_the_mean():
    rows = [{"f1": value} for value in [0.0, 1.0] * 200]
    metrics = bootstrap.summarize(rows)
    assert metrics["f1"] == 0.5 and metrics["questions"] == 400
    low, high = metrics["f1_interval"]
    # 1.96 standard errors of a fair coin thrown 400 times.
    assert low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.005)
    assert high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.005)
    assert bootstrap.summarize(rows) == metrics
    assert bootstrap.summarize([{"f1": 0.25}] * 3)["f1_interval"] == [
        0.25,
        0.25,
    ]


def test_the_samples_are_those_of_the_means():
    random = np.random.default_rng(4)
    values, first = random.random((2, 45)).round(2)
    found = bootstrap.paired_difference(values, first)
    rows = [{"d": difference} for difference in values - first]
    metrics = bootstrap.summarize(rows)
    assert found["difference"] == metrics["d"]
    assert found["interval"] == metrics["d_interval"]
    # A system is as good as itself; there is no sign to flip.
    assert bootstrap.paired_difference(values, values) == {
        "difference": 0.0,
        "interval": [0.0, 0.0],
        "sign_flips": None,
        "questions": 45,
    }
    # 0.1 + 0.2 - 0.3 is 6e-17 here.
    found = bootstrap.paired_difference([0.1, 0.2, 0.0], [0.0, 0.0, 0.3])
    assert found["difference"] == 0.0 and found["sign_flips"] is None
    # Equal in some samples: that counts as a flip.
    found = bootstrap.paired_difference([1, 0, 0, 0], [0, 0, 0, 0])
    assert found["sign_flips"] == pytest.approx(0.75**4, abs=0.03)
