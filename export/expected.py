"""What the Python code answers, for `realm verify` to compare with."""

import time

import numpy as np

from realm_tf.answering import calibration
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts import index_files
from realm_tf.artifacts import question_files as data
from realm_tf.retrieval.numpy_index import NumpyIndex

FILE = "assets.extra/expected.json"


def compute(
    model: str,
    blocks: str,
    index: str,
    questions: list[str],
    *,
    num_reader_blocks: int,
    num_retrieved: int,
    temperature: float,
    quantize: str,
) -> dict:
    """Answers questions on this process's Keras backend.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        index: str. Index directory.
        questions: list of str.
        num_reader_blocks: int. Blocks read for a question.
        num_retrieved: int. Blocks found for a question.
        temperature: float. See `RealmModule`.
        quantize: str. See `index_files.load`.

    Returns:
        dict of `questions`, one dict a question with what the export must
        answer, `block_ids` that it must find, and `exact_block_ids`, those of
        an exact float32 search; and `milliseconds_per_question`, one question
        at a time.
    """
    corpus = Corpus.load(model, blocks, index, quantize=quantize)
    predictor = Predictor(
        corpus,
        num_reader_blocks=num_reader_blocks,
        num_candidates=num_retrieved,
    )
    predictions = predictor.predict(questions)
    exact = _exact_neighbors(corpus, index, questions, num_retrieved)
    rows = [
        {
            "question": question,
            **_row(calibration.choose(prediction, temperature=temperature)),
            "block_ids": prediction.retrieved,
            "exact_block_ids": neighbors if prediction.retrieved else [],
        }
        for question, prediction, neighbors in zip(
            questions, predictions, exact, strict=True
        )
    ]
    # Compiled by now for each of them.
    for question in questions:
        predictor.predict([question])
    started = time.monotonic()
    for question in questions:
        predictor.predict([question])
    seconds = time.monotonic() - started
    return {
        "questions": rows,
        "milliseconds_per_question": round(1000 * seconds / len(questions), 1),
    }


def _row(prediction) -> dict:
    candidates = prediction.candidates
    return {
        "answer": prediction.answer,
        "score": prediction.score,
        "confidence": prediction.confidence,
        "block_id": prediction.block_id,
        "start": prediction.start,
        "limit": prediction.limit,
        "candidate_block_id": [c.block_id for c in candidates],
        "candidate_log_prob": [c.log_prob for c in candidates],
        "candidate_answer": [c.answer for c in candidates],
    }


def _exact_neighbors(corpus, index, questions, num_retrieved):
    tokenizer = corpus.loaded.tokenizer
    packed = data.pack_queries(
        [data.query_wordpieces(q, tokenizer) for q in questions],
        tokenizer.pad_id,
    )
    packed["segment_ids"] = np.zeros_like(packed["token_ids"])
    queries = np.asarray(corpus.loaded.model.embed_queries(packed), "float32")
    exact = NumpyIndex(index_files.load_embeddings(index))
    num_neighbors = min(num_retrieved, exact.num_blocks)
    return exact.search(queries, num_neighbors)[1].tolist()
