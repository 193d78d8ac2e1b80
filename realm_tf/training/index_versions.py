"""Block embeddings that a run which is broken off goes on with."""

import collections
import os

import numpy as np

from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError


class IndexVersions:
    """The embeddings of all blocks that an index had, a file for each.

    A saved state of the training names a version by its step, so that it need
    not hold what is as large as the corpus. Each is written once, where it is
    made, which is beside the steps where a builder makes it.

    Args:
        directory: str. Local. Made if need be.
    """

    def __init__(self, directory: str):
        self._directory = directory
        # Of the last two states: a kill may come before the newer is written.
        self._kept = collections.deque(maxlen=2)

    def write(self, step: int, embeddings) -> None:
        """Keeps a version; the file appears whole or not at all.

        Args:
            step: int. Steps done when the tower was copied that made it.
            embeddings: float32 array `(num_blocks, embedding_dim)`.
        """
        os.makedirs(self._directory, exist_ok=True)
        path = self._path(step)
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            np.save(file, embeddings, allow_pickle=False)
            file.flush()
            # A machine that dies must not leave an empty file of this name.
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def read(self, step: int) -> np.ndarray:
        """The embeddings of a version that a state names, memory-mapped.

        Raises:
            InputError: if the file is missing or damaged.
        """
        path = self._path(step)
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(
                f"{path} is damaged ({error}): remove the unfinished output to "
                "train from the start."
            ) from error
        self._keep(step)
        return found

    def keep(self, step: int) -> None:
        """Removes what neither a state that names this version needs, nor the
        state before.

        Args:
            step: int. Of the version that a state about to be written names.
        """
        self._keep(step)
        oldest = min(self._kept)
        for name in os.listdir(self._directory):
            if int(name.partition(".")[0]) < oldest:
                remove(os.path.join(self._directory, name))

    def _keep(self, step):
        if step not in self._kept:
            self._kept.append(step)

    def _path(self, step):
        return os.path.join(self._directory, f"{step:08d}.npy")
