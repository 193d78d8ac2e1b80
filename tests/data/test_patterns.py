"""Patterns become the strings that they match."""

from realm_tf.artifacts.question_files import Question
from realm_tf.data import patterns

TEXTS = [
    "It is 300 feet high, or 91 m.",
    "Others say 300  Feet; in 1912, 310 feet.",
    "Nothing here.",
]


def _literal(*answers, texts=TEXTS):
    return patterns.literal(Question("how high?", answers, "regex"), texts)


def test_what_matches_most_often_comes_first():
    found = _literal(r"\d+\s+feet", r"\d+ m\b")
    # Case is not told apart in matching, but in what is kept.
    assert found.answers == ("300 feet", "300 Feet", "310 feet", "91 m")
    assert found.answer_type == "string"
    assert found.question == "how high?"
    many = " ".join(map(str, range(20)))
    assert _literal(r"\d+", texts=[f"{many} 19"]).answers == (
        "19",
        *map(str, range(15)),
    )


def test_what_is_no_answer_is_left_out():
    # Empty matches, and whole blocks.
    assert _literal(r"x*", r".*", texts=["y" * 101]).answers == ()
    assert _literal(r".*", texts=["y" * 100]).answers == ("y" * 100,)


def test_an_invalid_pattern_matches_nothing():
    assert _literal(r"(feet", "91").answers == ("91",)
    assert _literal(r"(feet", "91{99999999999}").answers == ()
