"""Each retriever against a recomputation on the tiny world."""

import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.retrieval import retrievers
from realm_tf.retrieval.bm25 import Bm25

QUESTIONS = [
    "Where was Ada?",
    "fire",
    "Who wrote organ music in the city of Leipzig in 1750?",
    "What flows to Egypt?",
] * 10


@pytest.fixture(scope="module")
def corpus(model_dir, blocks_dir, brute_force_index_dir):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


@pytest.fixture(scope="module")
def queries(corpus):
    """Each embedded alone, without padding."""
    rows = []
    for question in QUESTIONS:
        ids = np.array([query_wordpieces(question, corpus.loaded.tokenizer)])
        inputs = {
            "token_ids": ids,
            "segment_ids": 0 * ids,
            "padding_mask": 0 * ids + 1,
        }
        rows.append(np.asarray(corpus.loaded.model.embed_queries(inputs))[0])
    return np.stack(rows)


def test_dense_finds_the_largest_inner_products(corpus, queries):
    table = np.asarray(corpus.index.embeddings)
    scores, block_ids = retrievers.make("realm", corpus).search(QUESTIONS, 5)
    assert scores.shape == block_ids.shape == (40, 5)
    expected = queries @ table.T
    order = np.argsort(-expected, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(block_ids, order)
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, order, axis=1), atol=1e-5
    )
    # As many as there are.
    _, block_ids = retrievers.make("realm", corpus).search(QUESTIONS[:1], 999)
    assert sorted(block_ids[0]) == list(range(len(corpus.records)))


def test_hybrid_sums_reciprocal_ranks(corpus, queries):
    table = np.asarray(corpus.index.embeddings)
    hybrid = retrievers.make("hybrid", corpus)
    scores, block_ids = hybrid.search(QUESTIONS[:4], 6)
    products = queries @ table.T
    dense = np.argsort(-products, axis=1, kind="stable")
    _, lexical = Bm25(corpus.records.titles, corpus.records.texts).search(
        QUESTIONS[:4], 100
    )
    for row in range(4):
        sums = np.zeros(len(table))
        for ranking in (dense[row], lexical[row]):
            for rank, block_id in enumerate(ranking, 1):
                sums[block_id] += 1 / (60 + rank)
        order = np.argsort(-sums, kind="stable")[:6]
        np.testing.assert_array_equal(block_ids[row], order)
        # What the dense retriever has at these ranks.
        np.testing.assert_allclose(
            scores[row], -np.sort(-products[row])[:6], atol=1e-5
        )
    assert scores.dtype == "float32" and block_ids.dtype == "int32"


def test_a_block_that_one_list_lacks_still_counts():
    assert retrievers.fuse([[7, 3, 5], [3, 9]]) == [3, 7, 9, 5]
    assert retrievers.fuse([[2, 1], [1, 2]]) == [1, 2]
    assert retrievers.fuse([[], []]) == []
