"""Which questions have an answer in a corpus: one pass over its blocks.

`text.answers.AnswerFinder` answers this for one block and one question; blocks
times questions of such calls are too many. Here every block is normalised once,
and each of its words is looked up among the first words of all answers. The
result is the same, since a block holds an answer when it holds the answer's
words one after another.
"""

import collections
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
    # (form, language): phrase: questions.
    wanted = collections.defaultdict(lambda: collections.defaultdict(list))
    for number, question in enumerate(questions):
        if question.answer_type == "regex":
            for pattern in filter(
                None, map(answers.compile_pattern, question.answers)
            ):
                patterns[pattern].append(number)
            continue
        for form in answers.FORMS:
            for answer in question.answers:
                phrase = form(answer, question.language)
                if phrase:
                    key = form, question.language
                    wanted[key][phrase].append(number)
    lengths = {key: _lengths(phrases) for key, phrases in wanted.items()}
    answered = set()
    for number, text in enumerate(texts, start=1):
        for (form, language), phrases in wanted.items():
            words = form(text, language).split(" ")
            of_word = lengths[form, language]
            for start, word in enumerate(words):
                for length in of_word.get(word, ()):
                    phrase = " ".join(words[start : start + length])
                    answered.update(phrases.get(phrase, ()))
        for pattern in [each for each in patterns if each.search(text)]:
            answered.update(patterns.pop(pattern))
        progress(number)
        if len(answered) == len(questions):
            break
    return [number in answered for number in range(len(questions))]


def _lengths(phrases):
    """First word of phrases to their numbers of words."""
    found = collections.defaultdict(set)
    for words in (phrase.split(" ") for phrase in phrases):
        found[words[0]].add(len(words))
    return found
