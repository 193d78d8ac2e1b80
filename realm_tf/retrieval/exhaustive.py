"""Scoring every row of a table, and keeping the best."""

import numpy as np
from keras import ops


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
            all.
        allowed: bool tensor `(batch_size, num_rows)`, or of one line for all
            queries. Which rows may be found. Defaults to `None`: all.

    Returns:
        `(scores, places)`, float32 and int32 tensors `(batch_size,
        num_candidates)`; of equal scores the earlier row first. Where fewer
        rows are allowed, the last scores are -inf.
    """
    num_rows = rows.values.shape[0]
    size = min(rows_at_once or num_rows, num_rows)
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
        scores, places = ops.top_k(scores, min(num_candidates, size))
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
    if size == num_rows:
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
