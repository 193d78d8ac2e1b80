"""How sure an answer is, and whether it is given.

    confidence = sigmoid(bias + weight * score)

score is the reader's, of the best span: its log-odds against "none". What
retrieval gives is left out: it grows with the words that a question shares with
its documents, whether or not they answer it. Bias and weight are fitted to
questions with known answers, by logistic regression (Platt, 1999; for questions
that had better not be answered, [Kamath et al.,
2020](https://arxiv.org/abs/2006.09462)).

A model can come with a calibration, and keeps it through training. Without one
the confidence is the share of the answer in the softmax over all spans that were
read and "none".
"""

import dataclasses
import math

import numpy as np

from realm_tf.answering.relevance_weight import AS_LEARNED
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.retrieval.wordpiece_scores import LEXICAL_WEIGHT
from realm_tf.text import answers

# Of the questions of a user so many have no answer in the corpus (our choice).
UNANSWERABLE = 0.25
# So many of the right answers may not be given (our choice).
LOST = 0.05
# The least confidence of an answer that is given is at most this, where it is
# likelier right than wrong, and at least that which is not printed as 0.00.
HIGHEST, LOWEST = 0.5, 0.005


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was fitted on questions with known answers.

    Args:
        bias: float.
        weight: float. Of the reader's score; not negative.
        least_confidence: float. Of an answer that is given. Defaults to
            `HIGHEST`.
        lexical_weight: float. Of BM25 in a hybrid retriever; `None` if none
            searched.
        relevance_weight: float. See `relevance_weight`.
        questions: int. How many it was fitted on.
    """

    bias: float
    weight: float
    least_confidence: float = HIGHEST
    lexical_weight: float | None = None
    relevance_weight: float = AS_LEARNED
    questions: int = 0

    def confidence(self, score):
        """The probability that an answer is right, array or float.

        Args:
            score: float or array. The reader's, of the answer.
        """
        log_odds = self.bias + self.weight * np.asarray(score)
        return np.exp(-np.logaddexp(0, -log_odds))


def choose(prediction, *, fitted: Calibration | None = None):
    """The answer of an n-best list, how sure it is, and whether it is given.

    Args:
        prediction: `Prediction`.
        fitted: `Calibration`. Defaults to `None`: the confidence is the share.

    Returns:
        `Prediction` with another answer, `confidence` and `answered`.
    """
    if not prediction.nbest:
        # A closed book's has a confidence of its own.
        best, values, confidence = prediction, {}, prediction.confidence
    else:
        best = prediction.nbest[0]
        values = vars(best)
        if fitted is None:
            log_share = min(best.score - prediction.log_total, 0.0)
            confidence = math.exp(log_share)
        else:
            confidence = float(fitted.confidence(best.reader_score))
    answered = bool(best.answer) and confidence >= least_confidence(fitted)
    return dataclasses.replace(
        prediction, **values, confidence=confidence, answered=answered
    )


def least_confidence(fitted: Calibration | None) -> float:
    """The least confidence of an answer that is given.

    Args:
        fitted: `Calibration`; `None` for `LOWEST`.
    """
    return LOWEST if fitted is None else max(fitted.least_confidence, LOWEST)


def fit(
    questions,
    predictions,
    unanswerable=(),
    *,
    start: Calibration | None = None,
    **made_with,
) -> Calibration:
    """Fits the confidence to predictions; see `fit_scores`.

    Args:
        questions: list of `Question`, with answers.
        predictions: list of `Prediction`.
        unanswerable: list of `Prediction`. Of questions that could not be
            answered. Defaults to none.
        start: as of `fit_scores`.
        **made_with: `lexical_weight` and `relevance_weight`, with which the
            predictions were made.

    Returns:
        `Calibration`.
    """
    is_right = [
        answers.is_correct(p.answer, *q.accepted)
        for q, p in zip(questions, predictions, strict=True)
    ]
    given = [*predictions, *unanswerable]
    num_missing = len(given) - len(questions)
    # Nothing is given where no span was found, whatever was fitted.
    kept = np.array([bool(each.nbest) for each in given])
    fitted = fit_scores(
        np.array([each.reader_score for each in given])[kept],
        np.array([*is_right, *num_missing * [False]])[kept],
        is_answerable=(np.arange(len(given)) < len(questions))[kept],
        start=start,
    )
    return dataclasses.replace(fitted, questions=len(questions), **made_with)


def fit_scores(
    scores, is_right, *, is_answerable=None, groups=None, start=None
) -> Calibration:
    """Fits the confidence to scores, by maximum a posteriori.

        -sum_i w_i log p(c_i | s_i) + |parameters - start|^2 / 2

    c says whether an answer is right. w is 1 on average; it gives groups equal
    shares, and in each what cannot be answered a share of `UNANSWERABLE`. The
    parameters are the logit at the mean score and its change with a standard
    deviation of the score: a few questions move them little.

    Args:
        scores: float array `(num,)`. The reader's, of the best span each.
        is_right: bool array `(num,)`.
        is_answerable: bool array `(num,)`. Whether the documents answer the
            question. Defaults to `None`: all.
        groups: array `(num,)`. Name or number of the corpus that was asked.
            Defaults to `None`: one.
        start: `Calibration`. What is known already. Defaults to `None`: a
            confidence of 0.5 for all.

    Returns:
        `Calibration`: at most `LOST` of the right answers, by w, are below its
        `least_confidence`, and none that is likelier right than wrong.
    """
    scores = np.asarray(scores, float)
    is_right = np.asarray(is_right, bool)
    weights = _weights(len(scores), is_answerable, groups)
    start = start or Calibration(0.0, 0.0)
    if not len(scores):
        return start
    mean, scale = scores.mean(), scores.std() or 1.0
    known = np.array([start.bias + start.weight * mean, start.weight * scale])
    columns = np.stack([np.ones(len(scores)), (scores - mean) / scale], axis=1)
    signs = np.where(is_right, 1.0, -1.0)

    def loss(parameters):
        wrong = np.logaddexp(0, -signs * (columns @ parameters))
        return weights @ wrong + np.square(parameters - known).sum() / 2

    # Whoever only reads a calibration need not wait for it.
    import scipy.optimize

    middle, slope = scipy.optimize.minimize(
        loss, known, bounds=[(None, None), (0, None)]
    ).x
    fitted = Calibration(float(middle - slope * mean / scale), slope / scale)
    return dataclasses.replace(
        fitted,
        weight=float(fitted.weight),
        least_confidence=_least_confidence(
            fitted.confidence(scores[is_right]), weights[is_right]
        ),
        questions=len(scores)
        if is_answerable is None
        else int(np.sum(is_answerable)),
    )


def _weights(num, is_answerable, groups):
    """How much each question counts, 1 on average."""
    if is_answerable is None:
        is_answerable = np.ones(num, bool)
    if groups is None:
        groups = np.zeros(num, int)
    weights = np.zeros(num)
    for group in np.unique(groups):
        parts = [
            (np.equal(groups, group) & np.equal(is_answerable, value), share)
            for value, share in (
                (True, 1 - UNANSWERABLE),
                (False, UNANSWERABLE),
            )
        ]
        parts = [(rows, share) for rows, share in parts if rows.any()]
        whole = sum(share for _, share in parts)
        for rows, share in parts:
            weights[rows] = share / whole / rows.sum()
    return weights * num / max(weights.sum(), 1e-12)


def _least_confidence(confidences, weights):
    """Below which less than `LOST` of right answers are, if not `HIGHEST`.

    Rounded, to be the same in float32.
    """
    order = np.argsort(confidences)
    before = np.cumsum(weights[order]) - weights[order]
    allowed = confidences[order][before <= LOST * weights.sum()]
    found = allowed[-1] if len(allowed) else HIGHEST
    return float(np.clip(math.floor(1000 * found) / 1000, LOWEST, HIGHEST))


def from_json(found: dict | None, source) -> Calibration:
    """A calibration as metadata and parameters hold it.

    Args:
        found: dict, as of `dataclasses.asdict`; `None` for none.
        source: Where it was found, for the error.

    Raises:
        InputError: if it is none of this version.
    """
    known = {field.name for field in dataclasses.fields(Calibration)}
    # Earlier versions fitted otherwise.
    if not found or found.keys() - known:
        raise InputError(
            f"{source} holds no calibration of this version: make it again, an "
            "evaluation by `realm evaluate --calibrate` on questions of dev."
        )
    return Calibration(**found)


def read(evaluation: Evaluation) -> Calibration:
    """The calibration that an evaluation holds.

    Args:
        evaluation: `Evaluation`.

    Raises:
        InputError: if it has none.
    """
    return from_json(evaluation.metadata.get("calibration"), evaluation)


def for_model(
    evaluation: Evaluation | str | None, model: Model, retriever: str
) -> Calibration | None:
    """The calibration of a model with a retriever.

    Args:
        evaluation: `Evaluation`, or its path; `None` for that of the model.
        model: `Model`. What it shall be of.
        retriever: str. What found the blocks.

    Returns:
        `Calibration`; `None` if the model comes without one.

    Raises:
        InputError: if the evaluation holds none, or one of another model or
            retriever.
    """
    if evaluation is None:
        found = model.metadata.get("calibration")
        return found and from_json(found, model)
    evaluation = Evaluation.of(evaluation)
    fitted = read(evaluation)
    matching.check_calibration(evaluation, model=model, retriever=retriever)
    return fitted


def lexical_weight_of(fitted: Calibration | None) -> float:
    """The weight of BM25 in a hybrid retriever.

    Args:
        fitted: `Calibration`; without a weight, or `None`, for
            `LEXICAL_WEIGHT`.
    """
    weight = fitted and fitted.lexical_weight
    return LEXICAL_WEIGHT if weight is None else weight


def relevance_weight_of(fitted: Calibration | None) -> float:
    """How much retrieval counts in the score of a span.

    Args:
        fitted: `Calibration`; `None` for `AS_LEARNED`.
    """
    return AS_LEARNED if fitted is None else fitted.relevance_weight
