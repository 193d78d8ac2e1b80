"""Calibration against direct calculation on made-up predictions."""

import dataclasses
import math

import numpy as np
import pytest

from realm_tf.answering import calibration
from realm_tf.answering.calibration import TEMPERATURES
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import Span
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError


def _prediction(spans):
    """Of (answer, score) pairs, which are all the spans there are."""
    nbest = [
        Span(answer, score, number, 0, len(answer))
        for number, (answer, score) in enumerate(spans)
    ]
    scores = np.array([score for _, score in spans])
    totals = tuple(
        float(np.log(np.exp(scores / temperature).sum()))
        for temperature in TEMPERATURES
    )
    best = nbest[0]
    return dataclasses.replace(
        NO_ANSWER,
        answer=best.answer,
        score=best.score,
        block_id=best.block_id,
        nbest=nbest,
        log_totals=totals,
    )


def _overconfident(num, right, margin):
    """Questions whose answer wins by a margin and is right at times."""
    random = np.random.default_rng(0)
    questions = [
        Question("q", ("yes" if is_right else "else",))
        for is_right in random.random(num) < right
    ]
    return questions, num * [_prediction([("yes", margin), ("no", 0.0)])]


@pytest.mark.parametrize("right, margin", [(0.6, 8.0), (0.9, 0.5), (0.75, 3)])
def test_the_temperature_makes_confidence_the_share_of_right_answers(
    right, margin
):
    questions, predictions = _overconfident(4000, right, margin)
    fitted = calibration.fit(questions, predictions)
    # sigmoid(margin / t) = right
    ideal = margin / math.log(right / (1 - right))
    assert abs(math.log2(fitted.temperature / ideal)) <= 0.25
    before = abs(1 / (1 + math.exp(-margin)) - right)
    assert fitted.error_at_temperature_1 == pytest.approx(before, abs=0.03)
    assert fitted.expected_calibration_error < 0.05
    assert fitted.questions == 4000


def test_strings_are_added_up_and_shown_by_their_best_span():
    prediction = _prediction(
        [("Rome", 2.0), ("the Nile", 1.6), ("Nile", 1.5), ("The", 0.0)]
    )
    shares = np.exp([2.0, 1.6, 1.5, 0.0])
    shares /= shares.sum()
    single = calibration.choose(prediction)
    assert (single.answer, single.block_id) == ("Rome", 0)
    assert single.confidence == pytest.approx(shares[0])
    both = calibration.choose(prediction, aggregate=True)
    assert (both.answer, both.block_id, both.score) == ("the Nile", 1, 1.6)
    assert both.confidence == pytest.approx(shares[1] + shares[2])
    # So cold that the best span alone counts.
    cold = calibration.choose(prediction, temperature=0.125, aggregate=True)
    assert cold.answer == "Rome"
    assert calibration.choose(NO_ANSWER, aggregate=True) == NO_ANSWER


def test_the_calibration_error_by_hand():
    correct = np.array([True, False, True, True])
    shares = np.array([0.05, 0.15, 0.95, 1.0])
    # Bins: {0.05}, {0.15}, {0.95, 1.0}.
    expected = 0.25 * 0.95 + 0.25 * 0.15 + 0.5 * 0.025
    assert calibration.calibration_error(correct, shares) == pytest.approx(
        expected, abs=1e-6
    )


def test_thresholds_against_trying_all():
    random = np.random.default_rng(1)
    shares = random.choice(np.linspace(0, 1, 15), 60)
    correct = random.random(60) < shares
    for risk in (0.0, 0.1, 0.3, 0.6):
        tried = [
            (float((shares >= t).mean()), float(t))
            for t in np.unique(shares)
            if 1 - correct[shares >= t].mean() <= risk + 1e-12
        ]
        found = calibration.threshold(correct, shares, risk)
        assert (found is None) == (not tried)
        if tried:
            coverage, threshold = max(tried)
            assert found["threshold"] == threshold
            assert found["coverage"] == pytest.approx(coverage, abs=1e-6)
    assert calibration.threshold([False], np.array([0.5]), 0.5) is None


def test_an_evaluation_without_calibration_is_refused(tmp_path):
    from realm_tf.artifacts import artifact
    from realm_tf.artifacts.objects import Evaluation

    old = str(tmp_path / "old")
    with artifact.write(old, kind="evaluation", parameters={}, parents={}):
        pass
    with pytest.raises(InputError, match="holds no calibration"):
        calibration.read(Evaluation(old))
