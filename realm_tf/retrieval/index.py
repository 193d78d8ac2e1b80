"""The contract of every index: maximum inner product search over blocks."""

import abc
import importlib
from collections.abc import Callable
from typing import ClassVar

from realm_tf.errors import InputError

# Kind: module of this package and class in it. A new kind is a module and a
# line here.
KINDS = {
    "brute_force": "brute_force.BruteForce",
    "ivf": "ivf.Ivf",
    "scann": "scann.Scann",
}


def index_class(kind: str) -> type["Index"]:
    """The class of a kind; its module is imported."""
    module, _, name = KINDS[kind].partition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def load(files, *, quantize: str = "none") -> "Index":
    """The index that a directory holds.

    Args:
        files: `artifacts.objects.Index`.
        quantize: str. See `Index.from_files`. Defaults to `"none"`.

    Raises:
        InputError: as `Index.from_files`.
    """
    return index_class(files.search).from_files(files, quantize=quantize)


class Index(abc.ABC):
    """Block embeddings that can be searched inside a graph.

    `search` finds the blocks with the largest inner products; the row of an
    embedding is its `block_id`. Implementations differ in speed and recall,
    never in meaning, and each can take new embeddings while it is in use.

    Attributes:
        num_blocks: int. Number of rows.
        embedding_dim: int. Width of a row.
        is_exact: bool. Whether `search` always finds the true nearest blocks.
        OPTIONS: tuple of str. Arguments of `resolve`, and fields of the
            operation `BuildIndex`, that are for this kind alone.
        ALWAYS_EXACT: bool. Whether no index of the kind misses a block, so
            that its recall need not be measured nor its state be kept.
    """

    num_blocks: int
    embedding_dim: int
    is_exact: bool
    OPTIONS: ClassVar[tuple[str, ...]] = ()
    ALWAYS_EXACT: ClassVar[bool] = False

    @classmethod
    def resolve(cls, num_blocks: int, **options) -> dict:
        """Arguments of `build`, with defaults filled in; kept in metadata.

        Args:
            num_blocks: int. Rows of the embeddings.
            **options: those of `OPTIONS`.

        Returns:
            dict of JSON values.

        Raises:
            InputError: if an option is out of its range.
        """
        return options

    @classmethod
    def build(cls, embeddings, **parameters) -> "Index":
        """An index of embeddings.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
            **parameters: the result of `resolve`.
        """
        return cls(embeddings)

    def state(self) -> dict:
        """Arrays by name, which are kept beside the embeddings."""
        return {}

    @classmethod  # noqa: B027
    def from_files(cls, files, *, quantize: str = "none") -> "Index":
        """The index that a directory holds.

        Args:
            files: `artifacts.objects.Index`: `embeddings`, `state(names)`,
                `parameters` and `metadata` are what was kept.
            quantize: str. How embeddings are held in memory and in a
                SavedModel: `"none"`, `"int8"` or `"bfloat16"`. Defaults to
                `"none"`.

        Raises:
            InputError: if the files do not fit each other, or `quantize` is
                not to be had of this kind.
        """

    @abc.abstractmethod
    def search(self, queries, num_candidates: int, allowed=None):
        """The best blocks for each query, best first.

        Args:
            queries: float tensor `(batch_size, embedding_dim)`.
            num_candidates: int. How many, at most `num_blocks`.
            allowed: bool tensor `(batch_size, num_blocks)`, or of one line
                for all queries. Which blocks may be found: the search is
                exact then, and costs as much as scoring all. Where fewer are
                allowed, the last scores are -inf, and their ids mean nothing.
                Defaults to `None`: all.

        Returns:
            `(relevance_scores, block_ids)`, float32 and int32 tensors of
            shape `(batch_size, num_candidates)`. Equal scores: the smaller
            id first where the search is exact (with `allowed`, an `Ivf` gives
            them in any order).

        Raises:
            InputError: if `num_candidates` is out of its range, or the kind
                cannot take `allowed`.
        """

    @abc.abstractmethod
    def prepare(self, embeddings) -> Callable[[], None]:
        """Makes new embeddings of the same shape ready, in any thread.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.

        Returns:
            function without arguments that exchanges the embeddings, between
            two searches; compiled searches are not traced again.

        Raises:
            InputError: if they have another shape.
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
