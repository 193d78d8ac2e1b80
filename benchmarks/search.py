"""Kinds of search over the same embeddings: what they find, and how fast.

    python benchmarks/search.py --num-blocks 50000

Embeddings are drawn around so many centres, queries around the same; or the
rows of an .npy file, queries being some of them, each left out of its own
result. Each kind is built and searched in a compiled graph, one after the
other: recall@5 is against exact search on the host, milliseconds are medians,
megabytes those of the arrays that the index holds.

Times are of one run and to be compared within it. `brute_force` is exact.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.brute_force import QuantizedBruteForce
from realm_tf.retrieval.ivf import Ivf
from realm_tf.retrieval.numpy_index import NumpyIndex
from realm_tf.retrieval.scann import Scann

NUM_NEIGHBORS = 5
BATCH_SIZES = (1, 32)
ROWS_PER_BLOCK = 65_536


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--num-blocks", type=int, default=50_000)
    parser.add_argument("--embedding-dim", type=int, default=128)
    parser.add_argument("--num-clusters", type=int, default=1_000)
    parser.add_argument("--embeddings", help="an .npy file, instead of these")
    parser.add_argument("--num-queries", type=int, default=256)
    parser.add_argument("--num-runs", type=int, default=30)
    parser.add_argument("--num-partitions", type=int, help="of ivf")
    parser.add_argument("--num-probed", type=int, help="of ivf")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    args = parser.parse_args()
    embeddings, queries, own = load(args) if args.embeddings else draw(args)
    truth = neighbors(NumpyIndex(embeddings).search, queries, own)
    print(
        json.dumps(
            {
                "num_blocks": len(embeddings),
                "embedding_dim": embeddings.shape[1],
                "cpus": os.cpu_count(),
                "kinds": {
                    kind: measure(kind, embeddings, queries, own, truth, args)
                    for kind in args.kinds
                },
            },
            indent=2,
        )
    )


def draw(args):
    """Embeddings, queries, and no query's own row."""
    random = np.random.default_rng(args.seed)
    centres = random.standard_normal((args.num_clusters, args.embedding_dim))

    def around(num_rows):
        rows = centres[random.integers(0, args.num_clusters, num_rows)]
        rows += random.standard_normal(rows.shape)
        return rows.astype("float32")

    return around(args.num_blocks), around(args.num_queries), None


def load(args):
    """Embeddings of a file, some of them as queries, and which these are."""
    embeddings = np.load(args.embeddings).astype("float32")
    random = np.random.default_rng(args.seed)
    own = random.permutation(len(embeddings))[: args.num_queries]
    return embeddings, embeddings[own], own


def neighbors(search, queries, own):
    """Ids of the best blocks of each query, as sets."""
    is_drawn = own is None
    found = np.asarray(search(queries, NUM_NEIGHBORS + (not is_drawn))[1])
    if is_drawn:
        return [set(row) for row in found.tolist()]
    return [
        set([each for each in row if each != itself][:NUM_NEIGHBORS])
        for row, itself in zip(found.tolist(), own.tolist(), strict=True)
    ]


def _build_brute_force(embeddings, args):
    return BruteForce(embeddings, rows_per_block=ROWS_PER_BLOCK)


def _build_brute_force_int8(embeddings, args):
    return QuantizedBruteForce(embeddings, quantize="int8")


def _build_ivf(embeddings, args, quantize="none"):
    return Ivf.build(
        embeddings,
        num_partitions=args.num_partitions,
        num_probed=args.num_probed,
        quantize=quantize,
    )


def _build_ivf_int8(embeddings, args):
    return _build_ivf(embeddings, args, "int8")


def _build_scann(embeddings, args):
    return Scann.build(embeddings)


KINDS = {
    "brute_force": _build_brute_force,
    "brute_force_int8": _build_brute_force_int8,
    "ivf": _build_ivf,
    "ivf_int8": _build_ivf_int8,
    "scann": _build_scann,
}


def measure(kind, embeddings, queries, own, truth, args):
    """Numbers of one kind of index, by name."""
    started = time.perf_counter()
    index = KINDS[kind](embeddings, args)
    build_seconds = time.perf_counter() - started
    search = tf.function(index.search, reduce_retracing=True)
    found = neighbors(search, queries, own)
    recall = statistics.mean(
        len(one & true) / NUM_NEIGHBORS
        for one, true in zip(found, truth, strict=True)
    )
    result = {
        "build_seconds": round(build_seconds, 2),
        "megabytes": round(_num_bytes(index) / 1e6, 1),
        "recall@5": round(recall, 4),
    }
    for batch_size in BATCH_SIZES:
        result[f"milliseconds_of_{batch_size}"] = _milliseconds(
            search, queries, batch_size, args.num_runs
        )
    if isinstance(index, Scann):
        index.close()
    else:
        result.update(_ivf_numbers(index))
    return result


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
        search(batch, NUM_NEIGHBORS)[0].numpy()
        seconds.append(time.perf_counter() - started)
    # The first traces.
    return round(1000 * statistics.median(seconds[1:]), 2)


if __name__ == "__main__":
    main()
