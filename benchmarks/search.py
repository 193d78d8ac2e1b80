"""Kinds of search over the same embeddings: what they find, and how fast.

    python benchmarks/search.py --num-blocks 50000

Embeddings and queries are drawn around the same 1,000 centres. Each kind is
built and searched in a compiled graph, one after the other: recall of the best
five is against exact search on the host, milliseconds are medians, megabytes
those of the arrays that the index holds.

Times are of one run and to be compared within it. `brute_force` is exact.
"""

import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tyro

from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.ivf import Ivf
from realm_tf.retrieval.scann import Scann

_BUILDERS = {
    "brute_force": lambda rows: BruteForce(rows, rows_per_block=ROWS_PER_BLOCK),
    "ivf": Ivf.build,
    "scann": Scann.build,
}
_NUM_CLUSTERS = 1_000
_EMBEDDING_DIM = 128
_NUM_NEIGHBORS = 5
BATCH_SIZES = (1, 32)
ROWS_PER_BLOCK = 65_536


def main(
    *,
    num_blocks: int = 50_000,
    num_queries: int = 256,
    num_runs: int = 30,
):
    """Measures each kind over drawn embeddings."""
    rows, queries = _draw(num_blocks, num_queries)
    truth = _neighbors(BruteForce(rows).search, queries)
    return {
        "num_blocks": num_blocks,
        "embedding_dim": _EMBEDDING_DIM,
        "cpus": os.cpu_count(),
        "kinds": {
            kind: _measure(build, rows, queries, truth, num_runs)
            for kind, build in _BUILDERS.items()
        },
    }


def _draw(num_blocks, num_queries):
    """Embeddings and queries."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((_NUM_CLUSTERS, _EMBEDDING_DIM))

    def around(num_rows):
        rows = centres[random.integers(0, _NUM_CLUSTERS, num_rows)]
        rows += random.standard_normal(rows.shape)
        return rows.astype("float32")

    return around(num_blocks), around(num_queries)


def _neighbors(search, queries):
    """Ids of the best blocks of each query, as sets."""
    found = np.asarray(search(queries, _NUM_NEIGHBORS)[1])
    return [set(row) for row in found.tolist()]


def _measure(build, embeddings, queries, truth, num_runs):
    """Numbers of one kind of index, by name."""
    started = time.perf_counter()
    index = build(embeddings)
    build_seconds = time.perf_counter() - started
    search = tf.function(index.search, reduce_retracing=True)
    recall = statistics.mean(
        len(one & true) / _NUM_NEIGHBORS
        for one, true in zip(_neighbors(search, queries), truth, strict=True)
    )
    result = {
        "build_seconds": round(build_seconds, 2),
        "megabytes": round(_num_bytes(index) / 1e6, 1),
        f"recall@{_NUM_NEIGHBORS}": round(recall, 4),
    }
    for batch_size in BATCH_SIZES:
        result[f"milliseconds_of_{batch_size}"] = _milliseconds(
            search, queries, batch_size, num_runs
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


def _milliseconds(search, queries, batch_size, num_runs):
    seconds = []
    for number in range(num_runs + 1):
        first = number * batch_size % (len(queries) - batch_size + 1)
        batch = tf.constant(queries[first : first + batch_size])
        started = time.perf_counter()
        search(batch, _NUM_NEIGHBORS)[0].numpy()
        seconds.append(time.perf_counter() - started)
    # The first traces.
    return round(1000 * statistics.median(seconds[1:]), 2)


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
