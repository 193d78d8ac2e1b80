"""Calibration against direct calculation on made-up predictions."""

import dataclasses

import numpy as np
import pytest

from realm_tf.answering import calibration
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import Span
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.retrieval.hybrid import LEXICAL_WEIGHT

pytestmark = pytest.mark.fast


def _prediction(spans, relevance=0.0):
    """Of (answer, reader's score) pairs, which are all spans of one block."""
    nbest = [
        Span(answer, score + relevance, number, 0, len(answer), score)
        for number, (answer, score) in enumerate(spans)
    ]
    # "none" has the score of retrieval alone.
    exponentials = np.exp([0.0, *(score for _, score in spans)])
    return dataclasses.replace(
        NO_ANSWER,
        **vars(nbest[0]),
        nbest=nbest,
        log_total=relevance + float(np.log(exponentials.sum())),
    )


def _asked(scores, probabilities, seed=0):
    """Questions of scores, right with probabilities."""
    random = np.random.default_rng(seed)
    is_right = random.random(len(scores)) < probabilities
    questions = [Question("q", ("yes" if r else "no",)) for r in is_right]
    return questions, [_prediction([("yes", score)]) for score in scores]


def test_the_confidence_is_the_probability_that_an_answer_is_right():
    scores = np.random.default_rng(0).normal(3, 4, 6000)
    truth = 1 / (1 + np.exp(2 - 0.7 * scores))
    questions, predictions = _asked(scores, truth)
    fitted = calibration.fit(
        questions, predictions, lexical_weight=0.5, relevance_weight=2.0
    )
    assert fitted.questions == 6000
    assert (fitted.lexical_weight, fitted.relevance_weight) == (0.5, 2.0)
    assert fitted.weight == pytest.approx(0.7, abs=0.05)
    assert fitted.bias == pytest.approx(-2, abs=0.15)
    found = [calibration.choose(each, fitted=fitted) for each in predictions]
    confidences = np.array([each.confidence for each in found])
    assert np.abs(confidences - truth).mean() < 0.02
    given = np.array([each.answered for each in found])
    np.testing.assert_array_equal(given, confidences >= fitted.least_confidence)
    # Of right answers one in twenty is lost, and of the others most are.
    is_right = np.array([q.answers == ("yes",) for q in questions])
    assert 0.04 < np.mean(~given[is_right]) <= calibration.LOST
    assert np.mean(~given[~is_right]) > 0.5


def test_it_is_the_most_probable_one_of_a_grid():
    """Of two groups, in which near misses are few and many."""
    random = np.random.default_rng(1)
    scores = random.normal(size=60)
    is_right = scores + random.normal(size=60) > 0
    groups = np.repeat(["a", "b"], [20, 40])
    is_answerable = np.arange(60) % 10 > 2
    is_answerable[20:] = np.arange(40) > 3
    is_right &= is_answerable
    start = Calibration(-0.5, 1.5)
    fitted = calibration.fit_scores(
        scores,
        is_right,
        is_answerable=is_answerable,
        groups=groups,
        start=start,
    )
    weights = np.where(
        is_answerable,
        np.where(groups == "a", 0.75 / 14, 0.75 / 36),
        np.where(groups == "a", 0.25 / 6, 0.25 / 4),
    )

    def loss(bias, weight):
        chosen = 1 / (1 + np.exp(-(bias + weight * scores)))
        chosen = np.where(is_right, chosen, 1 - chosen)
        moved = (
            (bias - start.bias) + (weight - start.weight) * scores.mean(),
            (weight - start.weight) * scores.std(),
        )
        return -30 * weights @ np.log(chosen) + np.square(moved).sum() / 2

    least = loss(fitted.bias, fitted.weight)
    for step in (0.01, 0.1, 1.0):
        for bias in (-step, 0, step):
            for weight in (-step, 0, step):
                other = loss(fitted.bias + bias, fitted.weight + weight)
                assert other >= least - 1e-6
    assert fitted.questions == is_answerable.sum()
    # A group's questions count as much however many there are.
    confidences = fitted.confidence(scores)
    lost = is_right & (confidences < fitted.least_confidence)
    assert weights[lost].sum() <= 0.05 * weights[is_right].sum()
    assert 0.005 <= fitted.least_confidence <= 0.5


def test_what_cannot_be_answered_counts_by_its_share():
    """All of one score: confidence is the share of right ones."""
    found = _prediction([("yes", 1.0), ("no", 0.0)])
    questions = [
        Question("q", ("yes" if n < 800 else "no",)) for n in range(1000)
    ]
    fitted = calibration.fit(questions, 1000 * [found], 7 * [found])
    confidence = calibration.choose(found, fitted=fitted).confidence
    right = 0.8 * (1 - calibration.UNANSWERABLE)
    assert confidence == pytest.approx(right, abs=1e-3)


def test_a_score_that_unanswerable_questions_do_not_reach():
    """Retrieval's part, and with it the order of blocks, says nothing."""
    high = _prediction([("yes", 9.0), ("no", 8.0)])
    low = _prediction([("yes", -3.0), ("no", -4.0)], relevance=30.0)
    assert low.score > high.score
    questions = 40 * [Question("q", ("yes",))]
    fitted = calibration.fit(questions, 40 * [high], [low, NO_ANSWER])
    high, low = (
        calibration.choose(each, fitted=fitted) for each in (high, low)
    )
    # The one that nothing answers is no question of its own.
    assert fitted.questions == 40
    assert low.confidence < 0.5 < high.confidence
    assert (low.answered, high.answered) == (False, True)
    assert low.answer == "yes"


def test_few_questions_move_what_is_known_a_little():
    start = Calibration(-1.0, 0.5, 0.2)
    scores = np.array([2.0, 4.0])
    moved = [
        calibration.fit_scores(np.tile(scores, n), n * [False, True])
        for n in (1, 50)
    ] + [
        calibration.fit_scores(
            np.tile(scores, n), n * [False, True], start=start
        )
        for n in (1, 50)
    ]
    alone, many, one, all_ = (each.confidence(4.0) for each in moved)
    # Towards 0.5 where nothing is known, else towards that.
    assert 0.5 < alone < many
    assert start.confidence(4.0) < one < all_
    assert abs(one - start.confidence(4.0)) < 0.15
    assert calibration.fit_scores([], [], start=start) == start


def test_a_model_that_is_never_right_never_answers():
    found = _prediction([("yes", 9.0), ("no", 8.0)])
    fitted = calibration.fit(50 * [Question("q", ("else",))], 50 * [found])
    chosen = calibration.choose(found, fitted=fitted)
    assert chosen.confidence < 0.1 and not chosen.answered


def test_the_share_of_the_best_span():
    prediction = _prediction(
        [("Rome", 2.0), ("the Nile", 1.6), ("Nile", 1.5)], relevance=7.0
    )
    shares = np.exp([2.0, 1.6, 1.5, 0.0])
    shares /= shares.sum()
    single = calibration.choose(prediction)
    assert (single.answer, single.block_id) == ("Rome", 0)
    assert single.confidence == pytest.approx(shares[0])
    assert single.answered
    fitted = Calibration(-0.6, 0.25)
    sure = calibration.choose(prediction, fitted=fitted)
    assert sure.confidence == pytest.approx(1 / (1 + np.exp(0.1)))
    assert not sure.answered
    lower = dataclasses.replace(fitted, least_confidence=0.4)
    assert calibration.choose(prediction, fitted=lower).answered
    assert calibration.choose(NO_ANSWER) == NO_ANSWER
    assert calibration.choose(NO_ANSWER, fitted=fitted) == NO_ANSWER


def test_what_is_printed_as_no_confidence_is_not_answered():
    fitted = Calibration(0.0, 1.0, least_confidence=0.0)
    for score, answered in ((-5.3, False), (-5.29, True)):
        found = _prediction([("yes", score)])
        for chosen in (
            calibration.choose(found),
            calibration.choose(found, fitted=fitted),
        ):
            assert (f"{chosen.confidence:.2f}" != "0.00") == answered
            assert chosen.answered == answered


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


def test_a_model_comes_with_a_calibration(tmp_path):
    fitted = Calibration(-1.0, 0.5, 0.3, questions=7)
    for name, found in (("with", fitted), ("without", None)):
        path = str(tmp_path / name)
        with artifact.write(path, kind="model") as stage:
            if found:
                stage.metadata["calibration"] = dataclasses.asdict(found)
        model = Model(path)
        assert calibration.for_model(None, model, "hybrid") == found
    assert calibration.lexical_weight_of(fitted) == LEXICAL_WEIGHT
