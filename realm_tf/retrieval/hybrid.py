"""A dense index and BM25 in one search, inside a graph."""

from keras import ops

# Of each of the two lists that are fused, at least (our choice).
FUSED_DEPTH = 100
# What a point of BM25 is worth beside f(x, z), where no questions are there to
# fit it to (our choice).
LEXICAL_WEIGHT = 0.25


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
        """What both found, one list after the other.

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
        of_all = self.lexical(token_ids)
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
