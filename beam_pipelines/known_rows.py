"""Embeddings that another directory has already, of equal blocks."""

import hashlib
import os

import numpy as np

from realm_tf.artifacts import index_files
from realm_tf.artifacts import paths
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path

_FILE = "known-rows.npy"


def find(blocks: Blocks, known_blocks: Blocks) -> np.ndarray:
    """Which block says the same, title and body.

    Args:
        blocks: `Blocks`.
        known_blocks: `Blocks`, cut with the same vocabulary.

    Returns:
        int64 array `(num_blocks,)`: a block of `known_blocks`, -1 where none
        does.
    """
    place_of = {
        digest: row for row, digest in enumerate(_digests(known_blocks))
    }
    places = (place_of.get(digest, -1) for digest in _digests(blocks))
    return np.fromiter(places, "int64", blocks.num_blocks)


def _digests(blocks):
    names = "title_ids", "token_ids"
    for columns in blocks.read_columns(*names):
        # (values, lengths) of each
        titles, bodies = (_split(*columns[name]) for name in names)
        for title, body in zip(titles, bodies, strict=True):
            # -1 is no wordpiece: where the title ends is part of it.
            joined = np.concatenate([title, [-1], body]).astype("int32")
            yield hashlib.blake2b(joined.tobytes(), digest_size=16).digest()


def _split(values, lengths):
    return np.split(values, np.cumsum(lengths)[:-1])


def write(directory: str, rows: np.ndarray) -> None:
    """Keeps what `find` gave in a directory of embeddings in the making."""
    with Path(os.path.join(directory, _FILE)).open("wb") as file:
        np.save(file, rows)


def read(directory: str) -> np.ndarray:
    """What `write` kept."""
    return index_files.load_array(os.path.join(directory, _FILE))


def remove(directory: str) -> None:
    """Removes what `write` kept."""
    paths.remove(os.path.join(directory, _FILE))


def take(embeddings: Embeddings, rows: np.ndarray) -> np.ndarray:
    """Some rows of embeddings, in the order asked for.

    Args:
        embeddings: `Embeddings`.
        rows: int array `(num_rows,)`.

    Returns:
        float32 array `(num_rows, embedding_dim)`.
    """
    found = None
    size = embeddings.parameters["rows_per_shard"]
    for path, first in embeddings.shards:
        is_here = (rows >= first) & (rows < first + size)
        if is_here.any():
            shard = index_files.load_array(path)
            if found is None:
                found = np.zeros((len(rows), shard.shape[1]), "float32")
            found[is_here] = shard[rows[is_here] - first]
    return found
