"""Approximate search without an op of its own: the best partitions alone."""

import math
import types

import keras
import numpy as np
from keras import ops

from realm_tf.errors import InputError
from realm_tf.losses import float32_products
from realm_tf.models.fixed_weight import fixed_weight
from realm_tf.progress import Progress
from realm_tf.retrieval.index import Index
from realm_tf.retrieval.row_table import ROWS_AT_ONCE
from realm_tf.retrieval.row_table import RowTable
from realm_tf.retrieval.row_table import best_rows

# Multiples of the square root of the number of blocks. Of 1, 2 and 4, with
# as many rows scored, 4 found most: of 50,000 clustered rows of varied norms,
# 1 % of them scored, 0.68, 0.84 and 0.96 of the best five.
_PARTITIONS_PER_ROOT = 4
# With the default number of partitions, 32 found 0.957 to 0.965 of the best
# five of 500 to 4,000 MiniLM passages, whatever their number, and 48 found
# 0.977 to 0.987; 0.987 of 100,000 clustered rows of varied norms.
NUM_PROBED = 48
_STATE = ("centroids", "sizes", "block_ids")
_INT32 = np.iinfo("int32")


class Ivf(keras.layers.Layer, Index):
    """Index of partitions (an inverted file) as a Keras layer.

    Rows lie partition by partition. For a query, partitions are ordered by
    the product with their centroid, and rows are scored, exactly, partition
    after partition, until as many are as `num_probed` partitions of mean size
    have. So a search costs the same whatever it asks and is never padded, and
    the number of candidates asked for is always found, even where the best
    partitions are small: more of them are read then.

    It runs on TensorFlow and JAX, and an exported search holds only
    TensorFlow's own ops. On several devices each has all rows.
    JAX searches one query at a time and TensorFlow at most ten, so that only
    their rows are float32 at once.

    Of equal scores among the rows that were scored, the smaller id is first.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id;
            it may be mapped from a file.
        partitions: dict of arrays. Of `partition`.
        num_partitions: int. How many `partition` was asked for.
        num_probed: int. How many are searched. All of them: the search is
            exact.
        quantize: str. How rows are held; see `RowTable`. Defaults to
            `"none"`.

    Example:

    >>> index = Ivf.build(np.eye(3, dtype="float32"))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> np.asarray(block_ids).tolist()
    [[1, 2]]

    References:
        [Jegou et al., 2011](https://doi.org/10.1109/TPAMI.2010.57), section
        IV, without the product quantiser.
    """

    def __init__(
        self,
        embeddings,
        partitions: dict[str, np.ndarray],
        *,
        num_partitions: int,
        num_probed: int,
        quantize: str = "none",
    ):
        super().__init__(trainable=False, dtype="float32")
        self.num_blocks, self.embedding_dim = embeddings.shape
        self.num_partitions = num_partitions
        self.num_probed = num_probed
        self.rows = RowTable(
            embeddings, quantize=quantize, order=partitions["block_ids"]
        )
        # A namespace, so that a SavedModel does not take it along.
        self._eager = types.SimpleNamespace(search=None)
        with keras.name_scope(self.name):
            for name in _STATE:
                array = np.asarray(partitions[name])
                setattr(self, name, fixed_weight(array, name))
        self.built = True

    OPTIONS = ("num_partitions", "num_probed")

    @classmethod
    def resolve(cls, num_blocks, *, num_partitions=None, num_probed=None):
        """Numbers of partitions to make and to search, with defaults filled in.

        Args:
            num_blocks: int.
            num_partitions: int, or `None`: four times the square root of
                `num_blocks`, at most all.
            num_probed: int, or `None`: 48, at most all.

        Returns:
            dict, `num_partitions` and `num_probed`.

        Raises:
            InputError: if one of them is out of its range.

        Example:

        >>> Ivf.resolve(1_000_000)
        {'num_partitions': 4000, 'num_probed': 48}
        """
        if num_partitions is None:
            num_partitions = round(_PARTITIONS_PER_ROOT * math.sqrt(num_blocks))
            num_partitions = min(num_partitions, num_blocks)
        if num_probed is None:
            num_probed = min(NUM_PROBED, num_partitions)
        numbers = {"num_partitions": num_partitions, "num_probed": num_probed}
        limits = (num_blocks, num_partitions)
        for (name, number), limit in zip(numbers.items(), limits, strict=True):
            if not 1 <= number <= limit:
                raise InputError(
                    f"`{name}` must be between 1 and {limit}. "
                    f"Received: {name}={number}"
                )
        return numbers

    @classmethod
    def build(cls, embeddings, *, quantize="none", **parameters):
        """Partitions embeddings and makes an index of them.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
            quantize: str. Of `Ivf`. Defaults to `"none"`.
            **parameters: of `resolve`.

        Returns:
            `Ivf`.

        Raises:
            InputError: if an argument is out of its range.
        """
        numbers = cls.resolve(len(embeddings), **parameters)
        partitions = partition(
            embeddings, num_partitions=numbers["num_partitions"]
        )
        return cls(embeddings, partitions, quantize=quantize, **numbers)

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        return cls(
            files.embeddings,
            files.state(_STATE),
            num_partitions=files.parameters["num_partitions"],
            num_probed=files.parameters["num_probed"],
            quantize=quantize,
        )

    @property
    def is_exact(self):
        return (
            self.num_probed == self.num_partitions
            and self.rows.quantize == "none"
        )

    @property
    def num_scored(self) -> int:
        """Rows that are scored for each query."""
        share = self.num_blocks * self.num_probed
        return math.ceil(share / self.num_partitions)

    def state(self) -> dict:
        """The arrays of `partition` by name."""
        return {name: np.asarray(getattr(self, name)) for name in _STATE}

    def prepare(self, embeddings):
        """As `Index.prepare`; partitions are made here."""
        self._check_swap(embeddings)
        partitions = partition(embeddings, num_partitions=self.num_partitions)

        def swap():
            self.rows.assign(embeddings, partitions["block_ids"])
            for name in _STATE:
                getattr(self, name).assign(partitions[name])

        return swap

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def search(self, queries, num_candidates, allowed=None):
        self._check_num_candidates(num_candidates)
        queries = ops.cast(queries, "float32")
        if allowed is not None:
            with float32_products():
                return self._search_all(queries, num_candidates, allowed)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            if tf.executing_eagerly():
                # Op by op, a query would take ten times as long.
                self._eager.search = self._eager.search or tf.function(
                    self._search, reduce_retracing=True
                )
                return self._eager.search(queries, num_candidates)
        with float32_products():
            return self._search(queries, num_candidates)

    def _search(self, queries, num_candidates):
        num_rows = max(self.num_scored, num_candidates)
        rows = self.rows.read()
        sizes = ops.convert_to_tensor(self.sizes)
        block_ids = ops.convert_to_tensor(self.block_ids)
        starts = ops.cumsum(sizes) - sizes

        def search_one(element):
            query, order = element
            places = _places(
                ops.take(starts, order), ops.take(sizes, order), num_rows
            )
            return _best(
                rows.score_places(query, places),
                ops.take(block_ids, places),
                num_candidates,
            )

        centroids = ops.convert_to_tensor(self.centroids)
        products = ops.einsum("bd,pd->bp", queries, centroids)
        # (b, p): the best partitions first.
        _, order = ops.top_k(products, centroids.shape[0])
        elements = queries, order
        # On JAX one by one, on TensorFlow at most ten at once.
        return ops.map(search_one, elements)

    def _search_all(self, queries, num_candidates, allowed):
        """Partitions tell nothing of where those are that are allowed."""
        block_ids = ops.convert_to_tensor(self.block_ids)
        scores, places = best_rows(
            queries,
            self.rows.read(),
            num_candidates,
            rows_at_once=ROWS_AT_ONCE,
            allowed=ops.take(allowed, block_ids, axis=1),
        )
        return scores, ops.take(block_ids, places)


def _places(starts, sizes, num_rows):
    """Where the first rows of partitions in some order are kept.

    Args:
        starts, sizes: int32 tensors `(num_partitions,)`, in this order.
        num_rows: int.

    Returns:
        int32 tensor `(num_rows,)`.
    """
    # (p,): laid one after the other, the partitions end here, and their rows
    # are kept so far from where they are laid.
    ends = ops.cumsum(sizes)
    distances = starts - (ends - sizes)
    positions = ops.arange(num_rows, dtype="int32")
    # Right: an empty partition ends where the one before it does.
    ranks = ops.searchsorted(ends, positions, side="right")
    return positions + ops.take(distances, ranks)


def _best(scores, block_ids, num_candidates):
    """The best rows `(num_rows,)`; of equal scores the smaller id first.

    `top_k` prefers the earlier place, which is of no meaning here.
    """
    least = ops.top_k(scores, num_candidates)[0][-1]
    # Rows better than the last one are in; equal ones are in by their ids.
    keys = ops.where(scores > least, _INT32.max, -block_ids)
    keys = ops.where(scores < least, _INT32.min, keys)
    _, places = ops.top_k(keys, num_candidates)
    _, by_id = ops.top_k(-ops.take(block_ids, places), num_candidates)
    places = ops.take(places, by_id)
    scores, by_score = ops.top_k(ops.take(scores, places), num_candidates)
    return scores, ops.take(block_ids, ops.take(places, by_score))


# k-means (our choice): rows to a partition in its sample, and iterations.
_SAMPLE_PER_PARTITION = 64
_NUM_ITERATIONS = 10
# Rows in memory at once, beside the sample.
_ROWS_PER_PART = 16_384


def partition(
    embeddings,
    *,
    num_partitions: int,
) -> dict[str, np.ndarray]:
    """Partitions blocks by the direction of their embeddings.

    k-means on rows scaled to length 1: for the largest products, rows of one
    direction go together. Unscaled, or with the norm as a further
    dimension, fewer of the best were found, and one partition got up to 60
    times the mean size, of rows of varied norms. It learns from a sample of
    64 rows a partition; then every block goes to the nearest centroid. The
    centroid that is kept is the mean of a partition's rows as they are: its
    product with a query is the mean of the blocks' scores, which ordered
    partitions better than directions did where norms vary.

    The same rows give the same partitions. Rows are read in parts; the sample
    is in memory.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`; it may be
            mapped from a file.
        num_partitions: int. At most `num_blocks`.

    Returns:
        dict of arrays:

        - `centroids`, float32 `(num_partitions, embedding_dim)`: the mean
          embedding of each partition; zeros for an empty one.
        - `sizes`, int32 `(num_partitions,)`: how many blocks each has.
        - `block_ids`, int32 `(num_blocks,)`: those of the first partition,
          then of the second and so on; ascending in each.
    """
    centroids = _train(embeddings, num_partitions)
    with Progress("index", "blocks", len(embeddings)) as progress:
        labels = _nearest(embeddings, centroids, progress.add)
    sizes = np.bincount(labels, minlength=num_partitions)
    return {
        "centroids": _means(embeddings, labels, num_partitions),
        "sizes": sizes.astype("int32"),
        # Stable: ids rise within a partition.
        "block_ids": np.argsort(labels, kind="stable").astype("int32"),
    }


def _train(embeddings, num_partitions):
    """Centroids `(num_partitions, embedding_dim)` of scaled rows."""
    random = np.random.default_rng(0)
    num_sampled = min(len(embeddings), _SAMPLE_PER_PARTITION * num_partitions)
    order = random.permutation(len(embeddings))[:num_sampled]
    # In the order of the file, and the first centroids drawn from these.
    sample = _scaled(np.asarray(embeddings[np.sort(order)], "float32"))
    centroids = sample[random.permutation(num_sampled)[:num_partitions]]
    for _ in range(_NUM_ITERATIONS):
        labels = _nearest(sample, centroids)
        means = _means(sample, labels, num_partitions)
        # Equal rows leave partitions empty, which stay where they are.
        is_empty = np.bincount(labels, minlength=num_partitions) == 0
        centroids = np.where(is_empty[:, None], centroids, means)
    return centroids


def _scaled(rows):
    """Rows of length 1; zeros stay."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def _blocks_of_rows(embeddings):
    """Yields (slice, float32 rows) from the first row to the last."""
    for first in range(0, len(embeddings), _ROWS_PER_PART):
        part = slice(first, first + _ROWS_PER_PART)
        yield part, np.asarray(embeddings[part], "float32")


def _nearest(embeddings, centroids, after_rows=lambda num_rows: None):
    """The nearest centroid of each row, int64 `(num_blocks,)`."""
    labels = np.empty(len(embeddings), "int64")
    # |x - c|^2 is smallest where x c - |c|^2 / 2 is largest.
    halves = (centroids**2).sum(axis=1) / 2
    for part, rows in _blocks_of_rows(embeddings):
        products = _scaled(rows) @ centroids.T
        products -= halves
        labels[part] = products.argmax(axis=1)
        after_rows(len(rows))
    return labels


def _means(embeddings, labels, num_partitions):
    """Mean rows of partitions, float32 `(num_partitions, embedding_dim)`."""
    sums = np.zeros((num_partitions, embeddings.shape[1]))
    for part, rows in _blocks_of_rows(embeddings):
        order = np.argsort(labels[part], kind="stable")
        names, firsts = np.unique(labels[part][order], return_index=True)
        sums[names] += np.add.reduceat(
            rows[order], firsts, axis=0, dtype="float64"
        )
    counts = np.bincount(labels, minlength=num_partitions)
    return (sums / np.maximum(counts, 1)[:, None]).astype("float32")
