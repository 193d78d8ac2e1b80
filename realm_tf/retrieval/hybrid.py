"""A dense index and BM25 in one search, inside a graph."""

import keras
import numpy as np
from keras import ops

from realm_tf.models.fixed_weight import fixed_weight
from realm_tf.retrieval import wordpiece_scores
from realm_tf.retrieval.wordpiece_scores import LEXICAL_WEIGHT

# Of each of the two lists that are fused, at least (our choice).
FUSED_DEPTH = 100


class Hybrid:
    """Two retrievers, by a weighted sum of their scores.

        s(x, z) = f(x, z) + weight * BM25(x, z)

    of the blocks that either finds among its best 100. A block that the dense
    index lacks has the lowest score of that list, as it can have no higher one.
    A reader adds s(x, z) to its spans' scores as it adds f(x, z).

    Args:
        index: `retrieval.index.Index`.
        lexical: `WordpieceBm25` of the same blocks.
        weight: float. Defaults to `LEXICAL_WEIGHT`.

    Attributes:
        lexical: `WordpieceBm25`.

    References:
        [Ma et al., 2021](https://arxiv.org/abs/2104.05740).
    """

    def __init__(self, index, lexical, weight: float = LEXICAL_WEIGHT):
        self._index = index
        self.lexical = lexical
        self._weight = weight

    def search(self, embeddings, token_ids, num_candidates: int, allowed=None):
        """The best blocks for each question by the sum, best first.

        Args:
            embeddings: float tensor `(batch_size, embedding_dim)`. Of the
                query tower, scaled.
            token_ids: int tensor `(batch_size, query_length)`.
            num_candidates: int. At most the number of blocks.
            allowed: bool tensor. As of `Index.search`. Defaults to `None`.

        Returns:
            dict of tensors `(batch_size, num_candidates)`: `block_ids`, int32,
            `scores`, and of which these are the sum, `dense` and `lexical`,
            the latter weighted.
        """
        found = self.candidates(embeddings, token_ids, num_candidates, allowed)
        lexical = found["lexical"]
        # Blocks that may not be found have -inf, which 0 makes no number.
        lexical = ops.where(ops.isinf(lexical), lexical, self._weight * lexical)
        total = ops.where(
            found["is_repeated"], -float("inf"), found["dense"] + lexical
        )
        scores, places = ops.top_k(total, num_candidates)
        return {
            "scores": scores,
            **{
                name: ops.take_along_axis(values, places, axis=1)
                for name, values in (
                    ("block_ids", found["block_ids"]),
                    ("dense", found["dense"]),
                    ("lexical", lexical),
                )
            },
        }

    def candidates(
        self, embeddings, token_ids, num_candidates: int, allowed=None
    ) -> dict:
        """The blocks that both found, one list after the other.

        Args:
            embeddings, token_ids, allowed: as of `search`.
            num_candidates: int. Of each list, at least.

        Returns:
            dict of tensors `(batch_size, num)`: `block_ids`, int32; `dense` and
            `lexical`, both scores of each, without weight; `is_repeated`, bool,
            where a block of the second list is in the first one, too.
        """
        depth = min(max(num_candidates, FUSED_DEPTH), self._index.num_blocks)
        dense, dense_ids = self._index.search(embeddings, depth, allowed)
        num_blocks = None if allowed is None else ops.shape(allowed)[1]
        of_all = self.lexical(token_ids, num_blocks=num_blocks)
        if allowed is not None:
            of_all = ops.where(allowed, of_all, -float("inf"))
        _, lexical_ids = ops.top_k(of_all, depth)
        lexical_ids = ops.cast(lexical_ids, "int32")
        block_ids = ops.concatenate([dense_ids, lexical_ids], axis=1)
        lowest = ops.broadcast_to(dense[:, -1:], ops.shape(dense))
        repeated = ops.any(
            ops.equal(lexical_ids[:, :, None], dense_ids[:, None]), axis=2
        )
        return {
            "block_ids": block_ids,
            "dense": ops.concatenate([dense, lowest], axis=1),
            "lexical": ops.take_along_axis(of_all, block_ids, axis=1),
            "is_repeated": ops.concatenate(
                [ops.zeros_like(repeated), repeated], axis=1
            ),
        }


class WordpieceBm25(keras.layers.Layer):
    """BM25 of the wordpieces of titles and bodies, with plain ops.

        s(x, z) = sum_{t in x} idf(t) n / (n + k1 (1 - b + b |z| / mean |z|))
        idf(t) = log(1 + (N - N_t + 0.5) / (N_t + 0.5))

    n is how often the block z of |z| wordpieces holds the wordpiece t, N_t how
    many of the N blocks hold it. The score of a block for a wordpiece is computed
    once; a question adds up the lists of its own wordpieces. So it runs wherever
    a graph does, on the ids that towers and readers have anyway; `bm25.Bm25`
    stems and leaves stop words out, on the host.

    Args:
        postings: `scipy.sparse.csc_array` `(num_blocks, vocabulary_size)`,
            float, as of `wordpiece_scores.postings`.

    Attributes:
        num_blocks: int.
        num_postings: int. How many entries all lists have.

    References:
        [Robertson and Zaragoza, 2009](https://doi.org/10.1561/1500000019), in
        the form of Lucene ([Kamphuis et al.,
        2020](https://doi.org/10.1007/978-3-030-45442-5_4)).
    """

    def __init__(self, postings, **kwargs):
        super().__init__(**kwargs)
        self.num_blocks = postings.shape[0]
        self.num_postings = postings.nnz
        limits, block_ids, scores = wordpiece_scores.arrays(postings)
        self._longest = int(np.diff(limits).max(initial=1))
        with keras.name_scope(self.name):
            self._limits = fixed_weight(limits, "limits")
            self._block_ids = fixed_weight(block_ids, "block_ids")
            self._scores = fixed_weight(scores, "scores")

    def call(self, token_ids, num_blocks=None):
        """Scores of all blocks.

        Args:
            token_ids: int tensor `(batch_size, query_length)`. [CLS], [SEP] and
                padding are in no block and count nothing.
            num_blocks: int or int32 scalar tensor. How many blocks there are
                where the weights may be of others. Defaults to `None`:
                `self.num_blocks`.

        Returns:
            float32 tensor `(batch_size, num_blocks)`.
        """
        batch_size, num_pieces = ops.shape(token_ids)
        num_blocks = self.num_blocks if num_blocks is None else num_blocks
        # (b * q,)
        pieces = ops.reshape(token_ids, (-1,))
        starts = ops.take(self._limits, pieces)
        lengths = ops.take(self._limits, pieces + 1) - starts
        piece, place, is_listed = self._places(lengths)
        listed = ops.where(is_listed, ops.take(starts, piece) + place, 0)
        scores = ops.cast(ops.take(self._scores, listed), "float32")
        row = piece // num_pieces
        total = ops.segment_sum(
            ops.where(is_listed, scores, 0.0),
            row * num_blocks + ops.take(self._block_ids, listed),
            num_segments=batch_size * num_blocks,
        )
        return ops.reshape(total, (batch_size, num_blocks))

    def _places(self, lengths):
        """Of each entry of some lists: which list, where in it, if it is one.

        Compiled by JAX, all lists are as long as the longest there is: a shape
        may not depend on the question there.
        """
        num_lists = ops.shape(lengths)[0]
        if keras.backend.backend() == "tensorflow":
            lists = ops.repeat(ops.arange(num_lists, dtype="int32"), lengths)
            before = ops.cumsum(lengths) - lengths
            place = ops.arange(ops.shape(lists)[0], dtype="int32")
            return lists, place - ops.take(before, lists), True
        place = ops.tile(ops.arange(self._longest, dtype="int32"), (num_lists,))
        lists = ops.repeat(ops.arange(num_lists, dtype="int32"), self._longest)
        return lists, place, place < ops.take(lengths, lists)
