"""How sure an answer is, and whether it is given.

Without a calibration the confidence of an answer is its share in the softmax
over all spans that were read. The share says which of the spans, not whether any of
them answers: questions that the corpus cannot answer get one, too. A
calibration makes it a probability that the answer is right, of the share and of
the score, which such questions do not reach, by logistic regression (Platt, 1999;
for questions that had better not be answered, [Kamath et al.,
2020](https://arxiv.org/abs/2006.09462)).
"""

import dataclasses
import math

import numpy as np
import scipy.optimize

from realm_tf.answering.relevance_weight import AS_LEARNED
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.retrieval.hybrid import LEXICAL_WEIGHT
from realm_tf.text import answers

# Of the questions of a user so many have no answer in the corpus (our choice).
UNANSWERABLE = 0.25
# Strength of the penalty on weights, so that some hundred questions will do
# (our choice).
_PENALTY = 1e-3
# The least confidence of an answer that is given: it is likelier right than
# wrong.
ANSWERED_FROM = 0.5
# Of a share, before its logarithm.
LEAST_SHARE = 1e-30


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was fitted on questions with known answers.

        confidence = sigmoid(
            bias + score_weight (score - lexical) + share_weight log(share))

    What BM25 gives of a score is left out: it grows with the length of the
    question.

    Args:
        bias: float.
        score_weight: float. Not negative.
        share_weight: float. Not negative.
        relevance_weight: float. See `relevance_weight`.
        least_score: float. The least score, without BM25's part, of an answer
            that is given, whatever the confidence; see `foreign_questions`. `None`:
            a confidence of `ANSWERED_FROM` decides.
        lexical_weight: float. Of BM25 in a hybrid retriever; `None` if none
            searched.
        questions: int. How many it was fitted on.
    """

    bias: float
    score_weight: float
    share_weight: float
    lexical_weight: float | None = None
    relevance_weight: float = AS_LEARNED
    questions: int = 0
    least_score: float | None = None

    def gives(self, confidence, score):
        """Whether an answer is given, tensor, array or float.

        Args:
            confidence: float, array or tensor.
            score: the same. Of the answer, without BM25's part.
        """
        if self.least_score is None:
            return confidence >= ANSWERED_FROM
        return score >= self.least_score

    def confidence(self, score, share):
        """The probability that an answer is right, array or float.

        Args:
            score: float or array. Of the answer, without BM25's part.
            share: float or array. In the softmax over all spans.
        """
        return scipy.special.expit(
            self.bias
            + self.score_weight * np.asarray(score)
            + self.share_weight * np.log(np.maximum(share, LEAST_SHARE))
        )


def choose(prediction, *, fitted: Calibration | None = None):
    """The answer of an n-best list, how sure it is, and whether it is given.

    Args:
        prediction: `Prediction`.
        fitted: `Calibration`. Defaults to `None`: the confidence is the share,
            and every answer is given.

    Returns:
        `Prediction` with another answer, `confidence` and `answered`.
    """
    best, share = _likeliest(prediction)
    confidence, answered = share, bool(best.answer)
    if fitted is not None and answered:
        score = best.score - best.lexical
        confidence = float(fitted.confidence(score, share))
        answered = bool(fitted.gives(confidence, score))
    values = {} if best is prediction else vars(best)
    return dataclasses.replace(
        prediction, **values, confidence=confidence, answered=answered
    )


def _likeliest(prediction):
    """The best span, and its share."""
    if not prediction.nbest:
        # A closed book's has a confidence of its own.
        return prediction, prediction.confidence
    best = prediction.nbest[0]
    return best, math.exp(min(best.score - prediction.log_total, 0.0))


def fit(
    questions,
    predictions,
    unanswerable=(),
    **made_with,
) -> Calibration:
    """Fits the confidence by maximum likelihood.

        -sum_i w_i [c_i log p_i + (1 - c_i) log(1 - p_i)] / sum_i w_i

    c says whether an answer is right, p is its confidence; w gives what cannot
    be answered a share of `UNANSWERABLE`.

    Args:
        questions: list of `Question`, with answers.
        predictions: list of `Prediction`.
        unanswerable: list of `Prediction`. Of questions that could not be
            answered. Defaults to none.
        **made_with: `lexical_weight` and `relevance_weight`, with which the
            predictions were made.

    Returns:
        `Calibration`.
    """
    given = [_likeliest(each) for each in (*predictions, *unanswerable)]
    correct = np.zeros(len(given), bool)
    correct[: len(questions)] = [
        answers.is_correct(best.answer, q.answers, q.answer_type, q.language)
        for q, (best, _) in zip(questions, given, strict=False)
    ]
    weights = np.ones(len(given))
    if unanswerable:
        weights[len(questions) :] = (
            UNANSWERABLE / (1 - UNANSWERABLE) * len(questions)
        ) / len(unanswerable)
    weights /= weights.sum()
    scores = np.array([best.score - best.lexical for best, _ in given])
    shares = np.array([share for _, share in given])
    bias_and_weights = _logistic(
        np.stack([scores, np.log(np.maximum(shares, LEAST_SHARE))], axis=1),
        correct,
        weights,
    )
    return Calibration(
        *map(float, bias_and_weights),
        questions=len(questions),
        **made_with,
    )


def _logistic(features, correct, weights):
    """Bias and weights, these not negative, of a logistic regression."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    rows = np.c_[np.ones(len(features)), (features - mean) / scale]
    signs = np.where(correct, 1.0, -1.0)

    def loss(parameters):
        wrong = np.logaddexp(0, -signs * (rows @ parameters))
        return weights @ wrong + _PENALTY * parameters[1:] @ parameters[1:]

    # The bias of all right or all wrong would be infinite.
    bounds = [(-10, 10), (0, None), (0, None)]
    found = scipy.optimize.minimize(loss, np.zeros(3), bounds=bounds)
    slopes = found.x[1:] / scale
    return found.x[0] - slopes @ mean, *slopes


def read(evaluation: Evaluation) -> Calibration:
    """The calibration that an evaluation holds.

    Args:
        evaluation: `Evaluation`.

    Raises:
        InputError: if it has none.
    """
    fitted = evaluation.metadata.get("calibration", {})
    known = {field.name for field in dataclasses.fields(Calibration)}
    # Earlier versions fitted otherwise.
    if not fitted or fitted.keys() - known:
        raise InputError(
            f"{evaluation} holds no calibration of this version: run `realm "
            "evaluate --calibrate` on questions of dev."
        )
    return Calibration(**fitted)


def for_model(
    evaluation: Evaluation | str | None, model: Model, retriever: str
) -> Calibration | None:
    """The calibration of a model with a retriever.

    Args:
        evaluation: `Evaluation`, or its path; `None` for none.
        model: `Model`. What it shall be of.
        retriever: str. What found the blocks.

    Raises:
        InputError: if it holds none, or one of another model or retriever.
    """
    if evaluation is None:
        return None
    evaluation = Evaluation.of(evaluation)
    fitted = read(evaluation)
    matching.check_calibration(evaluation, model=model, retriever=retriever)
    return fitted


def lexical_weight_of(fitted: Calibration | None) -> float:
    """The weight of BM25 in a hybrid retriever.

    Args:
        fitted: `Calibration` of a hybrid retriever; `None` for `LEXICAL_WEIGHT`.
    """
    return LEXICAL_WEIGHT if fitted is None else fitted.lexical_weight


def relevance_weight_of(fitted: Calibration | None) -> float:
    """How much retrieval counts in the score of a span.

    Args:
        fitted: `Calibration`; `None` for `AS_LEARNED`.
    """
    return AS_LEARNED if fitted is None else fitted.relevance_weight
