"""What lies behind the means of an evaluation, as plain numbers.

A line is one of predictions.jsonl, as `realm evaluate` writes it.
"""

import collections
import math
import re
from collections.abc import Callable

import numpy as np
from scipy import stats

from realm_tf.answering import calibration
from realm_tf.text import answers as answer_rules

QUESTION_WORDS = (
    "who",
    "what",
    "when",
    "where",
    "which",
    "how many",
    "how",
    "other",
)
# Accepted answers of this many words or more are one group. Our choice.
LONGEST_LENGTH = 5
PATTERN = "pattern"

_QUESTION_WORD = re.compile(
    r"\b(?:(how)\W+(many)|(who)(?:m|se)?|(what|when|where|which|how))\b"
)


def recall_curves(lines: list[dict]) -> dict[str, list[float]]:
    """Share of questions with an answer among the first k blocks.

    Args:
        lines: list of dict. With `answer_ranks`, retriever to the 1-based
            rank of the first block that holds an answer (`None` where none of
            them does), and `num_ranked`, blocks that were looked at; lines
            without are left out.

    Returns:
        dict of retriever to list of float, for k = 1 to the greatest
        `num_ranked`.
    """
    ranked = [line for line in lines if line.get("answer_ranks")]
    num_ranked = max((line["num_ranked"] for line in ranked), default=0)
    ranks = collections.defaultdict(list)
    for line in ranked:
        for retriever, rank in line["answer_ranks"].items():
            ranks[retriever].append(rank or math.inf)
    at = np.arange(1, num_ranked + 1)
    return {
        retriever: np.less_equal.outer(each, at).mean(axis=0).tolist()
        for retriever, each in ranks.items()
    }


def question_word(question: str) -> str:
    """The first question word of a question, one of `QUESTION_WORDS`.

    "Whom" and "whose" are "who"; "how much" and the like are "how". A
    relative pronoun before the question word is taken for it.

    Args:
        question: str.

    Returns:
        str, `"other"` without one.
    """
    found = _QUESTION_WORD.search(question.lower())
    return " ".join(filter(None, found.groups())) if found else "other"


def accepted_answers(line: dict) -> list[str]:
    """What a line of a questions file accepts, however it is written."""
    accepted = line.get("answer", line.get("answers", []))
    return [accepted] if isinstance(accepted, str) else accepted


def answer_length(line: dict) -> str:
    """The group of the shortest accepted answer: its number of words.

    Counted after normalisation, so that an article is no word.

    Args:
        line: dict.

    Returns:
        str, `"1"`, `"2"`, ... up to `"5 or more"`; `PATTERN` for a regular
        expression, whose length says nothing.
    """
    if line.get("answer_type") == "regex":
        return PATTERN
    language = line.get("language", answer_rules.ENGLISH)
    lengths = (
        len(answer_rules.normalize_answer(answer, language).split())
        for answer in accepted_answers(line)
    )
    return answer_lengths()[min(max(min(lengths), 1), LONGEST_LENGTH) - 1]


def answer_lengths() -> tuple[str, ...]:
    """All groups of `answer_length`, in their order."""
    shorter = map(str, range(1, LONGEST_LENGTH))
    return (*shorter, f"{LONGEST_LENGTH} or more", PATTERN)


def by_group(
    lines: list[dict],
    group_of: Callable[[dict], str],
    groups: tuple[str, ...],
) -> dict[str, dict]:
    """Exact match of groups of questions.

    Args:
        lines: list of dict. With `exact_match`.
        group_of: function from a line to its group.
        groups: tuple of str. All groups, in the order wanted.

    Returns:
        dict of group to dict with `questions` (int), `exact_match` (float)
        and `interval` (list of two floats, see `wilson_interval`); a group
        without questions is left out.
    """
    members = collections.defaultdict(list)
    for line in lines:
        members[group_of(line)].append(line)
    return {
        group: _share_right(members[group])
        for group in groups
        if members[group]
    }


def _share_right(lines):
    num_right = sum(line["exact_match"] for line in lines)
    return {
        "questions": len(lines),
        "exact_match": num_right / len(lines),
        "interval": wilson_interval(num_right, len(lines)),
    }


def wilson_interval(successes: float, trials: int) -> list[float]:
    """The 95 % score interval of a proportion.

    For groups of few questions, of which a bootstrap would say that 5 right
    ones out of 5 leave no doubt.

    Args:
        successes: float.
        trials: int. Positive.

    Returns:
        list of two floats.

    References:
        [Wilson, 1927](https://doi.org/10.1080/01621459.1927.10502953).
    """
    test = stats.binomtest(int(successes), trials)
    interval = test.proportion_ci(method="wilson")
    return [float(interval.low), float(interval.high)]


def risk_coverage(
    lines: list[dict], *, risks: tuple[float, ...] = (0.1, 0.2)
) -> dict:
    """What refusing to answer below some confidence brings.

    Args:
        lines: list of dict. With `confidence` and `exact_match`.
        risks: tuple of float. At which coverage is wanted. Defaults to
            `(0.1, 0.2)`.

    Returns:
        dict of `points`, list of (coverage, risk), see
        `calibration.risk_and_coverage`; `area`, float, the mean risk over
        all numbers of questions answered, questions of the same confidence
        in random order; `coverage_at`, dict of each of `risks` to the
        greatest coverage of a threshold whose risk is not above it, 0
        without one.

    References:
        The area as in [Geifman et al., 2019](
        https://arxiv.org/abs/1805.08206).
    """
    _, coverage, risk = calibration.risk_and_coverage(
        [line["exact_match"] for line in lines],
        [line["confidence"] for line in lines],
    )
    # In random order, the wrong ones of a confidence come evenly.
    numbers = np.arange(1, len(lines) + 1)
    answered = coverage * len(lines)
    wrong = np.interp(numbers, [0, *answered], [0, *answered * risk])
    return {
        "points": list(zip(coverage.tolist(), risk.tolist(), strict=True)),
        "area": float(np.mean(wrong / numbers)),
        "coverage_at": {
            limit: float(coverage[risk <= limit].max(initial=0.0))
            for limit in risks
        },
    }


def reliability(lines: list[dict]) -> list[dict]:
    """How often answers of some confidence are right.

    Args:
        lines: list of dict. With `confidence`, from 0 to 1, and
            `exact_match`.

    Returns:
        list of dict, one of each of `calibration.confidence_bins`: `low`,
        `high`, `confidence` (its mean), `questions`, `exact_match` and
        `interval`.
    """
    shares = np.array([line["confidence"] for line in lines])
    return [
        {
            "low": low,
            "high": high,
            "confidence": float(shares[rows].mean()),
            **_share_right([lines[row] for row in rows]),
        }
        for low, high, rows in calibration.confidence_bins(shares)
    ]
