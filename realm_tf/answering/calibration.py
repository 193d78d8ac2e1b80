"""How sure an answer is, and when it is better to give none.

The confidence of an answer is its share in the softmax over all spans that
were read, with scores divided by a temperature that is fitted on questions
with known answers ([Guo et al., 2017](https://arxiv.org/abs/1706.04599)). The
share of a string is that of all its spans, where they are added up.
"""

import collections
import dataclasses
import math

import numpy as np

from realm_tf.artifacts.objects import Evaluation
from realm_tf.errors import InputError
from realm_tf.retrieval.hybrid import LEXICAL_WEIGHT
from realm_tf.text import answers

# Tried when one is fitted: 2 ** (-3 .. 5), four to a doubling.
TEMPERATURES = tuple(2.0 ** (step / 4) for step in range(-12, 21))
# A confidence that is wrong is no worse than this, in the fit.
_LEAST_PROBABILITY = 1e-6
NUM_BINS = 10
# Shares of wrong answers among those given, for which thresholds are kept.
RISKS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was fitted on questions with known answers.

    Args:
        temperature: float. One of `TEMPERATURES`.
        aggregate_answers: bool. Whether equal strings were added up.
        lexical_weight: float. Of BM25 in a hybrid retriever; `None` if none
            searched.
        questions: int. How many it was fitted on.
        negative_log_likelihood: float. In nats a question.
        expected_calibration_error: float. See `calibration_error`.
        error_at_temperature_1: float. The same, uncalibrated.
        thresholds: dict. Share of wrong answers (as str) to `{"threshold",
            "coverage"}`: the least confidence of an answer that is given,
            and how many questions that answers.
    """

    temperature: float = 1.0
    aggregate_answers: bool = False
    lexical_weight: float | None = None
    questions: int = 0
    negative_log_likelihood: float = 0.0
    expected_calibration_error: float = 0.0
    error_at_temperature_1: float = 0.0
    thresholds: dict = dataclasses.field(default_factory=dict)


def confidence(score: float, log_total: float, temperature: float) -> float:
    """exp(score / temperature - log_total), at most 1."""
    return math.exp(min(score / temperature - float(log_total), 0.0))


def choose(prediction, *, temperature: float = 1.0, aggregate: bool = False):
    """The answer of an n-best list, and how sure it is.

    Args:
        prediction: `Prediction`.
        temperature: float. One of `TEMPERATURES`. Defaults to `1.0`.
        aggregate: bool. Add the shares of equal strings (normalised as for
            exact match) up, over all blocks, and take the likeliest string;
            the span shown is its best one. Defaults to `False`: the best
            span.

    Returns:
        `Prediction` with another answer and confidence.
    """
    if not prediction.nbest:
        return prediction
    log_total = prediction.log_totals[TEMPERATURES.index(temperature)]
    shares = [
        confidence(span.score, log_total, temperature)
        for span in prediction.nbest
    ]
    best, share = prediction.nbest[0], shares[0]
    if aggregate:
        totals = collections.defaultdict(float)
        for span, of_span in zip(prediction.nbest, shares, strict=True):
            totals[_key(span)] += of_span
        key = max(totals, key=totals.get)
        share = min(totals[key], 1.0)
        best = next(s for s in prediction.nbest if _key(s) == key)
    return dataclasses.replace(prediction, **vars(best), confidence=share)


def _key(span):
    # An answer such as "The" is nothing when normalised.
    return answers.normalize_answer(span.answer) or span.answer


def fit(
    questions,
    predictions,
    *,
    aggregate: bool = False,
    lexical_weight: float | None = None,
) -> Calibration:
    """Fits the temperature by maximum likelihood.

        -1/n sum_i [c_i log p_i + (1 - c_i) log(1 - p_i)]

    c says whether an answer is right, p is its confidence. Predictions
    without an n-best list (closed-book ones) keep theirs.

    Args:
        questions: list of `Question`, with answers.
        predictions: list of `Prediction`.
        aggregate: bool. As `choose`. Defaults to `False`.
        lexical_weight: float. Of BM25 in a hybrid retriever. Defaults to
            `None`.

    Returns:
        `Calibration`.
    """
    found = {}
    for temperature in TEMPERATURES:
        chosen = [
            choose(p, temperature=temperature, aggregate=aggregate)
            for p in predictions
        ]
        correct = np.array(
            [
                answers.is_correct(p.answer, q.answers, q.answer_type)
                for q, p in zip(questions, chosen, strict=True)
            ]
        )
        shares = np.array([p.confidence for p in chosen])
        found[temperature] = correct, shares, _loss(correct, shares)
    best = min(found, key=lambda temperature: found[temperature][2])
    correct, shares, loss = found[best]
    return Calibration(
        temperature=best,
        aggregate_answers=aggregate,
        lexical_weight=lexical_weight,
        questions=len(predictions),
        negative_log_likelihood=round(loss, 6),
        expected_calibration_error=calibration_error(correct, shares),
        error_at_temperature_1=calibration_error(*found[1.0][:2]),
        thresholds={
            str(risk): found_at
            for risk in RISKS
            if (found_at := threshold(correct, shares, risk))
        },
    )


def _loss(correct, shares):
    likely = np.clip(shares, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    return float(-np.mean(np.where(correct, np.log(likely), np.log1p(-likely))))


def calibration_error(correct, shares) -> float:
    """Expected calibration error over ten bins of equal width.

        sum_bins |bin| / n * |mean correct - mean confidence|

    Args:
        correct: bool array `(num_questions,)`.
        shares: float array `(num_questions,)`. Confidences.

    References:
        [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 2.
    """
    error = sum(
        len(rows) * abs(np.mean(correct[rows]) - np.mean(shares[rows]))
        for _, _, rows in confidence_bins(shares)
    )
    return round(float(error / len(shares)), 6)


def confidence_bins(shares) -> list[tuple[float, float, np.ndarray]]:
    """Questions by confidence, in ten bins of equal width.

    Args:
        shares: float array `(num_questions,)`. Confidences, from 0 to 1.

    Returns:
        list of `(low, high, rows)`, one a bin that has questions: its lower
        end, which it includes, its upper end, which only the last one does,
        and the positions of its questions.
    """
    limits = np.arange(NUM_BINS + 1) / NUM_BINS
    bins = np.minimum(np.digitize(shares, limits), NUM_BINS)
    return [
        (
            float(limits[number - 1]),
            float(limits[number]),
            np.flatnonzero(bins == number),
        )
        for number in np.unique(bins)
    ]


def risk_and_coverage(correct, shares):
    """What refusing to answer below some confidence brings.

    The questions of highest confidence are answered, those of the same
    confidence together.

    Args:
        correct: bool array `(num_questions,)`.
        shares: float array `(num_questions,)`. Confidences.

    Returns:
        `(thresholds, coverage, risk)`, float arrays `(num_thresholds,)`: each
        confidence that there is, falling; the share of questions with at
        least this one; the share of wrong answers among these.

    References:
        [Geifman and El-Yaniv, 2017](https://arxiv.org/abs/1705.08500).
    """
    thresholds, place, counts = np.unique(
        -np.asarray(shares), return_inverse=True, return_counts=True
    )
    answered = np.cumsum(counts)
    wrong = np.cumsum(np.bincount(place, weights=1 - np.asarray(correct, int)))
    return -thresholds, answered / len(place), wrong / answered


def threshold(correct, shares, risk: float) -> dict | None:
    """The least confidence at which at most a share `risk` is wrong.

    Args:
        correct: bool array `(num_questions,)`.
        shares: float array `(num_questions,)`. Confidences.
        risk: float. Wrong answers among those given, at most.

    Returns:
        dict of `threshold` and `coverage`, for the most questions answered;
        `None` if no threshold keeps to the risk.
    """
    thresholds, coverage, risks = risk_and_coverage(correct, shares)
    kept = np.flatnonzero(risks <= risk)
    if not len(kept):
        return None
    return {
        "threshold": float(thresholds[kept[-1]]),
        "coverage": round(float(coverage[kept[-1]]), 6),
    }


def read(evaluation: Evaluation) -> Calibration:
    """The calibration that an evaluation holds.

    Args:
        evaluation: `Evaluation`.

    Raises:
        InputError: if it has none.
    """
    if "calibration" not in evaluation.metadata:
        raise InputError(
            f"{evaluation} holds no calibration: it has no answers "
            "(--num-reader-blocks 0) or was made by an earlier version; run "
            "`realm evaluate` again."
        )
    return Calibration(**evaluation.metadata["calibration"])


def lexical_weight_of(evaluation: Evaluation | str | None) -> float:
    """The weight of BM25 in a hybrid retriever.

    Args:
        evaluation: `Evaluation`, or its path; `None` for `LEXICAL_WEIGHT`.

    Raises:
        InputError: if it is one of a model that searched alone.
    """
    if evaluation is None:
        return LEXICAL_WEIGHT
    fitted = read(Evaluation.of(evaluation))
    if fitted.lexical_weight is None:
        raise InputError(
            f"--calibration {evaluation} fitted no weight of BM25: run `realm "
            "evaluate` with --retriever hybrid."
        )
    return fitted.lexical_weight


def temperature_of(evaluation: Evaluation | str | None) -> float:
    """The temperature of a model that gives its best span as the answer.

    Args:
        evaluation: `Evaluation`, or its path; `None` for 1.

    Raises:
        InputError: if it holds no calibration, or one of answers whose shares
            were added up.
    """
    if evaluation is None:
        return 1.0
    fitted = read(Evaluation.of(evaluation))
    if fitted.aggregate_answers:
        raise InputError(
            f"--calibration {evaluation} was fitted on answers that were "
            "added up, which an export does not: run `realm evaluate` "
            "without --aggregate-answers."
        )
    return fitted.temperature
