"""What the host searches with, kept for a run that goes on after a kill."""

import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError

_KIND = "host_retrieval"
_EMBEDDINGS = "embeddings.npy"
_WEIGHTS = "query_tower.npz"


def write(directory: str, *, step: int, weights: list, embeddings) -> None:
    """Writes a version in place of what a run that was lost left there.

    Args:
        directory: str. Local; made.
        step: int. Steps done when the version was taken.
        weights: list of arrays. Of the query tower, as `get_weights` orders
            them.
        embeddings: float32 array `(num_blocks, embedding_dim)`.
    """
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    remove(directory)
    with artifact.write(directory, kind=_KIND) as stage:
        np.save(stage.path(_EMBEDDINGS), embeddings)
        weight_files.write(stage.path(_WEIGHTS), weights)
        stage.metadata["step"] = step


def read(directory: str) -> dict:
    """`embeddings`, `weights` and `step`, as `write` had them.

    Raises:
        InputError: if the directory is missing or damaged.
    """
    step = artifact.read(directory, kind=_KIND)["step"]
    try:
        embeddings = np.load(
            os.path.join(directory, _EMBEDDINGS),
            mmap_mode="r",
            allow_pickle=False,
        )
        weights = weight_files.read(os.path.join(directory, _WEIGHTS))
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{directory} is damaged ({error}): remove the state of the "
            "run beside it to train from the start."
        ) from error
    return {"embeddings": embeddings, "weights": weights, "step": step}
