"""When an answer is right: normalisation, exact match, F1, containment."""

import collections
import re
import string
import unicodedata

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORD = re.compile(r"[^\W_]+")
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
    compiled = map(_compile, patterns)
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


def contains_answer(
    text: str, answers: list[str], answer_type: str = "string"
) -> bool:
    """Whether a block answers a question.

    By whole words, normalised ("US" is not in "USA", "U.S." is "US") or cut at
    punctuation ("Jacquet" is in "Jacquet's"); regular expressions are searched
    for anywhere (as DrQA does for this purpose).

    Args:
        text: str. A block's text.
        answers: list of str.
        answer_type: str. `"string"` or `"regex"`. Defaults to `"string"`.
    """
    if answer_type == "regex":
        compiled = map(_compile, answers)
        return any(each and each.search(text) for each in compiled)
    for form in (normalize_answer, _cut_at_punctuation):
        padded = f" {form(text)} "
        for answer in answers:
            wanted = form(answer)
            if wanted and f" {wanted} " in padded:
                return True
    return False


def _cut_at_punctuation(text):
    text = unicodedata.normalize("NFD", text).lower()
    words = _ARTICLES.sub(" ", " ".join(_WORD.findall(text)))
    return " ".join(words.split())


def _compile(pattern):
    try:
        return re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)
    except (re.error, OverflowError):
        # OverflowError: a repetition of too large a number.
        return None
