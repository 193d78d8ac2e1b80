import numpy as np
import pytest

from realm_tf.answering.answer_search import find_answered
from realm_tf.artifacts.question_files import Question
from realm_tf.text.answers import AnswerFinder

WORDS = "a the The U.S. US us well-known well known Caesar's Caesar 1,000 1000"
WORDS = f"{WORDS} ÉCOLE école (Rome) Rome, Jerome of _x_ İ «é» 18 69 ſ K ! -"
WORDS = [*WORDS.split(" "), "18\xa069", "\u2028"]
PATTERNS = [
    *(r"18\s?69|\b1000\b", r"Caesar('s)? (US|well.*)", r"^us\b", r"known$"),
    *(r"\x52ome", "é.*s", "sK", "x*", "(", "a{99999999999}"),
]


def _find(questions, texts):
    return find_answered(questions, texts, progress=lambda done: None)


def _texts(generator, count, longest):
    lengths = generator.integers(0, longest, count)
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


@pytest.mark.parametrize("seed", range(3))
def test_equal_to_asking_every_block(seed):
    generator = np.random.default_rng(seed)
    texts = _texts(generator, 60, 12)
    questions = [
        Question("?", tuple(_texts(generator, generator.integers(0, 4), 5)))
        for _ in range(400)
    ] + [
        Question("?", tuple(generator.choice(PATTERNS, 2)), "regex")
        for _ in range(60)
    ]
    # Some are answered by few texts or none.
    for part in (texts, texts[:3], []):
        finder = AnswerFinder(part)
        expected = [
            any(
                finder.contains(place, q.answers, q.answer_type)
                for place in range(len(part))
            )
            for q in questions
        ]
        assert _find(questions, iter(part)) == expected
        assert len(set(expected)) == (2 if part else 1)


def test_texts_are_read_until_all_is_found():
    read = []
    texts = iter(["Oslo", "Rome", "never read"])
    questions = [Question("?", ("Rome",)), Question("?", ("osl",), "regex")]
    assert find_answered(questions, texts, progress=read.append) == [True] * 2
    assert read == [1, 2]
    assert list(texts) == ["never read"]
