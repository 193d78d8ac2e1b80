"""What is right, against other people's code and direct calculations."""

import collections
import json
import pathlib
import random
import re
import string
import unicodedata

import pytest

from realm_tf.text import answers

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "squad_metrics"

# Pairs of which even SQuAD's rules on composed characters (NFC) say something
# else: NFD takes a letter apart, and the rules then see what is left of it.
ONLY_DECOMPOSED = {
    # A combining mark is no letter, so that "the" and "a" before one are
    # articles; what is left are two equal accents.
    "th\u00e9": "\u0301",
    # "=" and a combining stroke; "=" is punctuation.
    "\u2260 zero": "\u0338 zero",
}
# Characters that are another one, canonically, and that one is punctuation.
PUNCTUATION_IN_DISGUISE = {"why\u037e": "why", "\u1fefquoted": "quoted"}


@pytest.fixture(scope="module")
def golden():
    """SQuAD's scores of 333 pairs; see the README beside them."""
    return json.loads((GOLDEN / "pairs.json").read_text(encoding="utf-8"))


def _ours(pair):
    return [
        answers.exact_match(pair["prediction"], pair["answers"]),
        answers.f1_score(pair["prediction"], pair["answers"]),
    ]


def test_scores_are_squads_once_characters_are_decomposed(golden):
    assert len(golden) == 333
    for pair in golden:
        exact, f1, _ = pair.get("NFD", pair["plain"])
        assert _ours(pair) == [exact, pytest.approx(f1)], pair
    # There is something to get wrong.
    scores = collections.Counter(
        (pair["plain"][0], 0 < pair["plain"][1] < 1) for pair in golden
    )
    assert min(scores.values()) > 20 and len(scores) == 3


def test_without_decomposition_they_differ_where_they_are_meant_to(golden):
    differing = [
        pair
        for pair in golden
        if _ours(pair) != [pair["plain"][0], pytest.approx(pair["plain"][1])]
    ]
    for pair in differing:
        text = pair["prediction"]
        if text in ONLY_DECOMPOSED:
            assert answers.normalize_answer(text) == ONLY_DECOMPOSED[text]
            assert pair.get("NFC", pair["plain"]) == pair["plain"]
            continue
        # Equal characters in another form: both composed, SQuAD's rules
        # agree with ours.
        assert _ours(pair) == [pair["NFC"][0], pytest.approx(pair["NFC"][1])]
        texts = [text, *pair["answers"]]
        forms = {unicodedata.is_normalized("NFC", each) for each in texts}
        assert False in forms
        if text in PUNCTUATION_IN_DISGUISE:
            wanted = PUNCTUATION_IN_DISGUISE[text]
            assert answers.normalize_answer(text) == wanted
    assert {pair["prediction"] for pair in differing} >= {
        "cafe\u0301",
        *ONLY_DECOMPOSED,
        *PUNCTUATION_IN_DISGUISE,
    }
    assert len(differing) == 22


def test_where_nothing_is_left_f1_is_version_twos(golden):
    """Ours is 1 where nothing was expected and nothing said, as in 2.0."""
    differing = [
        pair for pair in golden if pair["plain"][1:2] != pair["plain"][2:]
    ]
    assert len(differing) == 16
    for pair in differing:
        assert _ours(pair)[1] == 1.0 and pair["plain"][2] == 0
        assert answers.normalize_answer(pair["prediction"]) == ""


# Whole-word containment, letter by letter.


def _words(text, *, cut):
    """Words of a text: without punctuation, or cut at all that is no letter.

    Articles are dropped. The texts below have no letters with marks.
    """
    words, word = [], ""
    for letter in f"{text.lower()} ":
        if letter.isspace() or (cut and not letter.isalnum()):
            words.append(word)
            word = ""
        elif letter not in string.punctuation:
            word += letter
    return [word for word in words if word not in ("", "a", "an", "the")]


def _contains(text, accepted):
    for cut in (False, True):
        inside = _words(text, cut=cut)
        for answer in accepted:
            wanted = _words(answer, cut=cut)
            places = range(len(inside) - len(wanted) + 1)
            if wanted and any(
                inside[place : place + len(wanted)] == wanted
                for place in places
            ):
                return True
    return False


PIECES = (
    "Rome rome US USA U.S. U.S.A. Jacquet Jacquet's 1843 1843-1850 10,000 "
    "the The a an theatre Ann rock-and-roll O'Neill (Rome) x_y \u65e5\u672c "
    "Stra\u00dfe \u201cRome\u201d Rome, Tiber. ... & _ 3.5 $5"
)


def _random_text(rng, length):
    space = rng.choice((" ", " ", "  ", "\n", "\u00a0"))
    return space.join(rng.choices(PIECES.split(" "), k=length))


def _random_answer(rng, text):
    """Some words, or a part of the text, which may begin inside a word."""
    if rng.random() < 0.6:
        return _random_text(rng, rng.randrange(4))
    start = rng.randrange(len(text) + 1)
    return text[start : start + rng.randrange(12)].swapcase()


def test_an_answer_is_found_as_by_brute_force():
    rng = random.Random(7)
    verdicts = collections.Counter()
    for _ in range(1500):
        text = _random_text(rng, rng.randrange(12))
        accepted = [
            _random_answer(rng, text) for _ in range(rng.randrange(1, 3))
        ]
        wanted = _contains(text, accepted)
        verdicts[wanted] += 1
        assert answers.contains_answer(text, accepted) == wanted, (
            text,
            accepted,
        )
    assert min(verdicts.values()) > 250


@pytest.mark.parametrize(
    "text, answer, is_there",
    [
        ("in the USA.", "US", False),
        ("in the U.S.", "US", True),
        ("Jacquet's boat", "Jacquet", True),
        ("a rock-and-roll band", "rock and roll", True),
        ("a rockandroll band", "rock-and-roll", True),
        ("Tiber, Rome", "Tiber Rome", True),
        ("Tiber of Rome", "Tiber Rome", False),
        ("the Tiber", "The", False),
        # Composed or not.
        ("the Cafe\u0301 there", "caf\u00e9", True),
    ],
)
def test_whole_words_are_found(text, answer, is_there):
    assert answers.contains_answer(text, [answer]) == is_there


@pytest.mark.parametrize(
    "text, answer",
    [
        ("in M\u00fcller's house", "Mu"),
        ("in S\u00e3o Paulo", "S\u00e1"),
        ("the Cafe there", "caf\u00e9"),
    ],
)
def test_letters_with_marks_are_letters(text, answer):
    assert not answers.contains_answer(text, [answer])


# Regular expressions, by `re` itself.

PATTERNS = [
    r"\d\d\d\d",
    r"^19\d\d$",
    r"rome|tiber",
    r"(?i:Rome) of",
    r"\w+\s\w+",
    r"caf\w$",
    r"$",
    r".*1843",
    # Not valid: an open group, nothing to repeat, too large a number.
    "(",
    "*a",
    "[a",
    "a{99999999999}",
    r"\p{L}",
    "",
]
TEXTS = [
    "",
    "1843",
    "In 1843",
    "1969\nand more",
    "first\n1969",
    "ROME of old",
    "Tiber",
    "the Tiber",
    "caf\u00e9",
    "\u039c\u039f\u03a3\u03a7\u0391 \u041c",
    "line\n1843",
]


def _compiled(pattern):
    flags = re.IGNORECASE | re.UNICODE | re.MULTILINE
    if pattern in ("(", "*a", "[a", "a{99999999999}", r"\p{L}"):
        with pytest.raises((re.error, OverflowError)):
            re.compile(pattern, flags)
        return None
    return re.compile(pattern, flags)


def test_patterns_match_from_the_start_as_re_does():
    verdicts = collections.Counter()
    for pattern in PATTERNS:
        compiled = _compiled(pattern)
        for text in TEXTS:
            matches = compiled is not None and bool(compiled.match(text))
            found = compiled is not None and bool(compiled.search(text))
            verdicts[matches, found] += 1
            assert answers.regex_match(text, [pattern]) == matches
            # One that is valid is enough; no valid one is none.
            assert answers.is_correct(text, ["(", pattern], "regex") == matches
            assert answers.contains_answer(text, [pattern], "regex") == found
    # Never, from the start, and further on.
    assert set(verdicts) == {(False, False), (True, True), (False, True)}
    assert min(verdicts.values()) > 10
    assert not answers.regex_match("1843", [])


def test_the_flags_are_those_of_the_rule():
    assert answers.regex_match("ROME", ["rome"])
    # Lines have ends of their own, but a match begins where the text does.
    assert answers.regex_match("1969\nand more", [r"^1969$"])
    assert not answers.regex_match("first\n1969", [r"^1969$"])
    assert answers.contains_answer("first\n1969", [r"^1969$"], "regex")
    # Letters of any script; no letter is taken apart.
    assert answers.regex_match(
        "\u041c\u043e\u0441\u043a\u0432\u0430", [r"\w+$"]
    )
    assert answers.regex_match("caf\u00e9", [r"caf\w$"])
    assert not answers.regex_match("In 1843", [r"\d+"])
