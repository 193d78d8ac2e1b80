"""Each retriever against a recomputation on the tiny world."""

import numpy as np
import pytest

from realm_tf.answering import lexical_weight
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.question_files import Question
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


@pytest.mark.parametrize("weight", [0.0, 0.25, 50.0])
def test_hybrid_is_a_weighted_sum(corpus, queries, weight, monkeypatch):
    monkeypatch.setattr(retrievers, "FUSED_DEPTH", 4)
    hybrid = retrievers.make("hybrid", corpus, lexical_weight=weight)
    scores, block_ids = hybrid.search(QUESTIONS[:4], 3)
    assert scores.dtype == "float32" and block_ids.dtype == "int32"
    products = queries @ np.asarray(corpus.index.embeddings).T
    lexical = Bm25(corpus.records.titles, corpus.records.texts).search(
        QUESTIONS[:4], 4
    )
    for row in range(4):
        dense = np.argsort(-products[row], kind="stable")[:4]
        of_block = dict(zip(lexical[1][row], lexical[0][row], strict=True))
        sums = {
            block_id: (
                products[row][block_id]
                if block_id in dense
                else products[row][dense[-1]]
            )
            + weight * of_block.get(block_id, min(of_block.values()))
            for block_id in {*dense, *of_block}
        }
        order = sorted(sums, key=lambda each: (-sums[each], each))[:3]
        np.testing.assert_array_equal(block_ids[row], order)
        np.testing.assert_allclose(
            scores[row], [sums[each] for each in order], atol=1e-4
        )


def test_the_weight_is_fitted_to_known_answers():
    """One question that only BM25 answers first, and the other way round."""
    texts = ["nothing", "the moon", "the sun", "nothing"]
    questions = [Question("a", ("moon",)), Question("b", ("sun",))]

    class Found:
        def candidates(self, asked, depth):
            dense = [9.0, 7.0], [0, 1]
            assert (asked, depth) == (["a", "b"], 2)
            return [
                retrievers.Candidates.of(dense, lexical)
                for lexical in (([8.0, 1.0], [1, 3]), ([3.0, 0.0], [3, 2]))
            ]

    # From 2 / 7 on, block 1 passes block 0 for the first question. For the
    # second, block 2 is never seen: it has the lowest score of both lists.
    weight = lexical_weight.fit(questions, Found(), texts, depth=2)
    assert weight == min(w for w in lexical_weight.WEIGHTS if w > 2 / 7)
