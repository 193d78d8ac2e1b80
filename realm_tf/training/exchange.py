"""Where a trainer and those who build its index meet: a directory.

The trainer leaves weights of the block tower. Any number of builders take
ranges of the blocks, one after the other, and leave their embeddings. All that
they know of each other are these files, each of which appears whole:

- `task.json`: the inputs of builders, and how many blocks a range has.
- `weights-NAME.npz`: of the tower; the name is a digest of them.
- `current`: the name of the newest weights.
- `NAME/00012.npy`: embeddings of a range, float32 `(num_rows, embedding_dim)`.
- `00012.lock`: locked by the builder that is at this range, whatever the
  weights. The lock ends with its process.

The directory may be on a shared disk with locks, such as NFS 4, so that
builders run on other machines.
"""

import contextlib
import fcntl
import glob
import json
import os

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts.fingerprints import fingerprint_all
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

TASK = "task.json"
# How the names of the builders' output files end.
LOG = ".log"
_CURRENT = "current"
_LOCK = ".lock"
# Our choices: minutes of work for a processor; a few for each builder.
_MAX_ROWS = 8192
_NUM_RANGES = 8


def rows_of_ranges(num_blocks: int) -> int:
    """How many blocks a builder embeds at a time."""
    return max(1, min(_MAX_ROWS, -(-num_blocks // _NUM_RANGES)))


class Exchange:
    """The directory, as both sides see it.

    Args:
        directory: str. Of a file system that all of them mount.
    """

    def __init__(self, directory: str):
        self.directory = str(directory)

    # === The trainer's side ===

    def begin(self, task: dict) -> None:
        """Makes the directory ready for a run.

        Args:
            task: dict of JSON values. What `task` gives builders, with
                `num_blocks` and `rows_per_range`.
        """
        os.makedirs(self.directory, exist_ok=True)
        # An earlier run may have been killed.
        for name in os.listdir(self.directory):
            remove(self._path(name))
        write_text(self._path(TASK), json.dumps(task, indent=1))

    def offer(self, weights: list) -> str:
        """Leaves weights to embed with, and removes those before.

        Args:
            weights: list of arrays.

        Returns:
            str, their name. If weights are offered again, what was embedded
            with them counts.
        """
        name = fingerprint_all(np.asarray(w).tobytes() for w in weights)
        os.makedirs(self._path(name), exist_ok=True)
        path = self._weights(name)
        if not os.path.exists(path):
            by_number = {str(n): np.asarray(w) for n, w in enumerate(weights)}
            array_files.write_arrays(path, by_number)
        write_text(self._path(_CURRENT), name)
        kept = {TASK, _CURRENT, name, os.path.basename(path)}
        for other in set(os.listdir(self.directory)) - kept:
            if not other.endswith((LOG, _LOCK)):
                remove(self._path(other))
        return name

    def missing(self, name: str) -> list[int]:
        """The ranges whose embeddings are not there yet."""
        found = set(glob.glob(f"{glob.escape(self._path(name))}/*.npy"))
        return [
            number
            for number in range(self._num_ranges)
            if self._range(name, number) not in found
        ]

    def collect(self, name: str) -> np.ndarray | None:
        """All embeddings, once every range is there.

        Args:
            name: str. As `offer` gave it.

        Returns:
            float32 array `(num_blocks, embedding_dim)`, or `None`: some are
            missing.
        """
        if self.missing(name):
            return None
        return np.concatenate(
            [
                np.load(self._range(name, number), mmap_mode="r")
                for number in range(self._num_ranges)
            ]
        )

    # === The builders' side ===

    @property
    def task(self) -> dict | None:
        """The task of `begin`; `None`: there is none."""
        text = _read(self._path(TASK))
        return json.loads(text) if text else None

    def current(self) -> str | None:
        """The name of the weights to embed with; `None`: none yet."""
        return _read(self._path(_CURRENT)) or None

    def weights(self, name: str) -> list | None:
        """Weights by name, as they were offered; `None`: there are newer ones.

        Raises:
            InputError: if they are the newest, and damaged.
        """
        try:
            return list(array_files.read_arrays(self._weights(name)).values())
        except InputError:
            if self.current() == name:
                raise
            return None

    @contextlib.contextmanager
    def claim(self, name: str):
        """A range that is the builder's for the time of the `with`.

        Args:
            name: str. Of the weights.

        Yields:
            int, or `None`: no range is missing that no other builder is at.
        """
        for number in self.missing(name):
            try:
                lock = open(  # noqa: SIM115
                    self._path(f"{number:05d}{_LOCK}"), "w"
                )
            except FileNotFoundError:
                # The run has ended.
                break
            with lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                # Another may have made it before the lock was ours.
                if number in self.missing(name):
                    yield number
                    return
        yield None

    def deliver(self, name: str, number: int, embeddings) -> None:
        """Leaves the embeddings of a range, unless there are newer weights."""
        # Then the directory is gone.
        with contextlib.suppress(FileNotFoundError):
            array_files.write_array(self._range(name, number), embeddings)

    def rows(self, number: int) -> range:
        """The blocks of a range."""
        task = self.task
        first = number * task["rows_per_range"]
        return range(
            first, min(first + task["rows_per_range"], task["num_blocks"])
        )

    @property
    def _num_ranges(self):
        task = self.task
        return -(-task["num_blocks"] // task["rows_per_range"])

    def _range(self, name, number):
        return self._path(name, f"{number:05d}.npy")

    def _weights(self, name):
        return self._path(f"weights-{name}.npz")

    def _path(self, *names):
        return os.path.join(self.directory, *names)


def _read(path):
    """The content of a text file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
