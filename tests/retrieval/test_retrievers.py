"""The hybrid against a recomputation; test_predict.py has the dense one."""

import numpy as np
import pytest
from one_row import one_row

from realm_tf.answering import lexical_weight
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.question_files import Question
from realm_tf.artifacts.question_files import pack_queries
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.models import packing
from realm_tf.models.open_qa import OpenQa
from realm_tf.retrieval import hybrid
from realm_tf.retrieval import retrievers

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
        inputs = one_row(query_wordpieces(question, corpus.loaded.tokenizer))
        rows.append(np.asarray(corpus.loaded.model.embed_queries(inputs))[0])
    return np.stack(rows)


@pytest.mark.parametrize("weight", [0.0, 0.25, 50.0])
def test_hybrid_is_a_weighted_sum(corpus, queries, weight, monkeypatch):
    monkeypatch.setattr(hybrid, "FUSED_DEPTH", 4)
    found = retrievers.make("hybrid", corpus, lexical_weight=weight)
    scores, block_ids, parts = found.search(QUESTIONS[:4], 3)
    assert scores.dtype == "float32" and block_ids.dtype == "int32"
    products = queries @ np.asarray(corpus.index.embeddings).T
    tokenizer = corpus.loaded.tokenizer
    for row, question in enumerate(QUESTIONS[:4]):
        dense = np.argsort(-products[row], kind="stable")[:4]
        pieces = np.array([query_wordpieces(question, tokenizer)])
        lexical = np.asarray(corpus.lexical(pieces))[0]
        sums = {
            block_id: (
                products[row][block_id]
                if block_id in dense
                else products[row][dense[-1]]
            )
            + weight * lexical[block_id]
            for block_id in {*dense, *np.argsort(-lexical, kind="stable")[:4]}
        }
        best = sorted(sums.values(), reverse=True)[:3]
        np.testing.assert_allclose(scores[row], best, atol=1e-4)
        np.testing.assert_allclose(
            [sums[each] for each in block_ids[row]], best, atol=1e-4
        )
        assert len(set(block_ids[row])) == 3
        np.testing.assert_allclose(
            parts[row], weight * lexical[block_ids[row]], rtol=1e-5
        )


@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_hybrid_over_fewer_blocks_than_are_asked_for(corpus, queries, weight):
    pieces = np.array([query_wordpieces("fire", corpus.loaded.tokenizer)])
    allowed = np.arange(len(corpus.records))[None] < 2
    model = corpus.retrieve_and_read(lexical_weight=weight, num_candidates=5)
    found = model.hybrid.search(queries[1:2], pieces, 5, allowed)
    scores = np.asarray(found["scores"])[0]
    assert set(np.asarray(found["block_ids"])[0, :2].tolist()) == {0, 1}
    assert np.isfinite(scores[:2]).all()
    assert (scores[2:] == -np.inf).all()


def test_a_model_in_training_learns_from_the_sum(corpus, monkeypatch):
    """f(x, z) of the found blocks anew, and what BM25 gives them."""
    embed = OpenQa.embed_queries
    # Without dropout.
    monkeypatch.setattr(
        OpenQa, "embed_queries", lambda self, query, **_: embed(self, query)
    )
    model = corpus.retrieve_and_read(lexical_weight=2.0, num_candidates=5)
    rows = [query_wordpieces(q, corpus.loaded.tokenizer) for q in QUESTIONS[:2]]
    query = packing.query_inputs(
        pack_queries(rows, corpus.loaded.tokenizer.pad_id)
    )
    found = model.hybrid.search(
        model.open_qa.embed_queries(query), query["token_ids"], 5
    )
    learned = model.retrieve(query, training=True)
    scores, block_ids = learned["scores"], learned["block_ids"]
    np.testing.assert_array_equal(block_ids, found["block_ids"])
    lexical = np.take_along_axis(
        np.asarray(corpus.lexical(query["token_ids"])),
        np.asarray(block_ids),
        axis=1,
    )
    table = np.asarray(corpus.index.embeddings)[np.asarray(block_ids)]
    embeddings = np.asarray(model.open_qa.embed_queries(query))
    products = np.einsum("bd,bkd->bk", embeddings, table)
    # Every block is in the dense list of so small a corpus.
    np.testing.assert_allclose(scores, products + 2 * lexical, atol=1e-4)


def test_the_weight_is_fitted_to_known_answers():
    """One question that only BM25 answers first, and the other way round."""
    texts = ["nothing", "the moon", "the sun", "nothing"]
    questions = [Question("a", ("moon",)), Question("b", ("sun",))]

    class Found:
        def candidates(self, asked, depth):
            assert (asked, depth) == (["a", "b"], 2)
            return {
                "block_ids": np.array([[0, 1, 1, 3], [0, 1, 3, 2]]),
                "dense": np.array([[9.0, 7.0, 7.0, 7.0]] * 2),
                "lexical": np.array([[1.0, 8.0, 8.0, 1.0], [0, 0, 3.0, 0]]),
                "is_repeated": np.array(
                    [[False, False, True, False], [False] * 4]
                ),
            }

    # From 2 / 7 on, block 1 passes block 0 for the first question. For the
    # second, block 2 is never seen: it has the lowest score of both lists.
    asked = (questions, Found(), texts)
    weight = lexical_weight.fit(*asked, num_read=1, depth=2)
    assert weight == min(w for w in lexical_weight.WEIGHTS if w > 2 / 7)
    # Who reads two blocks reads block 1 whatever the weight.
    assert lexical_weight.fit(*asked, num_read=2, depth=2) == 0
