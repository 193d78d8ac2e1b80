"""When an answer is right: normalisation, exact match, F1, containment."""

import collections
import functools
import re
import string
import unicodedata
import warnings

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = set(string.punctuation)


def normalize_answer(text: str) -> str:
    """The form in which answers are compared.

    Unicode NFD, lower case, no ASCII punctuation, no a/an/the, white space
    collapsed.

    Args:
        text: str.

    Returns:
        str.

    References:
        The rules of [SQuAD](https://arxiv.org/abs/1606.05250)'s evaluation,
        preceded by NFD as in google-research/language, language/orqa.

    Example:

    >>> normalize_answer("The  U.S.A.")
    'usa'
    """
    text = unicodedata.normalize("NFD", text).lower()
    text = "".join(c for c in text if c not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: list[str]) -> bool:
    """Whether a prediction equals any accepted answer, normalised."""
    prediction = normalize_answer(prediction)
    return any(prediction == normalize_answer(answer) for answer in answers)


def regex_match(prediction: str, patterns: list[str]) -> bool:
    """Whether a pattern matches from the start of a prediction.

    CuratedTREC's answers are regular expressions; an invalid one never
    matches (as in google-research/language, language/orqa).

    Args:
        prediction: str.
        patterns: list of str.
    """
    compiled = map(compile_pattern, patterns)
    return any(each and each.match(prediction) for each in compiled)


def is_correct(prediction: str, answers: list[str], answer_type: str) -> bool:
    """`exact_match` or `regex_match`, as the question's type asks."""
    if answer_type == "regex":
        return regex_match(prediction, answers)
    return exact_match(prediction, answers)


def f1_score(prediction: str, answers: list[str]) -> float:
    """The best word-level F1 against any accepted answer, normalised.

    Args:
        prediction: str.
        answers: list of str.

    Returns:
        float between 0 and 1. Two empty strings are equal: 1.
    """
    return max((_f1(prediction, answer) for answer in answers), default=0.0)


def _f1(prediction, answer):
    predicted = normalize_answer(prediction).split()
    expected = normalize_answer(answer).split()
    if not predicted or not expected:
        return float(predicted == expected)
    shared = collections.Counter(predicted) & collections.Counter(expected)
    num_shared = sum(shared.values())
    if not num_shared:
        return 0.0
    precision = num_shared / len(predicted)
    recall = num_shared / len(expected)
    return 2 * precision * recall / (precision + recall)


class AnswerFinder:
    """Tells which blocks answer which questions.

    A text is normalised once, when it is first looked at.

    Args:
        texts: sequence of str. By block id.
    """

    def __init__(self, texts):
        self._texts = texts
        self._forms = {}

    def contains(
        self, block_id: int, answers: list[str], answer_type: str = "string"
    ) -> bool:
        """Whether a block answers a question.

        By whole words, normalised ("US" is not in "USA", "U.S." is "US") or
        cut at punctuation ("Jacquet" is in "Jacquet's"); regular expressions
        are searched for anywhere (as DrQA does for this purpose).

        Args:
            block_id: int.
            answers: list of str.
            answer_type: str. `"string"` or `"regex"`. Defaults to
                `"string"`.
        """
        if answer_type == "regex":
            compiled = map(compile_pattern, answers)
            text = self._texts[block_id]
            return any(each and each.search(text) for each in compiled)
        if block_id not in self._forms:
            text = self._texts[block_id]
            self._forms[block_id] = [f" {form(text)} " for form in FORMS]
        return any(
            wanted and f" {wanted} " in padded
            for answer in answers
            for wanted, padded in zip(
                _forms(answer), self._forms[block_id], strict=True
            )
        )

    def first_rank(
        self,
        block_ids: list[int],
        answers: list[str],
        answer_type: str = "string",
    ) -> int | None:
        """The rank, from 1, of the first block that holds an answer.

        Args:
            block_ids: list of int. Best first.
            answers: list of str.
            answer_type: str. Defaults to `"string"`.

        Returns:
            int, or `None` if none of the blocks does.
        """
        for rank, block_id in enumerate(block_ids, 1):
            if self.contains(block_id, answers, answer_type):
                return rank
        return None


def _cut_at_punctuation(text):
    text = unicodedata.normalize("NFD", text).lower()
    # Accents and vowel signs belong to their words.
    words = "".join(
        c
        if c.isalnum() or (c > "~" and unicodedata.category(c)[0] == "M")
        else " "
        for c in text
    )
    return " ".join(_ARTICLES.sub(" ", words).split())


# Either may hold an answer; see `AnswerFinder.contains`.
FORMS = (normalize_answer, _cut_at_punctuation)


@functools.lru_cache(maxsize=65536)
def _forms(answer):
    return tuple(form(answer) for form in FORMS)


@functools.lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern | None:
    """A pattern of CuratedTREC, or `None` if it is not a valid one."""
    flags = re.IGNORECASE | re.UNICODE | re.MULTILINE
    try:
        with warnings.catch_warnings():
            # "[[" may mean a set within a set one day.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern, flags)
    except (re.error, OverflowError):
        # OverflowError: a repetition of too large a number.
        return None
