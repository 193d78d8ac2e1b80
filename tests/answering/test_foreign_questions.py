"""Which answers are given over a corpus of another kind."""

import dataclasses
import pathlib

import numpy as np
import pytest

from realm_tf.answering import calibration
from realm_tf.answering import foreign_questions
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import Span
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Evaluation

pytestmark = pytest.mark.fast
FITTED = Calibration(-5.0, 0.1, 1.0)


def _prediction(score, lexical=0.0):
    best = Span("x", score, 0, 0, 1, lexical)
    return dataclasses.replace(
        NO_ANSWER, **vars(best), nbest=[best], log_total=score
    )


def test_one_of_twenty_of_such_answers_is_given():
    scores = np.random.default_rng(0).permutation(200)
    # What BM25 gives is no part of it.
    asked = [_prediction(score + 50.0, 50.0) for score in scores]
    found = foreign_questions.with_least_score(FITTED, [*asked, NO_ANSWER])
    given = [calibration.choose(each, fitted=found) for each in asked]
    assert sum(each.answered for each in given) == 10
    assert not calibration.choose(NO_ANSWER, fitted=found).answered
    # Whatever the confidence, which stays.
    sure, unsure = _prediction(195.0), _prediction(250.0, 70.0)
    for prediction, answered in ((sure, True), (unsure, False)):
        chosen = calibration.choose(prediction, fitted=found)
        assert chosen.answered is answered
        assert chosen.confidence == pytest.approx(
            calibration.choose(prediction, fitted=FITTED).confidence
        )


def test_where_nothing_is_answered_the_threshold_decides():
    assert foreign_questions.with_least_score(FITTED, [NO_ANSWER]) == FITTED


def test_questions_are_from_all_parts_of_an_evaluation(tmp_path):
    path = str(tmp_path / "evaluation")
    lines = [
        f'{{"question": "q{number}", "answer": ["a"]}}\n'
        for number in range(250)
    ]
    with artifact.write(path, kind="evaluation") as stage:
        pathlib.Path(stage.path("predictions.jsonl")).write_text("".join(lines))
    found = foreign_questions.of(Evaluation(path))
    assert found == [
        [f"q{number}", ["a"], "string"] for number in range(0, 250, 3)
    ]
    assert foreign_questions.of(None) == []
