"""What the host searches with, kept for a run that goes on after a kill."""

import collections
import dataclasses
import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError

_KIND = "host_retrieval"
_EMBEDDINGS = "embeddings.npy"
_WEIGHTS = "query_tower.npz"
_PREFIX = "retrieval-"


@dataclasses.dataclass(frozen=True)
class Version:
    """What a batch is searched with, as a whole.

    Args:
        step: int. Steps done when it was taken.
        weights: list of arrays. Of the query tower, as `get_weights` orders
            them.
        tensors: list of tensors. The same, where the tower computes.
        embeddings: float32 array `(num_blocks, embedding_dim)`.
        index: `Index` of them.
    """

    step: int
    weights: list
    tensors: list
    embeddings: np.ndarray
    index: object


class VersionFiles:
    """Versions in a directory: the last and the one before.

    Args:
        directory: str. Local; made if need be.
    """

    def __init__(self, directory: str):
        self._directory = directory
        self._kept = collections.deque(maxlen=2)
        self._saved = None

    def keep(self, version: Version) -> str:
        """Writes a version, if it is new, and returns its name."""
        name = f"{_PREFIX}{version.step:08d}"
        if version is not self._saved:
            self._write(version, os.path.join(self._directory, name))
            self.is_saved(version, name)
        # A state that is not yet written may be lost: the one before counts.
        for other in sorted(Path(self._directory).iterdir()):
            if other.name.startswith(_PREFIX) and other.name not in self._kept:
                remove(str(other))
        return name

    def is_saved(self, version: Version, name: str) -> None:
        """Tells that the files of a name hold a version."""
        self._saved = version
        if name not in self._kept:
            self._kept.append(name)

    def read(self, name: str) -> dict:
        """`embeddings`, `weights` and `step` of a version by its name.

        Raises:
            InputError: if it is missing or damaged.
        """
        directory = os.path.join(self._directory, name)
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

    def _write(self, version, directory):
        Path(self._directory).mkdir(parents=True, exist_ok=True)
        # Of a run that was lost.
        remove(directory)
        with artifact.write(directory, kind=_KIND) as stage:
            np.save(stage.path(_EMBEDDINGS), version.embeddings)
            weight_files.write(stage.path(_WEIGHTS), version.weights)
            stage.metadata["step"] = version.step
