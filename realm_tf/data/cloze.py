"""Cloze questions from blocks: what a reader learns on before real ones.

A salient span of a sentence is the answer; the sentence around it, with some
words left out and a question word in the span's place, is the question. No
human label is read.
"""

import random

from realm_tf.tagging import taggers
from realm_tf.tagging.rules.salient_spans import find_spans

_QUESTION_WORDS = {
    "date": ("when", "what year"),
    "number": ("how many", "what number"),
    "name": ("who", "what", "which", "where"),
}
# Our choices: shorter than most questions of NQ is too little context;
# longer than this is not how people ask.
_MIN_WORDS = 6
_MAX_WORDS = 18
# Words left out, so that the question does not repeat its sentence.
_DROPPED = 0.3


def make_cloze_questions(blocks, *, num_questions: int, seed: int = 0):
    """Cloze questions over blocks.

    Args:
        blocks: iterable of `schema.Block`.
        num_questions: int. At most this many, drawn evenly.
        seed: int. Defaults to `0`.

    Returns:
        list of dict in the form of a questions file: `question`, `answer` and
        `evidence`.
    """
    generator = random.Random(seed)
    found = []
    for block in blocks:
        for start, limit in taggers.sentences(block):
            sentence = block.text[start:limit]
            for span in find_spans(sentence):
                question = _cloze(sentence, span, generator)
                if question:
                    evidence = {"title": block.title, "sentence": sentence}
                    found.append({**question, "evidence": evidence})
    generator.shuffle(found)
    return found[:num_questions]


def _cloze(sentence, span, generator):
    start, limit, kind = span
    before, after = _words(sentence[:start]), _words(sentence[limit:])
    if len(before) + len(after) < _MIN_WORDS:
        return None
    # A window around the gap, at a random place.
    extra = max(0, len(before) + len(after) - _MAX_WORDS)
    cut = generator.randint(max(0, extra - len(after)), min(extra, len(before)))
    before, after = before[cut:], after[: len(after) - (extra - cut)]
    before = [w for w in before if generator.random() > _DROPPED]
    after = [w for w in after if generator.random() > _DROPPED]
    word = generator.choice(_QUESTION_WORDS[kind])
    if generator.random() < 0.5:
        words = [word, *after, *before]
    else:
        words = [*before, word, *after]
    return {
        "question": " ".join(words).lower(),
        "answer": [sentence[start:limit]],
    }


def _words(text):
    # Without the marks that the span leaves alone: "(" before, "." after it.
    return [word for word in text.split() if any(map(str.isalnum, word))]
