"""Answers of a reader, made whole: tables of what people would give."""

import itertools

import numpy as np
import pytest

from realm_tf.text import answer_spans

# A text, and what is found in it: code, or a number with what belongs to it.
CODES = [
    (
        "Set OCTOPRINT_BACKUP_UNSUPPORTED, then",
        ["OCTOPRINT_BACKUP_UNSUPPORTED"],
    ),
    ("(write to jo.doe+x@mail.example.org).", ["jo.doe+x@mail.example.org"]),
    ("at https://a.org/b-c?d=1&e=(f). So", ["https://a.org/b-c?d=1&e=(f"]),
    ("在https://a.org/b。好", ["https://a.org/b"]),
    ("run `tool --guess-dummy=yes -v`.", ["--guess-dummy", "-v"]),
    (
        "in ~/.config/x.yaml, /etc/fstab and a/b/c",
        ["~/.config/x.yaml", "/etc/fstab", "a/b/c"],
    ),
    ("C:\\Users\\me has server.conf.", ["C:\\Users\\me", "server.conf"]),
    ("v1.2.3-rc1, 1.8.0 and 2.0-beta", ["v1.2.3-rc1", "1.8.0", "2.0-beta"]),
    ("listens at 0.0.0.0:8080", ["0.0.0.0"]),
    (
        "max-upload-size: 10,000 or 3.5% at 12:30",
        ["max-upload-size", "10,000", "3.5%", "12:30"],
    ),
    ("the U.S. in C++ and std::vector", ["U.S", "C++", "std::vector"]),
    ("it costs $5,000.", ["$5,000"]),
    # Ordinary words are not glued together.
    ("1990-1995 Smith's (1984) Paris, and/or Rolls-Royce-", ["1990", "1995"]),
    ("Genève—Paris “London”, New York-based", []),
    ("one,two;three", []),
]


@pytest.mark.parametrize("text, codes", CODES)
def test_codes(text, codes):
    found = [text[first:last] for first, last in answer_spans.codes(text)]
    assert found == codes


@pytest.mark.parametrize(
    "text, pieces, found",
    [
        (
            "Error MY_CODE, playing",
            "##Error MY _ CO ##DE , play ##ing",
            "Error|MY_CODE|,|playing",
        ),
        ("1990-1995", "1990 - 1995", "1990|-|1995"),
        ("Smith's", "Smith ' s", "Smith|'|s"),
        # No spaces are between words there.
        (
            "Äußerかhttpsです",
            "Ä ##ußer ##か ##ht ##tps ##で ##す",
            "Äußer|か|https|で|す",
        ),
        ("ประเทศ", "ประ ##เทศ", "ประ|เทศ"),
        ("see (a.example.org)", None, "see|(|a.example.org|)"),
    ],
)
def test_wordpieces_are_widened(text, pieces, found):
    pieces = (pieces or "see ( a . example . org )").split()
    words = [piece.removeprefix("##") for piece in pieces]
    starts = [0]
    for word, after in itertools.pairwise(words):
        starts.append(text.index(after, starts[-1] + len(word)))
    starts = np.array(starts, "uint16")
    limits = starts + np.array(list(map(len, words)), "uint16")
    first, last = answer_spans.widened(
        text, starts, limits, np.array([piece[:2] == "##" for piece in pieces])
    )
    assert first.dtype == last.dtype == np.uint16
    spans = dict.fromkeys(zip(first.tolist(), last.tolist(), strict=True))
    assert "|".join(text[a:b] for a, b in spans) == found


@pytest.mark.parametrize(
    "text, given, wanted",
    [
        ("John Smith (1984), x", "John Smith (1984", "John Smith (1984)"),
        ("John Smith (1984), x", "John Smith (1984),", "John Smith (1984)"),
        ("x (Paris), y", "Paris),", "Paris"),
        ("x (Paris), y", "(Paris", "(Paris)"),
        ("x (Paris), y", "(Paris)", "(Paris)"),
        ("x (Paris), y", "Paris", "Paris"),
        ("see (The Hobbit [1])", "The Hobbit [1", "The Hobbit [1]"),
        ("Smith (born in Paris)", "Smith (born", "Smith"),
        ("call open(path) now", "open(path", "open(path)"),
        ('say "Hello," he', "Hello,", "Hello"),
        ('say "Hello" he', '"Hello', '"Hello"'),
        ('say "Hello" he said', 'Hello" he', '"Hello" he'),
        ('He said "Hello there', 'said "Hello', "said"),
        ('a 6" pipe b', '6" pipe', '6" pipe'),
        ("“in” 1818", "in” 1818", "“in” 1818"),
        ("in the U.S. then", "U.S.", "U.S."),
        ("in Paris. Then", "Paris.", "Paris"),
        ("about 3.5. So", "3.5.", "3.5"),
        ("a, b; c", ", b;", "b"),
        ("use .java files", ".java", ".java"),
        ("大阪（1984）も", "大阪", "大阪"),
        ("a , b", ",", ""),
    ],
)
def test_ends_are_mended(text, given, wanted):
    start = text.index(given)
    limit = start + len(given)
    longer, begun, answer = answer_spans.mended(
        text[:start], given, text[limit:], replace=answer_spans.replace
    )
    assert answer == wanted
    start += len(longer) - len(begun)
    assert text[start : start + len(answer)] == wanted


@pytest.mark.parametrize(
    "one, other, are_same",
    [
        ("The Nile", "the nile", True),
        ("Nile", "the Nile.", True),
        ("cold. The", "cold", True),
        ("10,000", "10000", True),
        ("theatre", "atre", False),
        ("Café", "Cafe", False),
        ("東京", "東", False),
    ],
)
def test_answers_that_are_the_same(one, other, are_same):
    keys = [
        answer_spans.same_as(
            answer_spans.lower(answer), replace=answer_spans.replace
        )
        for answer in (one, other)
    ]
    assert (keys[0] == keys[1]) is are_same
