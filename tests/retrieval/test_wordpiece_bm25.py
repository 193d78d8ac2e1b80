"""BM25 in the graph against the library bm25s, and against its formula."""

import math

import bm25s
import numpy as np
import pytest

from realm_tf.retrieval import wordpiece_scores
from realm_tf.retrieval.hybrid import WordpieceBm25

pytestmark = pytest.mark.fast

VOCABULARY_SIZE = 200


@pytest.fixture(scope="module")
def blocks():
    """Titles of some pieces, bodies padded with 0."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 40, 300)
    # As in a text, a few pieces are frequent.
    token_ids = 1 + (random.pareto(0.7, (300, 40)) * 3).astype(int) % 180
    token_ids[np.arange(40) >= lengths[:, None]] = 0
    titles = [list(random.integers(1, 180, n)) for n in lengths % 4]
    return titles, token_ids, lengths


def _layer(blocks):
    return WordpieceBm25(
        wordpiece_scores.postings(*blocks, VOCABULARY_SIZE, unk_id=199),
        name="lexical",
    )


def test_scores_are_those_of_bm25s(blocks, monkeypatch):
    monkeypatch.setattr(wordpiece_scores, "MOST_BLOCKS", 1.0)
    monkeypatch.setattr(wordpiece_scores, "_SLICE", 70)
    titles, token_ids, lengths = blocks
    peer = bm25s.BM25(k1=wordpiece_scores.K1, b=wordpiece_scores.B)
    documents = [
        [*map(int, title), *map(int, body[:length])]
        for title, body, length in zip(titles, token_ids, lengths, strict=True)
    ]
    peer.index(
        [[f"t{each}" for each in document] for document in documents],
        show_progress=False,
    )
    # One twice; 190 is in no block, and 0 is padding.
    queries = np.array([[3, 17, 3, 40], [120, 190, 0, 0], [0, 0, 0, 0]])
    found = np.asarray(_layer(blocks)(queries))
    assert found.shape == (3, 300)
    for row, query in zip(found, queries, strict=True):
        known = [f"t{each}" for each in query if f"t{each}" in peer.vocab_dict]
        wanted = peer.get_scores(known) if known else np.zeros(300)
        # Scores are kept in 16 bits.
        np.testing.assert_allclose(row, wanted, rtol=2e-3, atol=1e-4)


def test_one_score_by_hand():
    # Blocks of 4, 2 and 3 pieces, titles included: 3 on average.
    postings = wordpiece_scores.postings(
        [[5], [], [6]],
        np.array([[7, 7, 8], [5, 9, 0], [8, 9, 0]]),
        np.array([3, 2, 2]),
        VOCABULARY_SIZE,
        unk_id=6,
    )
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    norm = 1.5 * (1 - 0.75 + 0.75 * 4 / 3)
    assert postings[0, 7] == pytest.approx(idf * 2 / (2 + norm))
    assert postings[0, 9] == 0
    # [UNK] is in the third block.
    assert postings[2, 6] == 0


def test_pieces_of_most_blocks_count_nothing(blocks):
    titles, token_ids, lengths = blocks
    postings = wordpiece_scores.postings(*blocks, VOCABULARY_SIZE, unk_id=199)
    held_by = np.array(
        [
            sum(
                piece in title or piece in body
                for title, body in zip(titles, token_ids, strict=True)
            )
            for piece in range(1, VOCABULARY_SIZE)
        ]
    )
    limit = wordpiece_scores.MOST_BLOCKS * len(lengths)
    assert 0 < (held_by > limit).sum() < 50
    np.testing.assert_array_equal(
        np.diff(postings.indptr)[1:], np.where(held_by > limit, 0, held_by)
    )
