"""Which questions have an answer in a corpus at all: one pass over its blocks.

`text.answers.AnswerFinder` says it for one block and one question; blocks
times questions of such calls are too many. Here every block is normalised once,
and each of its words is looked up among the first words of all answers that are
still looked for. The result is the same, since an answer stands in a block when
its words stand there one after another.
"""

import collections
import functools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

from realm_tf.artifacts.question_files import Question
from realm_tf.text import answers


def find_answered(
    questions: Sequence[Question],
    texts: Iterable[str],
    *,
    progress: Callable[[int], None],
) -> list[bool]:
    """Whether any of some texts contains an answer, for each question.

    Equal to asking `AnswerFinder.contains` of each text.

    Args:
        questions: sequence of `Question`.
        texts: iterable of str. Of blocks; read once, and not to the end if
            all questions are answered before.
        progress: function called with the number of texts read, after each.

    Returns:
        list of bool, in the order of `questions`.
    """
    patterns = collections.defaultdict(list)
    # For each form: first word, number of words, words: questions.
    wanted = {
        functools.partial(form, language=language): collections.defaultdict(
            dict
        )
        for language in sorted({each.language for each in questions})
        for form in answers.FORMS
    }
    for number, question in enumerate(questions):
        if question.answer_type == "regex":
            for pattern in map(answers.compile_pattern, question.answers):
                if pattern is not None:
                    patterns[pattern].append(number)
            continue
        for form, phrases in wanted.items():
            if form.keywords["language"] != question.language:
                continue
            for phrase in filter(None, map(form, question.answers)):
                words = phrase.split(" ")
                same_length = phrases[words[0]].setdefault(len(words), {})
                same_length.setdefault(phrase, []).append(number)
    answered = set()
    for number, text in enumerate(texts, start=1):
        for form, phrases in wanted.items():
            answered |= _take(form(text).split(" "), phrases)
        for pattern in [each for each in patterns if each.search(text)]:
            answered.update(patterns.pop(pattern))
        progress(number)
        if len(answered) == len(questions):
            break
    return [number in answered for number in range(len(questions))]


def _take(words, wanted):
    """The questions with a phrase in a text; these phrases are forgotten."""
    found = set()
    for start, word in enumerate(words):
        for length, phrases in wanted.get(word, {}).items():
            phrase = " ".join(words[start : start + length])
            found.update(phrases.pop(phrase, ()))
    return found
