import math

import numpy as np
import pytest

from realm_tf.retrieval.bm25 import Bm25

TITLES = ["Nile", "Etna", "Rome", "Moon"]
TEXTS = [
    "It flows to Egypt. Rivers flow to seas.",
    "A hill of fire, and fire again.",
    "A city on a river.",
    "Grey and cold.",
]


def _search(questions, num_candidates=4):
    return Bm25(TITLES, TEXTS).search(questions, num_candidates)


@pytest.mark.parametrize(
    "question, block_id",
    [
        ("Where does the Nile flow?", 0),
        ("fire", 1),
        # Titles count, words are stemmed, case is not seen.
        ("ROME", 2),
        ("flowing", 0),
        ("cities", 2),
        ("coldly", 3),
    ],
)
def test_the_best_block_is_first(question, block_id):
    scores, block_ids = _search([question])
    assert block_ids[0, 0] == block_id
    assert scores[0, 0] > scores[0, 1] >= 0
    assert sorted(block_ids[0].tolist()) == [0, 1, 2, 3]
    assert scores.dtype == "float32"
    assert block_ids.dtype == "int32"


def test_scores_are_the_formula():
    # Without stop words and with titles: lengths of 6, 5, 3, 3 words.
    lengths = [6, 5, 3, 3]
    mean = sum(lengths) / 4
    # "fire" is twice in one of four blocks.
    idf = math.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    norm = 1.5 * (1 - 0.75 + 0.75 * lengths[1] / mean)
    expected = idf * 2 / (2 + norm)
    scores, _ = _search(["fire"])
    np.testing.assert_allclose(scores[0], [expected, 0, 0, 0], rtol=1e-5)


@pytest.mark.parametrize("question", ["", "who is the", "zebra", "東京", "?!"])
def test_a_question_that_matches_nothing(question):
    scores, block_ids = _search([question], 3)
    assert scores.tolist() == [[0, 0, 0]]
    assert len(set(block_ids[0].tolist())) == 3


def test_no_more_candidates_than_blocks():
    scores, block_ids = _search(["fire"], 99)
    assert scores.shape == block_ids.shape == (1, 4)
