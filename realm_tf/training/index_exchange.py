"""Where a trainer and an index builder meet: versions in a directory.

The trainer leaves snapshots of its block tower, the builder leaves indices
made from them, each named by the training step of the snapshot. A version is
a stage directory: it appears whole or not at all, and the rest of a writer
that was killed is never read.
"""

import dataclasses
import os
import time

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove

_SNAPSHOT = "snapshot"
_INDEX = "index"
_WEIGHTS = "weights.npz"


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The block tower after some step.

    Args:
        step: int. Steps done when it was taken.
        weights: list of arrays, as `keras.Model.get_weights` orders them.
        taken_at: float. Seconds since the epoch.
    """

    step: int
    weights: list[np.ndarray]
    taken_at: float = dataclasses.field(default_factory=time.time)


class IndexExchange:
    """Snapshots and indices in a directory; any number of processes share it.

    Args:
        directory: str. Local; made if need be.
    """

    def __init__(self, directory: str):
        self.directory = str(directory)
        Path(self.directory).mkdir(parents=True, exist_ok=True)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Publishes a snapshot and removes older ones."""
        with artifact.write(
            self._path(_SNAPSHOT, snapshot.step), kind=_SNAPSHOT
        ) as stage:
            stage.metadata["taken_at"] = snapshot.taken_at
            weight_files.write(stage.path(_WEIGHTS), snapshot.weights)
        self._prune(_SNAPSHOT, keep=1)

    def read_snapshot(self, step: int) -> Snapshot:
        """A snapshot that `newest_snapshot` named.

        Raises:
            InputError: if it is gone, as a newer one came, or damaged.
        """
        directory = self._path(_SNAPSHOT, step)
        taken_at = artifact.read(directory, kind=_SNAPSHOT)["taken_at"]
        weights = weight_files.read(os.path.join(directory, _WEIGHTS))
        return Snapshot(step, weights, taken_at)

    def newest_snapshot(self) -> int | None:
        """Step of the newest snapshot."""
        return max(self._versions(_SNAPSHOT), default=None)

    def index_path(self, step: int) -> str:
        """Directory of the index of a step, whether there or not."""
        return self._path(_INDEX, step)

    def newest_index(self) -> int | None:
        """Step of the snapshot that the newest index was made from."""
        return max(self._versions(_INDEX), default=None)

    def read_index(self, step: int) -> np.ndarray:
        """The embeddings of an index, in memory.

        Raises:
            InputError: if it is gone or damaged.
        """
        return np.array(index_files.load_embeddings(self.index_path(step)))

    def remove_index(self, step: int) -> None:
        """Removes an index, such as a damaged one."""
        remove(self.index_path(step))

    def prune_indices(self, *, keep: int) -> None:
        """Removes all but the newest indices."""
        self._prune(_INDEX, keep=keep)

    def clear(self) -> None:
        """Removes every version, and what killed writers left."""
        for name in os.listdir(self.directory):
            if name.startswith((f"{_SNAPSHOT}-", f"{_INDEX}-")):
                remove(os.path.join(self.directory, name))

    def _path(self, kind, step):
        return os.path.join(self.directory, f"{kind}-{step:08d}")

    def _versions(self, kind):
        return [
            int(name.removeprefix(f"{kind}-"))
            for name in os.listdir(self.directory)
            if name.startswith(f"{kind}-")
            and name.removeprefix(f"{kind}-").isdigit()
            and artifact.is_complete(os.path.join(self.directory, name))
        ]

    def _prune(self, kind, *, keep):
        for step in sorted(self._versions(kind))[:-keep]:
            remove(self._path(kind, step))
