"""Retrievers of one form: questions in, blocks out, best first.

`Dense` is the model's own, `Bm25` (in `retrieval.bm25`) the lexical baseline,
`Hybrid` both. `search(questions, num_candidates)` gives `(scores, block_ids)`
of each, so that whoever reads or measures does not ask which it is.
"""

import numpy as np

from realm_tf.artifacts import question_files as data

# Cormack et al., 2009, section 3: "k = 60 was fixed during a pilot".
RANK_CONSTANT = 60
# Of each list that is fused, at least.
FUSED_DEPTH = 100
_BATCH_SIZE = 32

NAMES = ("realm", "bm25", "hybrid")


def make(name: str, corpus):
    """A retriever by name.

    Args:
        name: str. One of `NAMES`.
        corpus: `answering.corpus.Corpus`.
    """
    from realm_tf.retrieval.bm25 import Bm25

    if name == "realm":
        return Dense(corpus)
    bm25 = Bm25(corpus.records.titles, corpus.records.texts)
    return bm25 if name == "bm25" else Hybrid(Dense(corpus), bm25)


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
    """Two rankings fused by the reciprocals of ranks.

        r(z) = sum_lists 1 / (60 + rank of z in the list)

    A block that a list lacks counts nothing there. Equal sums: the smaller
    id. Sums of reciprocal ranks hardly differ, and a reader is trained beside
    f(x, z): so the block at a rank of the fusion is given the f(x, z) that the
    dense retriever has at that rank (our choice). Each block's own f(x, z)
    would undo the fusion where the reader adds it to its spans' scores.

    Args:
        dense: `Dense`.
        lexical: `Bm25`, or another retriever.

    References:
        [Cormack et al., 2009](https://doi.org/10.1145/1571941.1572114).
    """

    def __init__(self, dense, lexical):
        self._dense = dense
        self._lexical = lexical

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`, in the order of the fused ranks."""
        depth = max(num_candidates, FUSED_DEPTH)
        scores, dense = self._dense.search(questions, depth)
        _, lexical = self._lexical.search(questions, depth)
        scores = scores[:, :num_candidates]
        block_ids = np.array(
            [
                fuse(rankings)[: scores.shape[1]]
                for rankings in zip(dense, lexical, strict=True)
            ],
            dtype="int32",
        )
        return scores, block_ids


def fuse(rankings) -> list[int]:
    """Block ids of several rankings, by the sum of reciprocal ranks.

    Args:
        rankings: list of int arrays. Block ids, best first.

    Returns:
        list of int, best first; see `Hybrid`.

    Example:

    >>> fuse([[7, 3, 5], [3, 9]])
    [3, 7, 9, 5]
    """
    sums = {}
    for ranking in rankings:
        for rank, block_id in enumerate(ranking, 1):
            block_id = int(block_id)
            sums[block_id] = sums.get(block_id, 0.0) + 1 / (
                RANK_CONSTANT + rank
            )
    return sorted(sums, key=lambda block_id: (-sums[block_id], block_id))
