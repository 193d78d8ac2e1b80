"""Rules of a right answer: normalisation, exact match, F1, containment.

Rules are those of English unless another language is named, by its ISO 639-1
code: `en` as SQuAD's evaluation, `ar`, `de`, `es`, `hi`, `vi` and `zh` as MLQA's
(facebookresearch/MLQA, mlqa_evaluation_v1.py), any other as MLQA's of a language
without articles.
"""

import collections
import functools
import re
import string
import unicodedata
import warnings

ENGLISH = "en"
_ARTICLES = {
    language: re.compile(rf"\b({'|'.join(words.split())})\b")
    for language, words in {
        ENGLISH: "a an the",
        "de": "ein eine einen einem eines einer der die das den dem des",
        "es": "un una unos unas el la los las",
        "vi": "của là cái chiếc những",
    }.items()
}
# Written together with its word; MLQA drops these letters everywhere.
_ARTICLES["ar"] = re.compile("ال")
# Written without spaces: each ideograph is a word.
_OF_IDEOGRAPHS = {"zh"}
_IDEOGRAPH = re.compile("([\u4e00-\u9fff])")
_PUNCTUATION = set(string.punctuation)


def base_language(code: str) -> str:
    """The language of a code with a region or script: `de` of `de-DE`, `DE`."""
    return code.lower().partition("-")[0]


def normalize_answer(text: str, language: str = ENGLISH) -> str:
    """The form in which answers are compared.

    English: Unicode NFD, lower case, no ASCII punctuation, no a/an/the, white
    space collapsed. Others: NFC, no punctuation at all, no articles of theirs;
    ideographs of Chinese are set apart.

    Args:
        text: str.
        language: str. Defaults to English.

    Returns:
        str.

    References:
        The rules of [SQuAD](https://arxiv.org/abs/1606.05250)'s evaluation,
        preceded by NFD as in google-research/language, language/orqa; those
        of [MLQA](https://arxiv.org/abs/1910.07475)'s.

    Example:

    >>> normalize_answer("The  U.S.A.")
    'usa'
    """
    text = _lower(text, language)
    is_english = language == ENGLISH
    text = "".join(
        c
        for c in text
        if c not in _PUNCTUATION
        and (is_english or unicodedata.category(c)[0] != "P")
    )
    return _words(text, language)


def _lower(text, language):
    # Beyond English, accents would otherwise end the words that they are in.
    form = "NFD" if language == ENGLISH else "NFC"
    return unicodedata.normalize(form, text).lower()


def _words(text, language):
    """The words without articles, separated by one space."""
    articles = _ARTICLES.get(language)
    if articles:
        text = articles.sub(" ", text)
    if language in _OF_IDEOGRAPHS:
        text = _IDEOGRAPH.sub(r" \1 ", text)
    return " ".join(text.split())


def exact_match(
    prediction: str, answers: list[str], language: str = ENGLISH
) -> bool:
    """Whether a prediction equals any accepted answer, normalised.

    An empty prediction equals none, not even an answer of which nothing is left
    ("The").
    """
    normalized = normalize_answer(prediction, language)
    return bool(prediction.strip()) and any(
        normalized == normalize_answer(answer, language) for answer in answers
    )


def is_correct(
    prediction: str,
    answers: list[str],
    answer_type: str,
    language: str = ENGLISH,
) -> bool:
    """Whether a prediction is right, as the question's type asks.

    `"string"`: see `exact_match`. `"regex"`: a pattern matches from the start;
    CuratedTREC's answers are regular expressions, and an invalid one never
    matches (as in google-research/language, language/orqa).
    """
    if answer_type == "regex":
        compiled = map(compile_pattern, answers)
        return any(each and each.match(prediction) for each in compiled)
    return exact_match(prediction, answers, language)


def f1_score(
    prediction: str, answers: list[str], language: str = ENGLISH
) -> float:
    """The best word-level F1 against any accepted answer, normalised.

    Args:
        prediction: str.
        answers: list of str.
        language: str. Defaults to English.

    Returns:
        float between 0 and 1; 0 for an empty prediction, as of `exact_match`.
    """
    if not prediction.strip():
        return 0.0
    return max(
        (_f1(prediction, answer, language) for answer in answers), default=0.0
    )


def _f1(prediction, answer, language):
    predicted = normalize_answer(prediction, language).split()
    expected = normalize_answer(answer, language).split()
    if not predicted or not expected:
        return float(predicted == expected)
    shared = collections.Counter(predicted) & collections.Counter(expected)
    # The harmonic mean of precision and recall.
    return 2 * shared.total() / (len(predicted) + len(expected))


class AnswerFinder:
    """Decides which blocks answer which questions.

    A text is normalised once, when it is first looked at.

    Args:
        texts: sequence of str. By block id.
    """

    def __init__(self, texts):
        self._texts = texts
        self._forms = {}

    def contains(
        self,
        block_id: int,
        answers: list[str],
        answer_type: str = "string",
        language: str = ENGLISH,
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
            language: str. Defaults to English.
        """
        text = self._texts[block_id]
        if answer_type == "regex":
            compiled = map(compile_pattern, answers)
            return any(each and each.search(text) for each in compiled)
        key = block_id, language
        if key not in self._forms:
            self._forms[key] = [f" {form(text, language)} " for form in FORMS]
        return any(
            wanted and f" {wanted} " in padded
            for answer in answers
            for wanted, padded in zip(
                _forms(answer, language), self._forms[key], strict=True
            )
        )

    def first_rank(
        self,
        block_ids: list[int],
        answers: list[str],
        answer_type: str = "string",
        language: str = ENGLISH,
    ) -> int | None:
        """The rank, from 1, of the first block that holds an answer.

        Args:
            block_ids: list of int. Best first.
            answers: list of str.
            answer_type: str. Defaults to `"string"`.
            language: str. Defaults to English.

        Returns:
            int, or `None` if none of the blocks does.
        """
        for rank, block_id in enumerate(block_ids, 1):
            if self.contains(block_id, answers, answer_type, language):
                return rank
        return None


def _cut_at_punctuation(text, language=ENGLISH):
    text = _lower(text, language)
    # Accents and vowel signs belong to their words.
    words = "".join(
        c
        if c.isalnum() or (c > "~" and unicodedata.category(c)[0] == "M")
        else " "
        for c in text
    )
    return _words(words, language)


# Either may hold an answer; see `AnswerFinder.contains`.
FORMS = (normalize_answer, _cut_at_punctuation)


@functools.lru_cache(maxsize=65536)
def _forms(answer, language):
    return tuple(form(answer, language) for form in FORMS)


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
