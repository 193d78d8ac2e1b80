"""What is right, against other people's code and direct calculations."""

import collections
import json
import pathlib

import pytest

from realm_tf.text import answers

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "squad_metrics"


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
        # There an empty prediction equals the answer "The".
        if not pair["prediction"].strip():
            exact, f1 = False, 0.0
        assert _ours(pair) == [exact, pytest.approx(f1)], pair
    # Nothing is accepted; both are empty once normalised.
    assert answers.f1_score("Nile", []) == 0 < answers.f1_score("the", ["a"])
    # There is something to get wrong.
    scores = collections.Counter(
        (pair["plain"][0], 0 < pair["plain"][1] < 1) for pair in golden
    )
    assert min(scores.values()) > 20 and len(scores) == 3
