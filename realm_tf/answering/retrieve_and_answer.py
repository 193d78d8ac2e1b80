"""Searches for questions with a retriever, and reads the blocks."""

import dataclasses

import numpy as np

from realm_tf.answering import lexical_weight as lexical_weights
from realm_tf.answering import recall
from realm_tf.answering import relevance_weight as relevance_weights
from realm_tf.answering import sharing
from realm_tf.answering.oracle import Given
from realm_tf.answering.oracle import Hiding
from realm_tf.answering.oracle import Oracle
from realm_tf.retrieval import hybrid
from realm_tf.retrieval import retrievers

CLOSED_BOOK = "none"
ORACLE = "oracle"
FIT = "fit"


@dataclasses.dataclass
class Answered:
    """The blocks found for each question, and the answers.

    Args:
        predictions: list of `Prediction`; empty where no block was read.
        records: `BlockRecords`; `None` for closed-book answers.
        ranking: list of lists of int. The block ids that the retriever found for
            each question, best first.
        lexical_weight: float. Of BM25, if a hybrid retriever searched; else
            `None`.
        relevance_weight: float. With which spans were chosen.
        unanswerable: list of `Prediction`. The same questions where no block
            holds an answer; empty unless they were asked for.
    """

    predictions: list = dataclasses.field(default_factory=list)
    records: object = None
    ranking: list = dataclasses.field(default_factory=list)
    lexical_weight: float | None = None
    relevance_weight: float = relevance_weights.AS_LEARNED
    unanswerable: list = dataclasses.field(default_factory=list)


def answer(
    model,
    blocks,
    index,
    asked,
    *,
    retriever,
    num_reader_blocks,
    precision,
    ranking=None,
    calibrate=False,
    lexical_weight=hybrid.LEXICAL_WEIGHT,
    relevance_weight=relevance_weights.AS_LEARNED,
) -> Answered:
    """Searches for questions and reads the blocks found.

    Args:
        model: `Model`.
        blocks: `Blocks`, or `None` for closed-book answers.
        index: `Index`, or `None` for closed-book answers.
        asked: list of `Question`.
        retriever: str. Whose blocks are read: one of `retrievers.NAMES`,
            `CLOSED_BOOK` or `ORACLE`; without effect beside `ranking`.
        num_reader_blocks: int. Blocks read; 0 only searches.
        precision: str. See `model_directory.load`.
        ranking: `RankingFile`, whose blocks are read. Defaults to `None`.
        calibrate: bool. Whether to ask again with every block hidden that
            holds an answer. Defaults to `False`.
        lexical_weight: float. Of BM25 in a hybrid retriever; `FIT` for what
            fits these questions best. Defaults to `LEXICAL_WEIGHT`.
        relevance_weight: float. Of retrieval beside the reader; `FIT` as well.
            Defaults to `AS_LEARNED`.

    Returns:
        `Answered`.

    Raises:
        InputError: if the directories do not match, or the ranking is not of
            these questions and blocks.
    """
    texts = [question.question for question in asked]
    if retriever == CLOSED_BOOK:
        return Answered(_closed_book(model, precision, texts))
    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor

    corpus, known = sharing.kept(
        (*(each.fingerprint for each in (model, blocks, index)), precision),
        lambda: (Corpus.load(model, blocks, index, precision=precision), {}),
    )
    answered = Answered(records=corpus.records)
    if retriever == "hybrid":
        if lexical_weight == FIT:
            lexical_weight = _fitted(corpus, asked, num_reader_blocks)
        answered.lexical_weight = lexical_weight
    if ranking:
        search = Given(ranking, asked, num_blocks=len(corpus.records))
    else:
        search = _retriever(corpus, retriever, asked, lexical_weight)
    if num_reader_blocks:
        predictor = Predictor(
            corpus,
            num_candidates=recall.NUM_RANKED,
            num_reader_blocks=num_reader_blocks,
        )
        answered.relevance_weight = relevance_weight
        _read(answered, predictor, search, asked, calibrate, known)
        answered.ranking = [each.retrieved for each in answered.predictions]
    else:
        answered.ranking = _ranking(search, texts)
    return answered


def _closed_book(model, precision, texts):
    from realm_tf.answering.closed_book import ClosedBook
    from realm_tf.models import model_directory

    loaded = model_directory.load(model, precision=precision)
    return ClosedBook(loaded).predict(texts)


def _fitted(corpus, asked, num_reader_blocks):
    """The weight of BM25 that fits the questions best."""
    return lexical_weights.fit(
        asked,
        retrievers.make("hybrid", corpus),
        corpus.records.texts,
        num_read=num_reader_blocks,
        depth=recall.NUM_RANKED,
    )


def _retriever(corpus, name, asked, lexical_weight):
    """A retriever by its name in `answer`."""
    if name != ORACLE:
        return retrievers.make(name, corpus, lexical_weight=lexical_weight)
    return Oracle(
        retrievers.Dense(corpus),
        corpus.records.texts,
        asked,
        depth=recall.NUM_RANKED,
    )


def _read(answered, predictor, retriever, asked, calibrate, known):
    """Reads what a retriever finds, and again what is left by hiding."""
    texts = [question.question for question in asked]
    read = predictor.read(texts, search=retriever.search, known=known)
    if answered.relevance_weight == FIT:
        read = list(read)
        answered.relevance_weight = relevance_weights.fit(
            asked,
            predictor.choose(
                texts, read, relevance_weight=relevance_weights.AS_LEARNED
            ),
        )
    weight = {"relevance_weight": answered.relevance_weight}
    answered.predictions = predictor.choose(texts, read, **weight)
    if calibrate:
        hiding = Hiding(
            retriever,
            answered.records.texts,
            asked,
            depth=recall.NUM_RANKED,
        )
        read = predictor.read(texts, search=hiding.search, known=known)
        answered.unanswerable = predictor.choose(texts, read, **weight)


def _ranking(retriever, texts):
    """Block ids of each question; none where nothing is asked."""
    scores, found, *_ = retriever.search(texts, recall.NUM_RANKED)
    return [
        block_ids[is_found].tolist() if text.strip() else []
        for text, block_ids, is_found in zip(
            texts, found, np.isfinite(scores), strict=True
        )
    ]
