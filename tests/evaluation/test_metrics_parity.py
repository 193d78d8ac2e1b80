"""What is right, against other people's code and direct calculations."""

import collections
import json
import pathlib
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
