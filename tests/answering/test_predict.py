"""Predictions against a slow recomputation, one question and block at a time."""

import collections
import dataclasses
import string

import numpy as np
import pytest
from one_row import one_row

from realm_tf.answering import calibration
from realm_tf.answering.answerer import Answerer
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import NO_ANSWER
from realm_tf.answering.predict import NUM_BEST
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.retrieval.bm25 import Bm25
from realm_tf.retrieval.retrievers import Dense
from realm_tf.text.answers import normalize_answer

QUESTIONS = [
    "Where was Ada?",
    "What is the river of Rome?",
    "Who wrote organ music in the city of Leipzig in 1750?",
    "What flows to Egypt?",
    "fire",
]


@pytest.fixture(scope="module")
def corpus(model_dir, blocks_dir, brute_force_index_dir):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


@pytest.fixture(scope="module")
def predictor(corpus):
    return Predictor(corpus, num_candidates=6, num_reader_blocks=3)


@pytest.fixture(scope="module")
def predictions(predictor):
    return predictor.predict(QUESTIONS)


def _query(corpus, question):
    """A question's wordpieces and its embedding."""
    ids = query_wordpieces(question, corpus.loaded.tokenizer)
    inputs = one_row(ids)
    return ids, np.asarray(corpus.loaded.model.embed_queries(inputs))[0]


def _relevance(corpus, question):
    """f(x, z) of all blocks."""
    return np.asarray(corpus.index.embeddings) @ _query(corpus, question)[1]


def _slow_spans(corpus, question, blocks, relevance=None):
    """`(score, text, block)` of all spans of some blocks, best first.

    A span of wordpieces that the question holds, or marks, scores 3 less.
    """
    tokenizer, records = corpus.loaded.tokenizer, corpus.records
    query, _ = _query(corpus, question)
    if relevance is None:
        relevance = _relevance(corpus, question)[blocks]
    spans = []
    asked = {tokenizer.vocabulary[i] for i in query}
    for block, score in zip(blocks, relevance, strict=True):
        body = tokenizer.tokenize(records.texts[block])
        ids_of = body.ids
        ids = [*query, *ids_of, tokenizer.sep_id]
        segments = [0] * len(query) + [1] * (len(body) + 1)
        logits = np.asarray(corpus.loaded.model.reader(one_row(ids, segments)))
        for start in range(len(body)):
            for width in range(min(10, len(body) - start)):
                stop = start + width + 1
                pieces = [tokenizer.vocabulary[i] for i in ids_of[start:stop]]
                is_new = any(
                    piece not in asked and piece not in string.punctuation
                    for piece in pieces
                )
                logit = logits[0, len(query) + start, width]
                spans.append(
                    (
                        float(logit + score) - (0 if is_new else 3),
                        records.span_text(block, start, stop),
                        block,
                    )
                )
    return sorted(spans, key=lambda span: -span[0])


def _read(prediction):
    return [candidate.block_id for candidate in prediction.candidates]


def test_retrieval_is_the_order_of_the_inner_products(corpus, predictions):
    for question, found in zip(QUESTIONS, predictions, strict=True):
        _, query = _query(corpus, question)
        scores = np.asarray(corpus.index.embeddings) @ query
        assert found.retrieved == np.argsort(-scores)[:6].tolist()
        read = found.retrieved[:3]
        assert _read(found) == read
        shares = np.exp(scores[read]) / np.exp(scores[read]).sum()
        np.testing.assert_allclose(
            [c.log_prob for c in found.candidates], np.log(shares), atol=1e-5
        )


def test_answers_are_the_best_spans_of_the_blocks(corpus, predictions):
    for question, found in zip(QUESTIONS, predictions, strict=True):
        for candidate in found.candidates:
            score, text, _ = _slow_spans(
                corpus, question, [candidate.block_id]
            )[0]
            assert candidate.answer == text
            assert candidate.score == pytest.approx(score, abs=1e-4)
        text = corpus.records.texts[found.block_id]
        assert text[found.start : found.limit] == found.answer != ""
        assert 0 < found.confidence <= 1


def test_the_nbest_list_and_its_shares(corpus, predictions):
    for question, found in zip(QUESTIONS, predictions, strict=True):
        spans = _slow_spans(corpus, question, _read(found))
        # Equal answers among the best spans add up.
        different = collections.defaultdict(list)
        for span in spans[:NUM_BEST]:
            different[normalize_answer(span[1]) or span[1]].append(span)
        assert len(found.nbest) == len(different) < NUM_BEST
        sums = {
            key: np.log(np.exp([score for score, *_ in equal]).sum())
            for key, equal in different.items()
        }
        for span, key in zip(
            found.nbest, sorted(sums, key=lambda key: -sums[key]), strict=True
        ):
            best, text, block = different[key][0]
            assert span.score == pytest.approx(sums[key], abs=1e-4)
            relevance = _relevance(corpus, question)[block]
            assert span.reader_score == pytest.approx(
                best - relevance, abs=1e-4
            )
            assert (span.answer, span.block_id) == (text, block)
            text = corpus.records.texts[span.block_id]
            assert text[span.start : span.limit] == span.answer
        scores = np.array([score for score, *_ in spans])
        scores = np.append(scores, _relevance(corpus, question)[_read(found)])
        share = 1 / np.exp(scores - found.score).sum()
        assert found.confidence == pytest.approx(share, abs=1e-5)
        assert found.answered
        # Without change, as predicted.
        assert calibration.choose(found) == found


def test_the_models_calibration_says_what_is_answered(
    corpus, model_dir, blocks_dir, brute_force_index_dir, tmp_path
):
    """By the reader's log-odds against "none"."""
    found = Predictor(corpus, num_reader_blocks=2).predict(QUESTIONS)
    middle = np.median([each.reader_score for each in found])
    fitted = calibration.Calibration(1.0 - 2 * middle, 2.0, 0.7)
    loaded = model_directory.load(model_dir)
    loaded.calibration = dataclasses.asdict(fitted)
    model_directory.save(loaded, str(tmp_path / "model"))
    answers = Answerer(
        str(tmp_path / "model"),
        blocks_dir,
        brute_force_index_dir,
        num_reader_blocks=2,
    ).ask(QUESTIONS)
    for answer, prediction in zip(answers, found, strict=True):
        log_odds = 1 + 2 * (prediction.reader_score - middle)
        confidence = 1 / (1 + np.exp(-log_odds))
        assert answer.confidence == pytest.approx(confidence, abs=1e-4)
        assert answer.answered == (answer.confidence >= 0.7)
    assert {each.answered for each in answers} == {True, False}


def _assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.answer, a.block_id, a.start, a.limit, a.retrieved) == (
            *(b.answer, b.block_id, b.start, b.limit, b.retrieved),
        )
        assert a.score == pytest.approx(b.score, abs=1e-4)
        assert a.confidence == pytest.approx(b.confidence, abs=1e-4)
        for one, other in zip(a.candidates, b.candidates, strict=True):
            assert (one.block_id, one.answer) == (other.block_id, other.answer)
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.slow
def test_any_batch_size_gives_the_same(corpus, predictions):
    predictor = Predictor(
        corpus, num_candidates=6, num_reader_blocks=3, batch_size=2
    )
    _assert_same(predictor.predict(QUESTIONS), predictions)


def test_an_empty_question_has_no_answer(predictor, predictions):
    mixed = predictor.predict(["", QUESTIONS[0], " \t ", QUESTIONS[1]])
    assert mixed[0] == mixed[2] == NO_ANSWER
    assert NO_ANSWER.block_id == -1 and NO_ANSWER.answer == ""
    _assert_same([mixed[1], mixed[3]], predictions[:2])
    assert predictor.predict(["", ""]) == [NO_ANSWER] * 2
    assert predictor.predict([]) == []


@pytest.mark.slow
def test_as_many_blocks_are_retrieved_as_are_read(corpus):
    (found,) = Predictor(corpus, num_candidates=2, num_reader_blocks=7).predict(
        QUESTIONS[:1]
    )
    assert len(found.candidates) == len(found.retrieved) == 7
    # No more than there are.
    (found,) = Predictor(corpus, num_reader_blocks=50).predict(QUESTIONS[:1])
    assert sorted(c.block_id for c in found.candidates) == list(range(11))
    with pytest.raises(InputError, match="num_reader_blocks=0"):
        Predictor(corpus, num_reader_blocks=0)


def test_another_retrievers_blocks_are_read(corpus, predictor):
    bm25 = Bm25(corpus.records.titles, corpus.records.texts)
    found = predictor.predict(QUESTIONS, search=bm25.search)
    scores, block_ids = bm25.search(QUESTIONS, 6)
    for row, prediction in enumerate(found):
        assert prediction.retrieved == block_ids[row].tolist()
        for candidate, score in zip(
            prediction.candidates, scores[row], strict=False
        ):
            score, text, _ = _slow_spans(
                corpus, QUESTIONS[row], [candidate.block_id], [score]
            )[0]
            assert candidate.answer == text
            assert candidate.score == pytest.approx(score, abs=1e-4)


def test_blocks_are_read_once_for_a_question(
    corpus, predictor, predictions, monkeypatch
):
    num_rows = []
    compute = predictor._compute

    def counted(inputs):
        num_rows.append(len(inputs["candidate_ids"]))
        return compute(inputs)

    monkeypatch.setattr(predictor, "_compute", counted)
    known = {}
    for retriever in (
        Dense(corpus),
        Bm25(corpus.records.titles, corpus.records.texts),
        Dense(corpus),
    ):
        read = predictor.read(QUESTIONS, search=retriever.search, known=known)
        found = predictor.choose(QUESTIONS, read)
    _assert_same(found, predictions)
    again = predictor.predict(QUESTIONS, search=retriever.search)
    _assert_same(again, predictions)
    pairs = {
        (question, block_id)
        for question, prediction in zip(QUESTIONS, found, strict=True)
        for block_id in _read(prediction)
    }
    assert pairs < known.keys()
    # Each once, and without `known` again.
    assert sum(num_rows) == len(known) + len(pairs)
