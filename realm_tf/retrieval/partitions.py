"""Partitions of block embeddings that point the same way, by k-means."""

import dataclasses
import math

import numpy as np

from realm_tf.errors import InputError
from realm_tf.progress import Progress

# k-means (our choice): rows to a partition in its sample, and iterations.
_SAMPLE_PER_PARTITION = 64
_NUM_ITERATIONS = 10
# A partition of more than so many times the mean size is cut.
_MOST_TO_MEAN = 2
# Rows in memory at once, beside the sample.
_ROWS_AT_ONCE = 16_384


@dataclasses.dataclass(frozen=True)
class Partitions:
    """Which blocks lie together, and where.

    `capacity`, which the number of blocks and the number of partitions asked
    for decide alone, counts partitions that may be empty.

    Args:
        centroids: float32 array `(capacity, embedding_dim)`. Mean embedding
            of each partition; zeros for an empty one.
        sizes: int32 array `(capacity,)`. Blocks in each.
        block_ids: int32 array `(num_blocks,)`. Those of the first partition,
            then of the second and so on; rising in each.
    """

    centroids: np.ndarray
    sizes: np.ndarray
    block_ids: np.ndarray

    def hold_once(self, shape: tuple[int, int]) -> bool:
        """Whether these hold every row of embeddings of this shape once."""
        num_blocks, embedding_dim = shape
        return (
            self.centroids.shape == (*self.sizes.shape, embedding_dim)
            and self.sizes.ndim == self.block_ids.ndim == 1
            and self.sizes.min(initial=0) >= 0
            and self.sizes.sum() == num_blocks
            and np.array_equal(np.sort(self.block_ids), np.arange(num_blocks))
        )


def partition(
    embeddings,
    *,
    num_partitions: int,
) -> Partitions:
    """Partitions blocks by the direction of their embeddings.

    k-means on rows scaled to length 1: for the largest products, rows of one
    direction go together. Unscaled, or with the norm as a further
    dimension, fewer of the best were found, and one partition got up to 60
    times the mean size, of rows of varied norms. It learns from a sample of
    64 rows a partition; then every block goes to the nearest centroid. A
    partition of more than twice the mean size is cut, across its principal
    axis, into as few equal parts as are not larger; these are at most half as
    many more as partitions were asked for. What is kept as a centroid is the
    mean of a partition's rows as they are: its product with a query is the
    mean of the blocks' scores, which ordered partitions better than
    directions did where norms vary.

    The same rows give the same partitions. Rows are read in parts; the
    sample, and one partition while it is cut, are in memory.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`; it may be
            mapped from a file.
        num_partitions: int. At most `num_blocks`.

    Returns:
        `Partitions`, with a capacity of 1.5 times `num_partitions`.

    Raises:
        InputError: if an embedding is not finite.
    """
    centroids = _train(embeddings, num_partitions)
    with Progress("index", "blocks", len(embeddings)) as progress:
        labels = _nearest(embeddings, centroids, progress.add)
    num_centroids = capacity(num_partitions)
    _cut_large(embeddings, labels, num_partitions)
    return Partitions(
        _means(embeddings, labels, num_centroids),
        np.bincount(labels, minlength=num_centroids).astype("int32"),
        # Stable: ids rise within a partition.
        np.argsort(labels, kind="stable").astype("int32"),
    )


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
    if not np.isfinite(norms).all():
        raise InputError(
            "The embeddings hold values that are not finite, which cannot be "
            "ordered: look at the model, then run `realm embed` again."
        )
    return rows / np.where(norms > 0, norms, 1)


def _blocks_of_rows(embeddings):
    """Yields (slice, float32 rows) from the first row to the last."""
    for first in range(0, len(embeddings), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
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


def _cut_large(embeddings, labels, num_partitions):
    """Cuts, in place, partitions of more than `_MOST_TO_MEAN` times the mean.

    With s the size of one and m the most that is allowed, ceil(s / m) parts
    of equal size; over all, at most n / m more than there were, which is
    `num_partitions / _MOST_TO_MEAN`.
    """
    most = math.ceil(_MOST_TO_MEAN * len(labels) / num_partitions)
    free = num_partitions
    sizes = np.bincount(labels, minlength=num_partitions)
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.cumsum(sizes)[:-1]):
        if len(members) <= most:
            continue
        along = _along_principal_axis(embeddings, members)
        # Stable: of rows that are equal the smaller ids come first.
        members = members[np.argsort(along, kind="stable")]
        parts = np.array_split(members, math.ceil(len(members) / most))
        for part in parts[1:]:
            labels[part] = free
            free += 1


def _along_principal_axis(embeddings, members):
    """Where rows are along the axis on which they differ most."""
    rows = np.asarray(embeddings[members], "float32")
    rows = rows - rows.mean(axis=0)
    _, axes = np.linalg.eigh(rows.T @ rows)
    return rows @ axes[:, -1]


def capacity(num_partitions: int) -> int:
    """How many partitions there can be, if so many are asked for."""
    return num_partitions + num_partitions // _MOST_TO_MEAN


def _means(embeddings, labels, capacity):
    """Mean row of each partition, float32 `(capacity, embedding_dim)`."""
    sums = np.zeros((capacity, embeddings.shape[1]))
    for part, rows in _blocks_of_rows(embeddings):
        order = np.argsort(labels[part], kind="stable")
        names, firsts = np.unique(labels[part][order], return_index=True)
        sums[names] += np.add.reduceat(
            rows[order], firsts, axis=0, dtype="float64"
        )
    counts = np.bincount(labels, minlength=capacity)
    return (sums / np.maximum(counts, 1)[:, None]).astype("float32")
