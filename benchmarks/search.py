"""Kinds of search over the same embeddings: what they find, and how fast.

    python benchmarks/search.py --num-blocks 50000

Embeddings are drawn around so many centres, queries around the same; or the
rows of an .npy file, queries being some of them, each left out of its own
result. Each kind is built and searched in a compiled graph, one after the
other: recall of the best `--num-neighbors` is against exact search on the host,
milliseconds are medians, megabytes those of the arrays that the index holds.

Times are of one run and to be compared within it. `brute_force` is exact.
"""

import functools
import json
import os
import statistics
import time
import typing

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tyro

from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.ivf import Ivf
from realm_tf.retrieval.scann import Scann

Kind = typing.Literal[
    "brute_force", "brute_force_int8", "ivf", "ivf_int8", "scann"
]
BATCH_SIZES = (1, 32)
ROWS_PER_BLOCK = 65_536


def main(
    *,
    num_blocks: int = 50_000,
    embedding_dim: int = 128,
    num_clusters: int = 1_000,
    embeddings: str | None = None,
    num_neighbors: int = 5,
    num_queries: int = 256,
    num_runs: int = 30,
    num_partitions: int | None = None,
    num_probed: int | None = None,
    seed: int = 0,
    kinds: tuple[Kind, ...] = typing.get_args(Kind),
):
    """Measures each kind over drawn embeddings, or those of an .npy file."""
    random = np.random.default_rng(seed)
    if embeddings:
        rows, queries, own = load(embeddings, num_queries, random)
    else:
        rows, queries, own = draw(
            num_blocks, num_queries, num_clusters, embedding_dim, random
        )
    truth = neighbors(BruteForce(rows).search, queries, own, num_neighbors)
    build = functools.partial(
        _build, num_partitions=num_partitions, num_probed=num_probed
    )
    return {
        "num_blocks": len(rows),
        "embedding_dim": rows.shape[1],
        "cpus": os.cpu_count(),
        "kinds": {
            kind: measure(
                functools.partial(build, kind),
                *(rows, queries, own, truth, num_runs),
            )
            for kind in kinds
        },
    }


def draw(num_blocks, num_queries, num_clusters, embedding_dim, random):
    """Embeddings, queries, and no query's own row."""
    centres = random.standard_normal((num_clusters, embedding_dim))

    def around(num_rows):
        rows = centres[random.integers(0, num_clusters, num_rows)]
        rows += random.standard_normal(rows.shape)
        return rows.astype("float32")

    return around(num_blocks), around(num_queries), None


def load(path, num_queries, random):
    """Embeddings of a file, some of them as queries, and which these are."""
    embeddings = np.load(path).astype("float32")
    own = random.permutation(len(embeddings))[:num_queries]
    return embeddings, embeddings[own], own


def neighbors(search, queries, own, num_neighbors):
    """Ids of the best blocks of each query, as sets."""
    is_drawn = own is None
    found = np.asarray(search(queries, num_neighbors + (not is_drawn))[1])
    if is_drawn:
        return [set(row) for row in found.tolist()]
    return [
        set([each for each in row if each != itself][:num_neighbors])
        for row, itself in zip(found.tolist(), own.tolist(), strict=True)
    ]


def _build(kind, embeddings, *, num_partitions, num_probed):
    if kind == "scann":
        return Scann.build(embeddings)
    if kind == "brute_force":
        return BruteForce(embeddings, rows_per_block=ROWS_PER_BLOCK)
    if kind == "brute_force_int8":
        return BruteForce(embeddings, quantize="int8")
    return Ivf.build(
        embeddings,
        num_partitions=num_partitions,
        num_probed=num_probed,
        quantize="int8" if kind == "ivf_int8" else "none",
    )


def measure(build, embeddings, queries, own, truth, num_runs):
    """Numbers of one kind of index, by name."""
    started = time.perf_counter()
    index = build(embeddings)
    build_seconds = time.perf_counter() - started
    search = tf.function(index.search, reduce_retracing=True)
    found = neighbors(search, queries, own, len(truth[0]))
    recall = statistics.mean(
        len(one & true) / len(true)
        for one, true in zip(found, truth, strict=True)
    )
    result = {
        "build_seconds": round(build_seconds, 2),
        "megabytes": round(_num_bytes(index) / 1e6, 1),
        f"recall@{len(truth[0])}": round(recall, 4),
    }
    for batch_size in BATCH_SIZES:
        result[f"milliseconds_of_{batch_size}"] = _milliseconds(
            search, queries, batch_size, num_runs, len(truth[0])
        )
    return {**result, **_ivf_numbers(index)}


def _ivf_numbers(index):
    if not isinstance(index, Ivf):
        return {}
    names = ("num_partitions", "num_probed", "num_scored")
    return {name: getattr(index, name) for name in names}


def _num_bytes(index):
    arrays = (
        index.state().values()
        if isinstance(index, Scann)
        else [np.asarray(variable) for variable in index.variables]
    )
    return sum(array.nbytes for array in arrays)


def _milliseconds(search, queries, batch_size, num_runs, num_neighbors):
    seconds = []
    for number in range(num_runs + 1):
        first = number * batch_size % (len(queries) - batch_size + 1)
        batch = tf.constant(queries[first : first + batch_size])
        started = time.perf_counter()
        search(batch, num_neighbors)[0].numpy()
        seconds.append(time.perf_counter() - started)
    # The first traces.
    return round(1000 * statistics.median(seconds[1:]), 2)


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
