import re
import sys

import numpy as np
import pytest

from realm_tf.artifacts.question_files import Question
from realm_tf.data.question_sets.answer_search import find_answered
from realm_tf.data.question_sets.answer_search import fold
from realm_tf.data.question_sets.answer_search import required_literals
from realm_tf.text.answers import contains_answer

WORDS = [
    "a",
    "an",
    "the",
    "The",
    "U.S.",
    "US",
    "us",
    "well-known",
    "well",
    "known",
    "Caesar's",
    "Caesar",
    "1,000",
    "1000",
    "ÉCOLE",
    "école",
    "(Rome)",
    "Rome,",
    "Jerome",
    "of",
    "_x_",
    "İ",
    "«é»",
    "18\xa069",
    "18",
    "69",
    "ſ",
    "K",
    "!",
    "-",
    "\u2028",
]
PATTERNS = [
    r"18\s?69|\b1000\b",
    r"Caesar('s)? (US|well.*)",
    r"(known|Rome)+",
    r"^us\b",
    r"known$",
    r".*Jerome.*",
    r"U\.S\.",
    r"\x52ome",
    r"well[- ]?known of|of{2}",
    r"(?:rome|école)",
    "é.*s",
    "sK",
    "k s",
    "x*",
    "[)(]rome",
    "(",
    "a{99999999999}",
    "rome{0,2}j",
]


def _texts(generator, count, longest):
    lengths = generator.integers(0, longest, count)
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


@pytest.mark.parametrize("seed", range(5))
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
        expected = [
            any(
                contains_answer(text, q.answers, q.answer_type) for text in part
            )
            for q in questions
        ]
        assert find_answered(questions, iter(part)) == expected
        assert len(set(expected)) == (2 if part else 1)


def test_answers_of_several_questions():
    questions = [
        Question("a", ("Rome", "the Nile")),
        Question("b", ("rome",)),
        Question("c", ("Rome of",)),
        Question("d", ("ro.e",), "regex"),
        Question("e", ("ro.e", "nile"), "regex"),
        Question("f", ("ro.e",)),
        Question("g", ()),
    ]
    assert find_answered(questions, ["Jerome", "It is Rome."]) == [
        *(True, True, False, True, True, False, False)
    ]


def test_texts_are_read_until_all_is_found():
    read = []
    texts = iter(["Oslo", "Rome", "never read"])
    questions = [Question("?", ("Rome",)), Question("?", ("osl",), "regex")]
    assert find_answered(questions, texts, progress=read.append) == [True] * 2
    assert read == [1, 2]
    assert list(texts) == ["never read"]


def test_ascii_patterns_match_what_fold_makes_ascii():
    others = "".join(
        chr(code)
        for code in range(128, sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000
    )
    folded = fold(others)
    # Folding keeps neighbours: one character for each.
    assert len(folded) == len(others)
    found = 0
    for code in range(128):
        pattern = re.compile(re.escape(chr(code)), re.IGNORECASE)
        for match in pattern.finditer(others):
            found += 1
            assert folded[match.start()] == chr(code).lower()
        assert fold(chr(code)) == chr(code).lower()
    # K (two letters), s, S, i, I by the others.
    assert found == 8


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("Fort Sumter", ["fort sumter"]),
        ("Rome|the Nile", ["rome", "the nile"]),
        (r"U\.S\.", ["u.s."]),
        # The longest run; the first of equals.
        (r"ab.cde\s*fgh", ["cde"]),
        # What may be missing is not required; what is repeated is.
        ("colou?r", ["colo"]),
        ("abc*", ["ab"]),
        ("ab+?c", ["ab"]),
        ("abc{0,2}d", ["ab"]),
        # What is in brackets is not looked at, a bar in it neither.
        ("(Oct|Nov)ember", ["ember"]),
        (r"x((a|b)\)|c)yz", ["yz"]),
        ("ab[)|(]c", ["ab"]),
        ("a[]|]bc", ["bc"]),
        (r"\b9\b|nine", ["9", "nine"]),
        # Nothing is required, or it is too intricate to tell.
        ("Rome|.*", None),
        ("Rome|", None),
        ("(Rome)", None),
        (r"\x52ome", None),
        (r"(a)\1 Rome", None),
        ("(?:Rome) x", None),
        # Other letters have more than one form.
        ("Québec", ["bec"]),
    ],
)
def test_required_literals(pattern, expected):
    assert required_literals(pattern) == expected


def test_a_match_has_a_required_literal():
    generator = np.random.default_rng(0)
    parts = list("abk s|()?*+.[]{}2,\\^$-é") + ["\\s", "\\.", "\\(", "[^a]"]
    texts = [
        "".join(generator.choice(list("abkKſ s().2,é-"), 12)) for _ in "x" * 30
    ]
    num_told = 0
    for _ in range(4000):
        pattern = "".join(generator.choice(parts, 7))
        try:
            compiled = re.compile(pattern, re.IGNORECASE)
        except (re.error, FutureWarning):
            continue
        literals = required_literals(pattern)
        for text in texts:
            if literals is not None and compiled.search(text):
                num_told += 1
                assert any(each in fold(text) for each in literals), pattern
    assert num_told > 100
