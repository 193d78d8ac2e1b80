"""What the tables of all pages decide: duplicates, and the rows of each shard."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from realm_tf.artifacts import record_files
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import sources
from realm_tf.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockShard(resumable.Shard):
    """The contents of one output shard; rows are block ids.

    Args:
        runs: tuple of (part, first row, row after the last): rows of parts, in
            the order of the shard.
    """

    runs: tuple[tuple[tuple[int, int], int, int], ...]


def is_first(pages: np.ndarray, paths: Sequence[str]) -> np.ndarray:
    """Which pages are the first of those with their id.

    Args:
        pages: array `(num_pages,)` of `parts.PAGES`, in their order.
        paths: sequence of str. Those of the files, for the error.

    Returns:
        bool array `(num_pages,)`.

    Raises:
        InputError: if two pages have one id and different texts.
    """
    # Keeps the order of equal ids.
    order = np.lexsort((pages["id_low"], pages["id_high"]))
    ids = pages[["id_high", "id_low"]][order]
    is_new = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    firsts = order[np.maximum.accumulate(np.arange(len(ids)) * is_new)]
    differs = pages["text"][order] != pages["text"][firsts]
    if differs.any():
        place = np.flatnonzero(differs)[order[differs].argmin()]
        first, second = (
            f"page {page['number']} of {paths[page['file']]}"
            for page in (pages[firsts[place]], pages[order[place]])
        )
        raise InputError(
            f"{first} and {second} have one article id and different texts: "
            "give every article its own id or leave one of the files out."
        )
    kept = np.zeros(len(pages), "bool")
    kept[order[is_new]] = True
    return kept


def plan_shards(
    pages: np.ndarray,
    is_kept: np.ndarray,
    *,
    output: str,
    blocks_per_shard: int,
) -> list[BlockShard]:
    """Divides all kept blocks, in their order, into shards of equal size.

    Args:
        pages: array `(num_pages,)` of `parts.PAGES`, in their order.
        is_kept: bool array `(num_pages,)`.
        output: str. What the paths of shards begin with.
        blocks_per_shard: int. At most.
    """
    parts = np.stack(
        [pages["file"], (pages["number"] - 1) // sources.PAGES_PER_PART]
    )
    rows = np.cumsum(pages["blocks"], dtype="int64") - pages["blocks"]
    # Of each page, the row in its part.
    rows -= np.maximum.accumulate(np.where(_changes(parts), rows, 0))
    parts, rows, counts = (
        each[..., is_kept] for each in (parts, rows, pages["blocks"])
    )
    limits = np.cumsum(counts, dtype="int64")
    starts = limits - counts
    total = int(counts.sum(dtype="int64"))
    num_shards = -(-total // blocks_per_shard)
    return [
        BlockShard(
            **vars(shard),
            runs=_runs(shard, parts, rows, starts, limits),
        )
        for shard in resumable.plan_shards(
            output,
            record_files.ENDING,
            [total * n // max(1, num_shards) for n in range(num_shards + 1)],
        )
    ]


def _changes(parts):
    """Which pages are the first of their part."""
    changes = (parts[:, 1:] != parts[:, :-1]).any(axis=0)
    return np.append(True, changes)[: parts.shape[1]]


def _runs(shard, parts, rows, starts, limits):
    """The rows that a shard takes; those that follow each other are one run."""
    inside = slice(
        np.searchsorted(limits, shard.start, "right"),
        np.searchsorted(starts, shard.limit, "left"),
    )
    parts, rows, starts, limits = (
        each[..., inside] for each in (parts, rows, starts, limits)
    )
    lows = rows + np.maximum(shard.start - starts, 0)
    highs = rows + np.minimum(limits, shard.limit) - starts
    is_new = _changes(parts)
    is_new[1:] |= lows[1:] != highs[:-1]
    firsts = np.flatnonzero(is_new)
    lasts = np.append(firsts[1:], len(rows)) - 1
    return tuple(
        zip(
            map(tuple, parts[:, firsts].T.tolist()),
            lows[firsts].tolist(),
            highs[lasts].tolist(),
            strict=True,
        )
    )
