"""Directories of embeddings, as `realm embed` would write them."""

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path

PARENTS = {"block_tower": "tower", "blocks": "blocks"}


def write_embeddings(directory, rows, rows_per_shard, fingerprint="embeddings"):
    """Returns the path of the directory."""
    with artifact.write(
        str(directory),
        kind="embeddings",
        parameters={"rows_per_shard": rows_per_shard},
        parents=PARENTS,
    ) as stage:
        names = []
        for first in range(0, len(rows), rows_per_shard):
            names.append(f"embeddings-{first:08d}.npy")
            with Path(stage.path(names[-1])).open("wb") as file:
                np.save(file, rows[first : first + rows_per_shard])
        stage.metadata.update(
            num_blocks=len(rows), shards=names, fingerprint=fingerprint
        )
    return str(directory)
