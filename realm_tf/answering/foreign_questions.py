"""From which score on an answer is given, over a corpus of another kind.

A calibration is fitted on questions over some corpus. Over another one scores
are lower, and confidences with them. But what answers of no worth score can be
seen without a question about it: by asking it the calibration's questions, with
every block hidden that holds an answer.
"""

import dataclasses

import numpy as np

from realm_tf.answering.calibration import Calibration
from realm_tf.answering.oracle import Hiding
from realm_tf.answering.predict import NUM_RETRIEVED
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.question_files import Question
from realm_tf.artifacts.question_files import read_questions
from realm_tf.retrieval import retrievers

# Of answers to such questions so many are given (our choice).
FALSELY_GIVEN = 0.05
# Questions that are asked (our choice).
_NUM_ASKED = 100


def of(evaluation: Evaluation | None) -> list[list]:
    """Some questions of an evaluation, from all parts of it.

    Args:
        evaluation: `Evaluation`, or `None` for no question.

    Returns:
        list of the arguments of a `Question` each, as JSON takes them.
    """
    if evaluation is None:
        return []
    questions = read_questions(evaluation.file("predictions.jsonl"))
    return [
        [each.question, list(each.answers), each.answer_type]
        for each in questions[:: -(-len(questions) // _NUM_ASKED)]
    ]


def calibrated(
    fitted: Calibration,
    corpus,
    questions: list[Question],
    *,
    num_reader_blocks: int,
    lexical_weight: float | None,
) -> Calibration:
    """The calibration, with the least score of an answer that is given.

    Args:
        fitted: `Calibration`.
        corpus: `Corpus`.
        questions: list of `Question`. That are not about it.
        num_reader_blocks: int. Blocks read for a question.
        lexical_weight: float. Of BM25 beside the index, or `None`.

    Returns:
        `Calibration`, with a `least_score` if any of them has an answer.
    """
    name = "realm" if lexical_weight is None else "hybrid"
    hiding = Hiding(
        retrievers.make(name, corpus, lexical_weight=lexical_weight),
        corpus.records.texts,
        questions,
        depth=NUM_RETRIEVED,
    )
    predictor = Predictor(
        corpus,
        num_reader_blocks=num_reader_blocks,
        lexical_weight=lexical_weight,
        relevance_weight=fitted.relevance_weight,
    )
    found = predictor.predict(
        [each.question for each in questions], search=hiding.search
    )
    return with_least_score(fitted, found)


def with_least_score(fitted: Calibration, unanswerable: list) -> Calibration:
    """As `calibrated`, from a list of `Prediction`."""
    scores = [each.score - each.lexical for each in unanswerable if each.answer]
    if not scores:
        return fitted
    least = float(np.quantile(scores, 1 - FALSELY_GIVEN))
    return dataclasses.replace(fitted, least_score=least)
