"""Embeddings as a weight, in 8, 16 or 32 bits a value, and their search."""

import dataclasses

import keras
import numpy as np
from keras import ops

from realm_tf.artifacts.array_files import mapped_zeros
from realm_tf.models import row_shards
from realm_tf.models.fixed_weight import fixed_weight

QUANTIZATIONS = ("none", "int8", "bfloat16")
# Rows that are float32 at once, while a search scores them: 32 MiB of 128
# values (our choice).
ROWS_AT_ONCE = 65_536
_BITS = "uint16"
# Of both signs: -128 is left out.
_LARGEST_INT8 = 127


class RowTable(keras.layers.Layer):
    """Rows that are scored against queries, held as they are or smaller.

    With "int8", each row is `scale * values`, values being integers from -127
    to 127 and the scale the row's largest absolute value / 127. Each value is
    then wrong by half a scale at most, and a score by half a scale times the
    sum of the query's absolute values. "bfloat16" keeps 8 significant bits: a
    value is wrong by 2^-8 of itself at most. To the rounding of float32.

    Rows are made float32 as they are scored (see `Rows`), within
    `losses.float32_products`.

    Args:
        embeddings: float array `(num_rows, embedding_dim)`, read in parts; it
            may be mapped from a file.
        quantize: str. `"none"`, `"int8"` or `"bfloat16"`. Defaults to
            `"none"`.
        order: int array `(num_rows,)`. Which embedding each row is. Defaults
            to `None`: the order they are in.
        sharding: of `row_shards.sharding`. Rows are spread over devices; with
            `quantize="none"` only. Defaults to `None`.
    """

    def __init__(
        self, embeddings, *, quantize="none", order=None, sharding=None
    ):
        super().__init__(trainable=False, dtype="float32")
        self.quantize = quantize
        self._sharding = sharding
        values, scales = self._encode(embeddings, order)
        self.scales = None
        with keras.name_scope(self.name):
            self.values = fixed_weight(values, "rows", layout=sharding)
            if scales is not None:
                self.scales = fixed_weight(scales, "scales")
        self.built = True

    def assign(self, embeddings, order=None):
        """Takes new embeddings of the same shape; see the arguments."""
        values, scales = self._encode(embeddings, order)
        self.values.assign(values)
        if scales is not None:
            self.scales.assign(scales)

    def read(self):
        """The rows as tensors: `Rows`."""
        values = ops.convert_to_tensor(self.values)
        if self.quantize == "bfloat16":
            # XLA takes no parts of bfloat16 on CPUs: it would make the whole
            # table float32, once and before the loop.
            values = ops.view(values, _BITS)
        return Rows(
            values,
            None if self.scales is None else ops.convert_to_tensor(self.scales),
        )

    def _encode(self, embeddings, order):
        """The arrays of the weights; `None` where there are no scales."""
        if self.quantize == "none" and order is None:
            # Not a copy where a file is mapped.
            rows = np.asarray(embeddings, "float32")
            if self._sharding is not None:
                rows = row_shards.place(rows, self._sharding)
            return rows, None
        shape = tuple(embeddings.shape)
        # NumPy knows bfloat16 since Keras was imported.
        dtype = "float32" if self.quantize == "none" else self.quantize
        values = mapped_zeros(shape, dtype)
        scales = None
        if self.quantize == "int8":
            scales = np.empty(shape[:1], "float32")
        for first in range(0, shape[0], ROWS_AT_ONCE):
            part = slice(first, min(first + ROWS_AT_ONCE, shape[0]))
            rows = (
                embeddings[part] if order is None else embeddings[order[part]]
            )
            rows = np.asarray(rows, "float32")
            if scales is not None:
                values[part], scales[part] = to_int8(rows)
            else:
                values[part] = rows
        return values, scales


@dataclasses.dataclass(frozen=True)
class Rows:
    """The tensors of a `RowTable`, read once for a search.

    Reading a variable copies it where TensorFlow has set it so, which must
    not happen in a loop.

    Args:
        values: tensor `(num_rows, embedding_dim)`, int8 or float32, or uint16
            for the bits of bfloat16.
        scales: float32 tensor `(num_rows,)`. Defaults to `None`.
    """

    values: object
    scales: object = None

    def score_slice(self, queries, start, size):
        """Scores of consecutive rows.

        Args:
            queries: float32 tensor `(batch_size, embedding_dim)`.
            start: int or int32 scalar tensor. The first row.
            size: int. How many.

        Returns:
            float32 tensor `(batch_size, size)`.
        """
        shape = (size, self.values.shape[1])
        rows = ops.slice(self.values, (start, 0), shape)
        scores = ops.einsum("bd,nd->bn", queries, _float32(rows))
        if self.scales is None:
            return scores
        return scores * ops.slice(self.scales, (start,), (size,))

    def score_places(self, query, places):
        """Scores of rows anywhere, for one query.

        Args:
            query: float32 tensor `(embedding_dim,)`.
            places: int32 tensor `(num_places,)`.

        Returns:
            float32 tensor `(num_places,)`.
        """
        rows = ops.take(self.values, places, axis=0)
        scores = ops.einsum("nd,d->n", _float32(rows), query)
        if self.scales is None:
            return scores
        return scores * ops.take(self.scales, places)


def best_rows(
    queries,
    rows,
    num_candidates,
    *,
    rows_at_once=None,
    allowed=None,
):
    """The rows with the largest products, best first.

    Args:
        queries: float32 tensor `(batch_size, embedding_dim)`.
        rows: `Rows`.
        num_candidates: int. How many of them; all rows if they are fewer.
        rows_at_once: int. How many are scored at once. Defaults to `None`:
            all, as in a graph for any number of rows, at least
            `num_candidates`.
        allowed: bool tensor `(batch_size, num_rows)`, or of one line for all
            queries. Which rows may be found. Defaults to `None`: all.

    Returns:
        `(scores, places)`, float32 and int32 tensors `(batch_size,
        num_candidates)`; of equal scores the earlier row first. Where fewer
        rows are allowed, the last scores are -inf.
    """
    num_rows = rows.values.shape[0]
    at_once = num_rows is None or num_rows <= (rows_at_once or num_rows)
    if at_once:
        # A tensor where a graph is for any number of rows.
        size = num_rows = ops.shape(rows.values)[0]
    else:
        size = rows_at_once
    if isinstance(num_rows, int):
        num_candidates = min(num_candidates, num_rows)

    def search_slice(start, lowest=None):
        scores = rows.score_slice(queries, start, size)
        if allowed is not None:
            is_allowed = ops.slice(
                allowed, (0, start), (ops.shape(allowed)[0], size)
            )
            scores = ops.where(is_allowed, scores, -np.inf)
        if lowest is not None:
            is_new = start + ops.arange(size, dtype="int32") >= lowest
            scores = ops.where(is_new, scores, -np.inf)
        num = num_candidates if at_once else min(num_candidates, size)
        scores, places = ops.top_k(scores, num)
        return scores, start + ops.cast(places, "int32")

    def step(number, best):
        # A last slice that is not full overlaps the one before it.
        found = search_slice(
            ops.minimum(number * size, num_rows - size),
            number * size if num_rows % size else None,
        )
        scores, places = (
            ops.concatenate(pair, axis=1)
            for pair in zip(best, found, strict=True)
        )
        return largest(scores, places, num_candidates)

    scores, places = search_slice(0)
    if at_once:
        return scores, places
    # Places of those that a slice of fewer rows cannot give.
    missing = [[0, 0], [0, num_candidates - places.shape[1]]]
    best = (
        ops.pad(scores, missing, constant_values=-np.inf),
        ops.pad(places, missing, constant_values=-1),
    )
    return ops.fori_loop(1, -(-num_rows // size), step, best)


def largest(scores, ids, num_candidates):
    """The best candidates; of equal ones those that come first."""
    scores, places = ops.top_k(scores, num_candidates)
    return scores, ops.take_along_axis(ids, places, axis=1)


def to_int8(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as integers and one scale each; see `RowTable`.

    Args:
        rows: float32 array `(num_rows, embedding_dim)`.

    Returns:
        `(values, scales)`: int8 array `(num_rows, embedding_dim)` and float32
        array `(num_rows,)`. A row of zeros has the scale 0.

    Example:

    >>> values, scales = to_int8(np.array([[0.5, -2.54, 0.01]], "float32"))
    >>> values.tolist(), [round(float(scale), 4) for scale in scales]
    ([[25, -127, 0]], [0.02])
    """
    scales = np.abs(rows).max(axis=1) / np.float32(_LARGEST_INT8)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    # Nearest, so that an error is half a scale at most.
    return np.rint(rows / divisors).astype("int8"), scales


def _float32(rows):
    if rows.dtype == _BITS:
        rows = ops.view(rows, "bfloat16")
    return ops.cast(rows, "float32")
