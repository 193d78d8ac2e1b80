"""Exact search on the host, over an array that may be memory-mapped."""

import numpy as np

# Rows that are scored at once: 32 MiB of scores for 512 queries (our choice).
_ROWS_AT_ONCE = 16_384


class NumpyIndex:
    """Search in an array in memory or on the disk, without a backend.

    It searches on the processor whatever the model runs on, and while a
    product is computed, Python's other threads go on. Rows are read block by
    block: neither the array nor all scores need fit into memory.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
            Not copied if it is float32; `np.load(..., mmap_mode="r")` will do.

    Example:

    >>> index = NumpyIndex(np.eye(3))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> block_ids.tolist()
    [[1, 2]]
    """

    def __init__(self, embeddings):
        self._embeddings = np.asarray(embeddings, "float32")
        self.num_blocks = len(self._embeddings)

    def search(self, queries, num_candidates, allowed=None):
        """As `retrieval.index.Index.search`, NumPy arrays."""
        queries = np.asarray(queries, "float32")
        shape = (len(queries), num_candidates)
        best = np.full(shape, -np.inf, "float32"), np.full(shape, -1, "int32")
        for first in range(0, len(self._embeddings), _ROWS_AT_ONCE):
            rows = self._embeddings[first : first + _ROWS_AT_ONCE]
            scores = queries @ rows.T
            if allowed is not None:
                part = np.asarray(allowed)[:, first : first + len(rows)]
                scores = np.where(part, scores, -np.inf)
            _merge(scores, first, *best)
        return best

    def close(self) -> None:
        """As `retrieval.index.Index.close`."""


def _merge(scores, first, best_scores, best_ids):
    """Puts the scores of blocks from `first` on among the best so far."""
    num_rows, num_candidates = scores.shape[1], best_ids.shape[1]
    if not first and num_rows > num_candidates:
        place = num_rows - num_candidates
        least = np.partition(scores, place, axis=1)[:, place, None]
        better = scores >= least
    else:
        # An equal score of a later id is no better.
        better = scores > best_scores[:, -1:]
    # Few, but for the first rows.
    queries, places = np.nonzero(better)
    starts = np.searchsorted(queries, np.arange(len(scores) + 1))
    for query in np.unique(queries):
        found = places[starts[query] : starts[query + 1]]
        values = np.concatenate([best_scores[query], scores[query, found]])
        ids = np.concatenate([best_ids[query], first + found])
        # Stable: of equal scores the smaller id first.
        order = np.argsort(-values, kind="stable")[:num_candidates]
        best_scores[query], best_ids[query] = values[order], ids[order]
