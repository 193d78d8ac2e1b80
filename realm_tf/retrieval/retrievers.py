"""Retrievers of one form: questions in, blocks out, best first.

`Dense` is the model's own, `Bm25` (in `retrieval.bm25`) the lexical baseline,
`Hybrid` the model's own and BM25 of wordpieces. Each has
`search(questions, num_candidates)`, which gives `(scores, block_ids)`.
"""

import keras
import numpy as np

from realm_tf.artifacts import question_files as data
from realm_tf.retrieval import hybrid

_BATCH_SIZE = 32

NAMES = ("realm", "bm25", "hybrid")


def make(name: str, corpus, *, lexical_weight: float = hybrid.LEXICAL_WEIGHT):
    """A retriever by name.

    Args:
        name: str. One of `NAMES`.
        corpus: `answering.corpus.Corpus`.
        lexical_weight: float. Of `Hybrid`. Defaults to `LEXICAL_WEIGHT`.
    """
    if name == "realm":
        return Dense(corpus)
    if name == "hybrid":
        return Hybrid(corpus, lexical_weight)
    from realm_tf.retrieval.bm25 import Bm25

    return Bm25(corpus.records.titles, corpus.records.texts)


class Dense:
    """The model's query tower over its index.

    Args:
        corpus: `answering.corpus.Corpus`, with an index.
    """

    def __init__(self, corpus):
        self._corpus = corpus

    def embed(self, questions: list[str]) -> np.ndarray:
        """Query embeddings, `(num_questions, embedding_dim)`, scaled.

        Those of empty questions are zeros.
        """
        tokenizer = self._corpus.loaded.tokenizer
        model = self._corpus.loaded.model
        embeddings = np.zeros((len(questions), model.embedding_dim), "float32")
        batches = data.batches_by_length(questions, tokenizer, _BATCH_SIZE)
        for places, rows in batches:
            inputs = data.pack_queries(rows, tokenizer.pad_id)
            inputs["segment_ids"] = np.zeros_like(inputs["token_ids"])
            embeddings[places] = np.asarray(model.embed_queries(inputs))
        return embeddings

    def search(self, questions: list[str], num_candidates: int):
        """The best blocks for each question by f(x, z), best first.

        Args:
            questions: list of str.
            num_candidates: int. At most the number of blocks.

        Returns:
            `(scores, block_ids)`, float32 and int32 arrays
            `(num_questions, num_candidates)`.
        """
        index = self._corpus.index
        num = min(num_candidates, index.num_blocks)
        return self._in_batches(
            lambda embeddings, _: index.search(embeddings, num), questions
        )

    def _in_batches(self, function, questions):
        """A function of embeddings and wordpieces; its tensors as arrays."""
        tokenizer = self._corpus.loaded.tokenizer
        embeddings = self.embed(questions)
        found = []
        for first in range(0, len(questions), _BATCH_SIZE):
            batch = slice(first, first + _BATCH_SIZE)
            rows = [
                data.query_wordpieces(q, tokenizer) for q in questions[batch]
            ]
            inputs = data.pack_queries(rows, tokenizer.pad_id)
            found.append(function(embeddings[batch], inputs["token_ids"]))
        return keras.tree.map_structure(
            lambda *parts: np.concatenate(parts), *found
        )


class Hybrid(Dense):
    """The same with BM25 of wordpieces beside it, see `retrieval.hybrid`.

    Args:
        corpus: `answering.corpus.Corpus`, with an index.
        weight: float.
    """

    def __init__(self, corpus, weight: float):
        super().__init__(corpus)
        self._hybrid = hybrid.Hybrid(corpus.index, corpus.lexical, weight)

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`, by the weighted sum.

        Returns:
            `(scores, block_ids, lexical)`; the last is what BM25 gives of each
            score.
        """
        num = min(num_candidates, self._corpus.index.num_blocks)
        found = self._in_batches(
            lambda *query: self._hybrid.search(*query, num), questions
        )
        return found["scores"], found["block_ids"], found["lexical"]

    def candidates(self, questions: list[str], num_candidates: int) -> dict:
        """As `retrieval.hybrid.Hybrid.candidates`, NumPy arrays."""
        return self._in_batches(
            lambda *query: self._hybrid.candidates(*query, num_candidates),
            questions,
        )
