"""The files of a search index over block embeddings.

`realm index` (beam_pipelines/build_index.py) writes them. Every index holds
the embeddings themselves (embeddings.npy), because fine-tuning scores blocks
with them; an index loads what its kind needs.
"""

import os
import shutil
import tempfile

import numpy as np

from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError

# Rows of an embeddings shard. What a killed run loses for each of its threads,
# and what workers share out: 15 MB of 384-wide float32 rows (our choice).
ROWS_PER_SHARD = 10_000

_EMBEDDINGS = "embeddings.npy"


def write_embeddings(embeddings: Embeddings, directory: str) -> np.ndarray:
    """Joins the shards of embeddings to the file that an index holds.

    One shard is in memory at a time.

    Args:
        embeddings: `Embeddings`.
        directory: str. Index directory that is being written.

    Returns:
        float32 array `(num_blocks, embedding_dim)`; memory-mapped.

    Raises:
        InputError: if a shard is missing or damaged, or has another number of
            rows than it should.
    """
    num_blocks, shards = embeddings.num_blocks, embeddings.shards
    limits = [first for _, first in shards[1:]] + [num_blocks]
    path = os.path.join(directory, _EMBEDDINGS)
    with Path(path).open("wb") as file:
        for (shard, first), limit in zip(shards, limits, strict=True):
            rows = load_array(shard)
            if not first:
                header = np.lib.format.header_data_from_array_1_0(rows)
                header["shape"] = (num_blocks, *rows.shape[1:])
                np.lib.format.write_array_header_1_0(file, header)
            if len(rows) != limit - first:
                raise InputError(
                    f"{shard} holds {len(rows)} rows, expected "
                    f"{limit - first}: run `realm embed` again."
                )
            file.write(rows.tobytes())
    return load_array(path)


def write_state(
    kind: str, state: dict[str, np.ndarray], directory: str
) -> None:
    """Writes what an index keeps beside the embeddings, its `state()`.

    Args:
        kind: str. `"ivf"` or `"scann"`.
        state: dict of name to array.
        directory: str. Index directory that is being written.
    """
    for name, array in state.items():
        path = os.path.join(directory, f"{kind}-{name}.npy")
        with Path(path).open("wb") as file:
            np.save(file, array)


def load_embeddings(directory: str) -> np.ndarray:
    """The embeddings inside an index directory; see `objects.Index`."""
    return load_array(os.path.join(directory, _EMBEDDINGS))


def load_array(path: str) -> np.ndarray:
    """A file of embeddings or of an index, memory-mapped.

    A remote one is copied to a temporary file, which goes with the array.

    Raises:
        InputError: if it is missing or damaged.
    """
    if not Path(path).exists():
        raise InputError(f"{path} is missing: make its directory again.")
    try:
        if not is_remote(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with tempfile.NamedTemporaryFile(suffix=".npy") as copy:
            with Path(path).open("rb") as file:
                shutil.copyfileobj(file, copy)
            copy.flush()
            # Private: when it is shared, no file is there to be opened again.
            return np.load(copy.name, mmap_mode="c", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}): make its directory again."
        ) from error
