"""Seconds, memory, disk and recall of `realm index`.

    python benchmarks/index_building.py --embeddings DIR --output DIR

The rows of `realm embed` are repeated to the given number, with noise of 0.3 of
their standard deviation. `--embedding-dim` projects them on the first principal
axes. `realm index` runs in a process of its own for each kind. Memory is the
most that the process had of its own (RssAnon); the file of the rows, which it
maps, is not counted.
"""

import json
import pathlib
import sys
import time

import drawn
import load
import numpy as np
import tyro
import workers

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index

_NOISE = 0.3
_SECONDS_BETWEEN_LOOKS = 0.05
_KINDS = ("brute_force", "ivf", "scann")


def main(
    *,
    embeddings: str,
    output: str,
    num_blocks: int = 1_000_000,
    embedding_dim: int | None = None,
    num_parts: int = 3,
):
    """Writes rows below `output` and builds an index of each kind.

    Args:
        num_parts: of a further `scann` index.
    """
    known = Embeddings(embeddings).read()
    if embedding_dim is not None:
        _, axes = np.linalg.eigh(np.cov(known.T))
        known = (known @ axes[:, ::-1][:, :embedding_dim]).astype("float32")
    root = pathlib.Path(output, f"{num_blocks}-{known.shape[1]}")
    if not artifact.is_complete(root / "rows"):
        # No model reads such an index.
        parents = {"block_tower": "", "blocks": ""}
        rows = _rows(known, num_blocks)
        drawn.write_embeddings(str(root / "rows"), rows, parents)
    builds = {kind: ("--kind", kind) for kind in _KINDS}
    in_parts = f"scann --num-parts {num_parts}"
    builds[in_parts] = *builds["scann"], "--num-parts", str(num_parts)
    for name, options in builds.items():
        built = str(root / name.replace(" ", ""))
        options += "--embeddings", str(root / "rows"), "--output", built
        found = {"kind": name, **_build(options, built)}
        print(json.dumps(found), flush=True)


def _rows(known, num_blocks):
    random = np.random.default_rng(0)
    noise = np.float32(_NOISE * known.std())
    first = 0
    for size in drawn.row_counts(num_blocks):
        rows = known[np.arange(first, first + size) % len(known)]
        yield rows + noise * random.standard_normal(rows.shape, "float32")
        first += size


def _build(options, output):
    started = time.perf_counter()
    process = workers.start("index", *options)
    most = 0.0
    while process.poll() is None:
        most = max(most, load.own_megabytes(process.pid))
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        sys.exit(process.returncode)
    seconds = time.perf_counter() - started
    index = Index(output)
    return {
        "seconds": round(seconds),
        "gigabytes": round(most / 1e3, 1),
        "bytes_a_block": round(1e6 * most / index.num_blocks),
        "recall@5": index.metadata["recall@5"],
    }


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
