"""Where a trainer and an index builder meet: versions in a directory.

The trainer leaves a snapshot of its block tower, the builder leaves the index
made from it, each named by the training step of the snapshot. A version is a
stage directory: it appears whole or not at all, and the rest of a writer that
was killed is never read. There is one snapshot at a time, and nobody is at
work on an index when the trainer leaves the next one.
"""

import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove

_SNAPSHOT = "snapshot"
_INDEX = "index"
_WEIGHTS = "weights.npz"


class IndexExchange:
    """A snapshot and an index in a directory that two processes share.

    Args:
        directory: str. Local; made if need be.
    """

    def __init__(self, directory: str):
        self.directory = str(directory)
        Path(self.directory).mkdir(parents=True, exist_ok=True)

    def write_snapshot(self, step: int, weights: list[np.ndarray]) -> None:
        """Publishes a snapshot in place of the versions before it.

        Args:
            step: int. Steps done when it was taken.
            weights: list of arrays, as `keras.Model.get_weights` orders them.
        """
        self.clear()
        path = self._path(_SNAPSHOT, step)
        with artifact.write(path, kind=_SNAPSHOT) as stage:
            weight_files.write(stage.path(_WEIGHTS), weights)

    def read_snapshot(self, step: int) -> list[np.ndarray]:
        """The weights of a snapshot that `newest_snapshot` named.

        Raises:
            InputError: if it is gone, as a newer one came, or damaged.
        """
        return weight_files.read(
            os.path.join(self._path(_SNAPSHOT, step), _WEIGHTS)
        )

    def newest_snapshot(self) -> int | None:
        """Step of the newest snapshot."""
        return self._newest(_SNAPSHOT)

    def index_path(self, step: int) -> str:
        """Directory of the index of a step, whether there or not."""
        return self._path(_INDEX, step)

    def newest_index(self) -> int | None:
        """Step of the snapshot that the newest index was made from."""
        return self._newest(_INDEX)

    def read_index(self, step: int) -> np.ndarray:
        """The embeddings of an index, in memory.

        Raises:
            InputError: if it is gone or damaged.
        """
        return np.array(index_files.load_embeddings(self.index_path(step)))

    def clear(self) -> None:
        """Removes every version, and what killed writers left."""
        for name in os.listdir(self.directory):
            if name.startswith((f"{_SNAPSHOT}-", f"{_INDEX}-")):
                remove(os.path.join(self.directory, name))

    def _path(self, kind, step):
        return os.path.join(self.directory, f"{kind}-{step:08d}")

    def _newest(self, kind):
        names = [
            name.removeprefix(f"{kind}-")
            for name in os.listdir(self.directory)
            if name.startswith(f"{kind}-")
            and artifact.is_complete(os.path.join(self.directory, name))
        ]
        return max(map(int, filter(str.isdigit, names)), default=None)
