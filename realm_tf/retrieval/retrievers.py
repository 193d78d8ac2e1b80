"""Retrievers of one form: questions in, blocks out, best first.

`Dense` is the model's own, `Bm25` (in `retrieval.bm25`) the lexical baseline,
`Hybrid` both. `search(questions, num_candidates)` gives `(scores, block_ids)`
of each, so that whoever reads or measures does not ask which it is.
"""

import dataclasses

import numpy as np

from realm_tf.artifacts import question_files as data

# Of each list that is fused, at least.
FUSED_DEPTH = 100
# What a point of BM25 is worth beside f(x, z), where no questions are there to
# fit it to (our choice; see docs/open_qa.md).
LEXICAL_WEIGHT = 0.25
_BATCH_SIZE = 32

NAMES = ("realm", "bm25", "hybrid")


def make(name: str, corpus, *, lexical_weight: float = LEXICAL_WEIGHT):
    """A retriever by name.

    Args:
        name: str. One of `NAMES`.
        corpus: `answering.corpus.Corpus`.
        lexical_weight: float. Of `Hybrid`. Defaults to `LEXICAL_WEIGHT`.
    """
    from realm_tf.retrieval.bm25 import Bm25

    if name == "realm":
        return Dense(corpus)
    bm25 = Bm25(corpus.records.titles, corpus.records.texts)
    if name == "bm25":
        return bm25
    return Hybrid(Dense(corpus), bm25, lexical_weight)


class Dense:
    """The model's query tower over its index.

    Args:
        corpus: `answering.corpus.Corpus`, with an index.
    """

    def __init__(self, corpus):
        self._corpus = corpus

    def embed(self, questions: list[str]) -> np.ndarray:
        """Query embeddings, `(num_questions, embedding_dim)`, scaled."""
        tokenizer = self._corpus.loaded.tokenizer
        model = self._corpus.loaded.model
        rows = [data.query_wordpieces(q, tokenizer) for q in questions]
        embeddings = np.zeros((len(rows), model.embedding_dim), "float32")
        # Of like length, so that little is padding.
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for first in range(0, len(order), _BATCH_SIZE):
            batch = order[first : first + _BATCH_SIZE]
            inputs = data.pack_queries(
                [rows[row] for row in batch], tokenizer.pad_id
            )
            inputs["segment_ids"] = np.zeros_like(inputs["token_ids"])
            embeddings[batch] = np.asarray(model.embed_queries(inputs))
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
        embeddings = self.embed(questions)
        index = self._corpus.index
        num_candidates = min(num_candidates, index.num_blocks)
        found = [
            index.search(
                embeddings[first : first + _BATCH_SIZE], num_candidates
            )
            for first in range(0, len(embeddings), _BATCH_SIZE)
        ]
        scores, block_ids = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(block_ids)


class Hybrid:
    """Two retrievers, by a weighted sum of their scores.

        s(x, z) = f(x, z) + weight * BM25(x, z)

    of the blocks that either finds among its best 100. Where one of them lacks
    a block, the block has the lowest score of that list, as it can have no
    higher one. Equal sums: the smaller id. A reader adds s(x, z) to its spans'
    scores as it adds f(x, z).

    Args:
        dense: `Dense`.
        lexical: `Bm25`, or another retriever.
        weight: float.

    References:
        [Ma et al., 2021](https://arxiv.org/abs/2104.05740).
    """

    def __init__(self, dense, lexical, weight: float):
        self._parts = dense, lexical
        self._weight = weight

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`, by the sum."""
        found = self.candidates(questions, num_candidates)
        best = [each.best(self._weight, num_candidates) for each in found]
        scores, block_ids = zip(*best, strict=True)
        return np.stack(scores), np.stack(block_ids)

    def candidates(self, questions: list[str], num_candidates: int) -> list:
        """`Candidates` of each question.

        Args:
            questions: list of str.
            num_candidates: int. Of each of the two, at least.
        """
        depth = max(num_candidates, FUSED_DEPTH)
        lists = [part.search(questions, depth) for part in self._parts]
        return [
            Candidates.of(*((scores[row], ids[row]) for scores, ids in lists))
            for row in range(len(questions))
        ]


@dataclasses.dataclass(frozen=True)
class Candidates:
    """What two retrievers found for a question.

    Args:
        block_ids: int32 array `(num_candidates,)`, rising.
        dense: float32 array `(num_candidates,)`. f(x, z).
        lexical: float32 array `(num_candidates,)`. BM25.
    """

    block_ids: np.ndarray
    dense: np.ndarray
    lexical: np.ndarray

    @classmethod
    def of(cls, dense, lexical):
        """The union of two lists, each `(scores, block_ids)`.

        Example:

        >>> found = Candidates.of(([9.0, 7.0], [5, 2]), ([3.0, 1.0], [2, 8]))
        >>> found.block_ids.tolist(), found.lexical.tolist()
        ([2, 5, 8], [3.0, 1.0, 1.0])
        """
        block_ids = np.union1d(dense[1], lexical[1]).astype("int32")
        columns = []
        for scores, found in (dense, lexical):
            column = np.full(len(block_ids), np.min(scores), "float32")
            column[np.searchsorted(block_ids, found)] = scores
            columns.append(column)
        return cls(block_ids, *columns)

    def best(self, weight: float, num: int):
        """`(scores, block_ids)` of the best `num` by the weighted sum."""
        scores = self.dense + np.float32(weight) * self.lexical
        order = np.argsort(-scores, kind="stable")[:num]
        return scores[order], self.block_ids[order]
