"""What building an index takes: seconds, memory, disk, recall.

    python benchmarks/index_building.py --embeddings DIR --output DIR

As many rows as asked for are those of `realm embed`, again and again, with noise
of 0.3 of their standard deviation; narrower ones are their projections on the
principal axes. For each kind the script runs `realm index`, a process of its own.
Memory is the most that the process had of its own at once (RssAnon); the file of
the rows, which it maps, is not counted.
"""

import json
import os
import pathlib
import sys
import time

import numpy as np
import tyro
import workers

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index

_NOISE = 0.3
_ROWS_PER_SHARD = 50_000
_SECONDS_BETWEEN_LOOKS = 0.05


def main(
    *,
    embeddings: str,
    output: str,
    num_blocks: int = 1_000_000,
    embedding_dim: int | None = None,
    kinds: tuple[str, ...] = ("brute_force", "ivf", "scann"),
    options: tuple[str, ...] = (),
):
    """Writes rows below `output` and builds an index of each kind.

    Args:
        options: more of `realm index`, as `--options=--num-parts=4`.
    """
    known = Embeddings(embeddings).read()
    if embedding_dim is not None:
        _, axes = np.linalg.eigh(np.cov(known.T))
        known = (known @ axes[:, ::-1][:, :embedding_dim]).astype("float32")
    root = pathlib.Path(output)
    rows = root / f"rows-{num_blocks}-{known.shape[1]}"
    if not artifact.is_complete(rows):
        _write(known, num_blocks, str(rows))
    for kind in kinds:
        name = "".join([kind, *options])
        built = root / f"{name}-{num_blocks}-{known.shape[1]}"
        found = _build(str(rows), kind, options, str(built))
        print(json.dumps({"kind": name, **found}), flush=True)


def _write(known, num_blocks, output):
    random = np.random.default_rng(0)
    noise = np.float32(_NOISE * known.std())
    with artifact.write(
        output,
        kind="embeddings",
        parameters={"rows_per_shard": _ROWS_PER_SHARD},
        # No model reads such an index.
        parents={"block_tower": "", "blocks": ""},
    ) as stage:
        names = []
        for first in range(0, num_blocks, _ROWS_PER_SHARD):
            places = np.arange(
                first, min(first + _ROWS_PER_SHARD, num_blocks)
            ) % len(known)
            shape = len(places), known.shape[1]
            names.append(f"embeddings-{first:08d}.npy")
            np.save(
                stage.path(names[-1]),
                known[places]
                + noise * random.standard_normal(shape, "float32"),
            )
        stage.metadata.update(
            num_blocks=num_blocks,
            dtype="float32",
            shards=names,
            fingerprint=fingerprints.fingerprint(str(num_blocks)),
        )


def _build(rows, kind, options, output):
    started = time.perf_counter()
    process = workers.start(
        *("index", "--embeddings", rows, "--kind", kind, "--output", output),
        *options,
    )
    most = 0
    while process.poll() is None:
        most = max(most, _own_bytes(process.pid))
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        sys.exit(process.returncode)
    seconds = time.perf_counter() - started
    index = Index(output)
    files = sum(each.stat().st_size for each in pathlib.Path(output).iterdir())
    return {
        "seconds": round(seconds),
        "gigabytes": round(most / 1e9, 1),
        "bytes_a_block": round(most / index.num_blocks),
        "disk_bytes_a_block": round(files / index.num_blocks),
        "recall@5": index.metadata["recall@5"],
    }


def _own_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon"):
                    return 1024 * int(line.split()[1])
    except FileNotFoundError:
        # It has ended.
        os.sched_yield()
    return 0


if __name__ == "__main__":
    tyro.cli(main)
