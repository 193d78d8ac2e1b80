"""Cloze questions: what a reader learns on before real ones, of any corpus.

A salient span of a sentence is the answer, the words around it with a question
word in its place the question, and another passage that holds the answer the
evidence: whoever finds the answer there has understood both. No human label is
read.
"""

import collections
import itertools
import random
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from realm_tf.artifacts import schema
from realm_tf.text.answers import AnswerFinder

# By the labels of `rules`, `links`, and CoNLL-2003's, in lower case.
_QUESTION_WORDS = {
    "date": ("when",),
    "number": ("how many",),
    "per": ("who",),
    "loc": ("where", "which"),
    "org": ("what", "which"),
    "misc": ("what", "which"),
}
_OTHERS = ("what", "who", "which")
# All numbers below are our choices. Words of a question, its title aside; a
# sentence of fewer says too little.
_NUM_WORDS = (8, 20)
_LEAST_WORDS = 5
_MAX_ANSWER_WORDS = 8
# The share of numbers that are left out: other passages hold them by chance.
_NUMBERS_LEFT_OUT = 0.7
# Questions of a passage, and questions with one answer.
_OF_A_PASSAGE = 4
_OF_AN_ANSWER = 6
# Passages that are found for a question; the first one with its answer counts.
_NUM_FOUND = 8
# Words beside the span that tell a copy of the sentence.
_NUM_COPIED = 3
# Characters beside an answer that show where it stands.
_BESIDE = 20
_BATCH = 2_000


def make_cloze_questions(
    passages: Iterable[schema.AnnotatedPassage],
    *,
    make_retriever: Callable,
    num_questions: int,
    seed: int = 0,
) -> Iterator[dict]:
    """Cloze questions over annotated passages, evenly drawn.

    All passages are in memory.

    Args:
        passages: iterable of `schema.AnnotatedPassage`.
        make_retriever: function of the passages' titles and texts that gives
            what finds evidence, such as `retrieval.bm25.Bm25`.
        num_questions: int. At most this many.
        seed: int. Defaults to `0`.

    Yields:
        dict in the form of a questions file: `question`, `answer` and
        `evidence`.

    References:
        [Glass et al., 2020](https://arxiv.org/abs/1909.04120), section 3.
    """
    generator = random.Random(seed)
    titles, texts, clozes = [], [], []
    asked = collections.Counter()
    for passage in passages:
        clozes += _clozes(passage, len(texts), asked, generator)
        titles.append(passage.title)
        texts.append(passage.text)
    generator.shuffle(clozes)
    retriever = make_retriever(titles, texts)
    found = _with_evidence(clozes, titles, texts, retriever)
    yield from itertools.islice(found, num_questions)


def _clozes(passage, number, asked, generator):
    """`(number, question, answer, words before, words after)` of a passage."""
    content = passage.text.encode("utf-8")
    sentences = list(
        zip(
            passage.sentence_byte_start,
            passage.sentence_byte_limit,
            strict=True,
        )
    )
    spans = list(
        zip(
            passage.span_byte_start,
            passage.span_byte_limit,
            passage.span_label,
            strict=True,
        )
    )
    generator.shuffle(spans)
    found = []
    for start, limit, label in spans:
        answer = content[start:limit].decode()
        is_number = label.lower() == "number"
        if (
            len(found) == _OF_A_PASSAGE
            or len(answer) < 2
            or len(answer.split()) > _MAX_ANSWER_WORDS
            or asked[answer] == _OF_AN_ANSWER
            or (is_number and generator.random() < _NUMBERS_LEFT_OUT)
        ):
            continue
        first, last = next(s for s in sentences if s[0] <= start < s[1])
        before = content[first:start].decode().split()
        after = content[limit:last].decode().split()
        question = _question(
            passage.title, before, answer, after, label, generator
        )
        if question:
            asked[answer] += 1
            found.append((number, question, answer, before, after))
    return found


def _question(title, before, answer, after, label, generator):
    """A window around the gap, after the title if it is not there; or None."""
    if len(before) + len(after) < _LEAST_WORDS:
        return None
    num_words = generator.randint(*_NUM_WORDS)
    num_before = min(len(before), max(num_words // 2, num_words - len(after)))
    num_after = max(0, num_words - num_before)
    words = _QUESTION_WORDS.get(label.lower(), _OTHERS)
    question = " ".join(
        [
            *before[len(before) - num_before :],
            generator.choice(words),
            *after[:num_after],
        ]
    )
    if answer.lower() in question.lower():
        return None
    # A sentence seldom says whom it is about.
    if (
        title
        and title.lower() not in question.lower()
        and answer.lower() not in title.lower()
    ):
        return f"{title}: {question}"
    return question


def _with_evidence(clozes, titles, texts, retriever):
    finder = AnswerFinder(texts)
    for first in range(0, len(clozes), _BATCH):
        batch = clozes[first : first + _BATCH]
        _, found = retriever.search([each[1] for each in batch], _NUM_FOUND)
        for cloze, others in zip(batch, found, strict=True):
            number, question, answer, before, after = cloze
            for other in map(int, others):
                text = texts[other]
                # Found as normalised words, and here as it is written.
                place = text.find(answer)
                if (
                    other == number
                    or place < 0
                    or not finder.contains(other, [answer])
                    or _is_copy(text, before, after)
                ):
                    continue
                first = max(0, place - _BESIDE)
                sentence = text[first : place + len(answer) + _BESIDE]
                yield {
                    "question": question,
                    "answer": [answer],
                    "evidence": {"title": titles[other], "sentence": sentence},
                }
                break


def _is_copy(text, before, after):
    """Whether the words beside the gap stand in a text as they do here."""
    text = " ".join(text.lower().split())
    return any(
        len(words) == _NUM_COPIED and " ".join(words).lower() in text
        for words in (before[-_NUM_COPIED:], after[:_NUM_COPIED])
    )
