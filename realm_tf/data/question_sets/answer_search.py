"""Which questions have an answer in a corpus at all: one pass over its blocks.

`text.answers.contains_answer` says it for one block and one question; blocks
times questions of such calls are too many. Here every block is normalised once,
and each of its words is looked up among the first words of all answers that are
still looked for. The result is the same, since an answer stands in a block when
its words stand there one after another. A pattern is searched for only where a
text holds letters that it cannot do without.
"""

import collections
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

from realm_tf.artifacts.question_files import Question
from realm_tf.text import answers

# Beyond ASCII, what Python's IGNORECASE takes for i, k and s.
_LIKE_ASCII = str.maketrans("\u0130\u0131\u017f\u212a", "iisk")
# An escape, a class, a quantifier in braces or a character.
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[0-9,]*\}|.", re.DOTALL)
# Escapes of letters that stand for no character in particular; others, such as
# \x41, are numbers of characters.
_CLASSES = "AbBdDsSwWZ"


def find_answered(
    questions: Sequence[Question],
    texts: Iterable[str],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[bool]:
    """Whether any of some texts contains an answer, for each question.

    Equal to `any(contains_answer(text, question.answers,
    question.answer_type) for text in texts)`.

    Args:
        questions: sequence of `Question`.
        texts: iterable of str. Of blocks; read once, and not to the end if
            all questions are answered before.
        progress: function called with the number of texts read, after each.

    Returns:
        list of bool, in the order of `questions`.
    """
    answered = [False] * len(questions)
    searches = [_Phrases(form, questions) for form in answers.FORMS]
    searches.append(_Patterns(questions))
    num_left = len(questions)
    for number, text in enumerate(texts, start=1):
        for question in set().union(*(each.find(text) for each in searches)):
            num_left -= not answered[question]
            answered[question] = True
        if progress is not None:
            progress(number)
        if not num_left:
            break
    return answered


class _Phrases:
    """Answers in one normalised form that are still looked for.

    Args:
        form: function from str to str, words with one space between them.
        questions: sequence of `Question`.
    """

    def __init__(self, form, questions):
        self._form = form
        # First word, number of words, words: questions.
        self._wanted = collections.defaultdict(dict)
        for number, question in enumerate(questions):
            if question.answer_type == "regex":
                continue
            for answer in question.answers:
                phrase = form(answer)
                if phrase:
                    words = phrase.split(" ")
                    same_first = self._wanted[words[0]]
                    same_length = same_first.setdefault(len(words), {})
                    same_length.setdefault(phrase, []).append(number)

    def find(self, text: str) -> set[int]:
        """The questions with an answer in a text; these are forgotten."""
        words = self._form(text).split(" ")
        found = set()
        for start, word in enumerate(words):
            for length, phrases in self._wanted.get(word, {}).items():
                phrase = " ".join(words[start : start + length])
                found.update(phrases.pop(phrase, ()))
        return found


class _Patterns:
    """Valid patterns that are still looked for.

    Args:
        questions: sequence of `Question`.
    """

    def __init__(self, questions):
        self._wanted = collections.defaultdict(list)
        for number, question in enumerate(questions):
            if question.answer_type == "regex":
                for answer in question.answers:
                    compiled = answers.compile_pattern(answer)
                    if compiled is not None:
                        self._wanted[compiled].append(number)
        self._literals = {
            compiled: required_literals(compiled.pattern)
            for compiled in self._wanted
        }

    def find(self, text: str) -> set[int]:
        """The questions with a pattern in a text; these are forgotten."""
        if not self._wanted:
            return set()
        folded = fold(text)
        matching = []
        for compiled in self._wanted:
            literals = self._literals[compiled]
            may_match = literals is None or any(
                each in folded for each in literals
            )
            if may_match and compiled.search(text):
                matching.append(compiled)
        found = set()
        for compiled in matching:
            found.update(self._wanted.pop(compiled))
        return found


def fold(text: str) -> str:
    """Lower case, and ASCII for what IGNORECASE takes for ASCII letters."""
    return text.translate(_LIKE_ASCII).lower()


def required_literals(pattern: str) -> list[str] | None:
    """Strings one of which stands, folded, wherever a pattern matches.

    Of each alternative the longest run of ASCII characters that it always
    has. What is inside brackets is not looked at.

    Args:
        pattern: str. A valid regular expression, to be used with IGNORECASE
            and without VERBOSE.

    Returns:
        list of str, or `None` if an alternative has no such run or the
        pattern is too intricate to tell.

    Example:

    >>> required_literals(r"New\\s?York|colou?r of .* (sky|seas?)")
    ['york', 'r of ']
    """
    if "(?" in pattern:
        return None
    # The runs of each alternative; a run ends where another begins.
    alternatives = [[""]]
    depth = 0
    for part in _PART.findall(pattern):
        runs = alternatives[-1]
        if part in ("(", ")"):
            depth += 1 if part == "(" else -1
            runs.append("")
        elif depth:
            continue
        elif part == "|":
            alternatives.append([""])
        elif part in ("?", "*") or part[0] == "{":
            # What it follows may be missing.
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif part[0] == "\\" and part[1].isalnum() and part[1] not in _CLASSES:
            return None
        elif _is_literal(part):
            runs[-1] += part[-1].lower()
        else:
            runs.append("")
    longest = [max(runs, key=len) for runs in alternatives]
    return longest if all(longest) else None


def _is_literal(part):
    if part[0] == "\\":
        return part[1:].isascii() and not part[1:].isalnum()
    return part.isascii() and len(part) == 1 and part not in ".^$+"
