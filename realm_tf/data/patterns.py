"""Regular expressions for answers, made strings that occur in blocks.

CuratedTREC's answers are patterns. A graph cannot search for them, and the
original left the set out of its training; but what a pattern matches in the
blocks that are retrieved is a list of strings, and these a graph can look for.
"""

import collections
import dataclasses
from collections.abc import Sequence

from realm_tf.artifacts.question_files import Question
from realm_tf.text import answers

# Strings of one question; the most frequent are kept.
MAX_STRINGS = 16
# A pattern such as `.*` matches whole blocks, which are no answer.
MAX_CHARACTERS = 100


def literal(question: Question, texts: Sequence[str]) -> Question:
    """A question whose patterns are replaced by what they match.

    Args:
        question: `Question` of type `"regex"`.
        texts: sequence of str. Blocks in which to search, such as those that
            a retriever finds for the question.

    Returns:
        `Question` of type `"string"`; without answers if nothing matches. Of
        equally frequent strings, those found first are kept. An invalid
        pattern matches nothing, as in evaluation.
    """
    counts = collections.Counter()
    for pattern in map(answers.compile_pattern, question.answers):
        if pattern is None:
            continue
        for text in texts:
            for match in pattern.finditer(text):
                found = " ".join(match.group().split())
                if 0 < len(found) <= MAX_CHARACTERS:
                    counts[found] += 1
    strings = tuple(text for text, _ in counts.most_common(MAX_STRINGS))
    return dataclasses.replace(question, answers=strings, answer_type="string")
