"""What the Python code answers, for `realm verify` to compare with."""

import time

from realm_tf.answering import calibration
from realm_tf.answering.predict import NUM_RETRIEVED
from realm_tf.answering.predict import Predictor
from realm_tf.retrieval import retrievers
from realm_tf.retrieval.brute_force import BruteForce

FILE = "assets.extra/expected.json"


def compute(
    corpus,
    embeddings,
    asked: list,
    *,
    num_reader_blocks: int,
    fitted=None,
    lexical_weight: float | None = None,
) -> dict:
    """Answers questions on this process's Keras backend.

    Args:
        corpus: `Corpus`.
        embeddings: float array `(num_blocks, embedding_dim)`. What the corpus's
            index is of.
        asked: list of `Question`.
        num_reader_blocks: int. Blocks read for a question.
        fitted: `Calibration`. See `RealmModule`. Defaults to `None`.
        lexical_weight: float. See `RealmModule`. Defaults to `None`.

    Returns:
        dict, JSON values: `questions`, a dict a question with what the export
        must answer, `block_ids` that it must find, and `exact_block_ids`,
        those of an exact float32 search; and `milliseconds_per_question`, one
        question at a time.
    """
    questions = [question.question for question in asked]
    num_retrieved = max(NUM_RETRIEVED, num_reader_blocks)
    predictor = Predictor(
        corpus,
        num_reader_blocks=num_reader_blocks,
        num_candidates=num_retrieved,
        lexical_weight=lexical_weight,
        relevance_weight=calibration.relevance_weight_of(fitted),
    )
    predictions = predictor.predict(questions)
    exact = _exact_retriever(corpus, embeddings, lexical_weight).search(
        questions, min(num_retrieved, len(corpus.records))
    )[1]
    rows = [
        {
            "question": question,
            **_row(calibration.choose(prediction, fitted=fitted)),
            "block_ids": prediction.retrieved,
            "exact_block_ids": neighbors if prediction.retrieved else [],
        }
        for question, prediction, neighbors in zip(
            questions, predictions, exact.tolist(), strict=True
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


def _exact_retriever(corpus, embeddings, lexical_weight):
    """What the export would find if its index missed nothing."""
    corpus = corpus.with_parts(index=BruteForce(embeddings))
    name = "realm" if lexical_weight is None else "hybrid"
    return retrievers.make(name, corpus, lexical_weight=lexical_weight)


def _row(prediction) -> dict:
    names = ("answer", "score", "confidence", "block_id", "start", "limit")
    row = {name: getattr(prediction, name) for name in names}
    for name in ("block_id", "log_prob", "answer"):
        row[f"candidate_{name}"] = [
            getattr(each, name) for each in prediction.candidates
        ]
    return row
