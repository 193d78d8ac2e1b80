"""Calibration against direct calculation on made-up predictions."""

import dataclasses
import math

import numpy as np
import pytest

from realm_tf.answering import calibration
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import Span
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError

pytestmark = pytest.mark.fast


def _prediction(spans):
    """Of (answer, score) pairs, which are all the spans there are."""
    nbest = [
        Span(answer, score, number, 0, len(answer))
        for number, (answer, score) in enumerate(spans)
    ]
    best = nbest[0]
    return dataclasses.replace(
        NO_ANSWER,
        answer=best.answer,
        score=best.score,
        block_id=best.block_id,
        nbest=nbest,
        log_total=float(np.log(np.sum(np.exp([score for _, score in spans])))),
    )


def _asked(num, probability):
    """Questions of scores and margins, right with a probability of both."""
    random = np.random.default_rng(0)
    questions, predictions, truth = [], [], []
    for _ in range(num):
        score, margin = random.uniform(0, 10), random.exponential(2)
        found = _prediction([("yes", score), ("no", score - margin)])
        share = 1 / (1 + math.exp(-margin))
        truth.append(probability(score, share))
        right = "yes" if random.random() < truth[-1] else "else"
        questions.append(Question("q", (right,)))
        predictions.append(found)
    return questions, predictions, np.array(truth)


def test_the_confidence_is_the_probability_that_an_answer_is_right():
    questions, predictions, truth = _asked(
        6000,
        lambda score, share: (
            1 / (1 + math.exp(4 - 0.7 * score - 3 * math.log(share)))
        ),
    )
    fitted = calibration.fit(questions, predictions)
    assert fitted.questions == 6000
    assert fitted.score_weight == pytest.approx(0.7, abs=0.06)
    assert fitted.share_weight == pytest.approx(3, abs=0.5)
    found = [calibration.choose(each, fitted=fitted) for each in predictions]
    confidences = np.array([each.confidence for each in found])
    assert np.abs(confidences - truth).mean() < 0.02
    # What is likelier right than wrong is given.
    given = np.array([each.answered for each in found])
    np.testing.assert_array_equal(given, confidences >= 0.5)


def test_what_cannot_be_answered_counts_by_its_share():
    """All of one score and share: confidence is the share of right ones."""
    found = _prediction([("yes", 1.0), ("no", 0.0)])
    questions = [
        Question("q", ("yes" if n < 80 else "no",)) for n in range(100)
    ]
    fitted = calibration.fit(questions, 100 * [found], 7 * [found])
    confidence = calibration.choose(found, fitted=fitted).confidence
    right = 0.8 * (1 - calibration.UNANSWERABLE)
    assert confidence == pytest.approx(right, abs=1e-3)


def test_a_score_that_unanswerable_questions_do_not_reach():
    high = _prediction([("yes", 9.0), ("no", 8.0)])
    low = _prediction([("yes", 3.0), ("no", 2.0)])
    fitted = calibration.fit(40 * [Question("q", ("yes",))], 40 * [high], [low])
    high, low = (
        calibration.choose(each, fitted=fitted) for each in (high, low)
    )
    # The one that nothing answers is no question of its own.
    assert fitted.questions == 40
    # Shares say nothing: they are the same.
    assert low.confidence < 0.5 < high.confidence
    assert (low.answered, high.answered) == (False, True)
    assert low.answer == "yes"


def test_what_bm25_gives_says_nothing():
    """It grows with the length of the question."""
    fitted = Calibration(0.5, 1.0, 2.0)
    found = _prediction([("yes", 4.0), ("no", 3.0)])
    plain = calibration.choose(found, fitted=fitted)
    (first, second) = found.nbest
    more = dataclasses.replace(
        found,
        nbest=[
            dataclasses.replace(each, score=each.score + 7, lexical=7.0)
            for each in (first, second)
        ],
        log_total=found.log_total + 7,
    )
    assert calibration.choose(more, fitted=fitted).confidence == pytest.approx(
        plain.confidence
    )


def test_a_model_that_is_never_right_never_answers():
    found = _prediction([("yes", 9.0), ("no", 8.0)])
    fitted = calibration.fit(5 * [Question("q", ("else",))], 5 * [found])
    chosen = calibration.choose(found, fitted=fitted)
    assert chosen.confidence < 0.01 and not chosen.answered


def test_the_share_of_the_best_span():
    prediction = _prediction([("Rome", 2.0), ("the Nile", 1.6), ("Nile", 1.5)])
    shares = np.exp([2.0, 1.6, 1.5])
    shares /= shares.sum()
    single = calibration.choose(prediction)
    assert (single.answer, single.block_id) == ("Rome", 0)
    assert single.confidence == pytest.approx(shares[0])
    assert single.answered
    fitted = Calibration(-0.5, 0.25, 2.0)
    sure = calibration.choose(prediction, fitted=fitted)
    logit = -0.5 + 0.25 * 2.0 + 2 * math.log(shares[0])
    assert sure.confidence == pytest.approx(1 / (1 + math.exp(-logit)))
    assert not sure.answered
    assert calibration.choose(NO_ANSWER) == NO_ANSWER
    assert calibration.choose(NO_ANSWER, fitted=fitted) == NO_ANSWER


def test_an_evaluation_without_calibration_is_refused(tmp_path):
    for name, metadata in (
        ("none", {}),
        ("earlier version", {"calibration": {"temperature": 2.0}}),
    ):
        path = str(tmp_path / name)
        with artifact.write(path, kind="evaluation") as stage:
            stage.metadata.update(metadata)
        with pytest.raises(InputError, match="holds no calibration"):
            calibration.read(Evaluation(path))
