"""The contract of every index: maximum inner product search over blocks."""

import abc

from realm_tf.errors import InputError

KINDS = ("brute_force", "ivf", "scann")


class Index(abc.ABC):
    """Block embeddings that can be searched inside a graph.

    `search` finds the blocks with the largest inner products; the row of an
    embedding is its `block_id`. Implementations differ in speed and recall,
    never in meaning, and each can take new embeddings while it is in use.
    """

    @property
    @abc.abstractmethod
    def num_blocks(self) -> int:
        """Number of rows."""

    @property
    @abc.abstractmethod
    def embedding_dim(self) -> int:
        """Width of a row."""

    @property
    @abc.abstractmethod
    def is_exact(self) -> bool:
        """Whether `search` always finds the true nearest blocks."""

    @abc.abstractmethod
    def search(self, queries, num_candidates: int):
        """The best blocks for each query, best first.

        Args:
            queries: float tensor `(batch_size, embedding_dim)`.
            num_candidates: int. How many, at most `num_blocks`.

        Returns:
            `(relevance_scores, block_ids)`, float32 and int32 tensors of
            shape `(batch_size, num_candidates)`. Equal scores: the smaller
            id first where the search is exact.
        """

    @abc.abstractmethod
    def swap(self, embeddings) -> None:
        """Takes new embeddings of the same shape, without retracing.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
        """

    def _check_num_candidates(self, num_candidates):
        if not 1 <= num_candidates <= self.num_blocks:
            raise InputError(
                f"`num_candidates` must be between 1 and the index's "
                f"{self.num_blocks} blocks. "
                f"Received: num_candidates={num_candidates}"
            )

    def _check_swap(self, embeddings):
        expected = (self.num_blocks, self.embedding_dim)
        if tuple(embeddings.shape) != expected:
            raise InputError(
                f"New embeddings must have the index's shape {expected}. "
                f"Received: shape={tuple(embeddings.shape)}"
            )
