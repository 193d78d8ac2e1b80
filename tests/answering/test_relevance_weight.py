"""How much retrieval counts beside the reader, against a search by hand."""

import numpy as np
import pytest

from realm_tf.answering import relevance_weight
from realm_tf.answering.predict import Candidate
from realm_tf.answering.predict import Prediction
from realm_tf.artifacts.question_files import Question


def _made(weight, *, num_questions=400, num_blocks=5, scale=1.0, seed=3):
    """Questions whose right block is drawn with a known weight.

    Returns:
        `(questions, predictions, scores, relevance, right)`.
    """
    rng = np.random.default_rng(seed)
    shape = (num_questions, num_blocks)
    scores, relevance = rng.normal(size=(2, *shape)) * 2
    logits = scale * (scores + weight * relevance)
    right = np.argmax(logits + rng.gumbel(size=shape), axis=1)
    questions, predictions = [], []
    for row in range(num_questions):
        log_probs = relevance[row] - np.log(np.exp(relevance[row]).sum())
        questions.append(Question(f"question {row}", ("yes",)))
        predictions.append(
            Prediction(
                candidates=[
                    Candidate(
                        block,
                        log_probs[block],
                        "yes" if block == right[row] else "no",
                        scores[row, block] + relevance[row, block],
                    )
                    for block in range(num_blocks)
                ]
            )
        )
    return questions, predictions, scores, relevance, right


def _likelihood(found, scores, relevance, right, scale):
    logits = scale * (scores + found * relevance)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits[np.arange(len(right)), right].mean()


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_the_likeliest_weight_is_found(weight):
    questions, predictions, *made = _made(weight)
    found = relevance_weight.fit(questions, predictions)
    assert found == pytest.approx(weight, rel=0.25)
    grid = np.linspace(0.05, 6, 240)
    scales = np.linspace(0.2, 3, 57)
    best = max(
        (_likelihood(each, *made, scale), each)
        for each in grid
        for scale in scales
    )[1]
    # The pull towards 1 is weak.
    assert found == pytest.approx(best, abs=0.08)


def test_a_reader_that_says_nothing_leaves_the_choice_to_retrieval():
    questions, predictions, scores, *_ = _made(1.0, scale=1.0)
    rng = np.random.default_rng(0)
    noise = rng.permutation(scores.ravel()).reshape(scores.shape) * 5
    for row, prediction in enumerate(predictions):
        for block, each in enumerate(prediction.candidates):
            score = each.score - scores[row, block] + noise[row, block]
            object.__setattr__(each, "score", score)
    assert relevance_weight.fit(questions, predictions) > 5


def test_little_that_is_known_changes_nothing():
    questions, predictions, *_ = _made(3.0, num_questions=19)
    assert relevance_weight.fit(questions, predictions) == 1.0
    # Where all blocks are right, or none, nothing is known.
    questions, predictions, *_ = _made(3.0, num_blocks=1)
    assert relevance_weight.fit(questions, predictions) == 1.0
