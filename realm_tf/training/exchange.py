"""Where a trainer and those who build its index meet: a directory.

The trainer leaves weights of the block tower; builders, as many as there are,
take ranges of the blocks, one after the other, and leave their embeddings. All
that they know of each other are these files, each of which appears whole:

- `task.json`: what builders open, and how many blocks a range has.
- `weights-NAME.npz`: of the tower; the name is a digest of them.
- `current`: the name of those to embed with.
- `NAME/00012.npy`: embeddings of a range, float32 `(num_rows, embedding_dim)`.
- `00012.lock`: locked by the builder that is at this range, whatever the
  weights. The lock ends with its process.

The directory may be on a shared disk with locks, such as NFS 4, so that
builders run on other machines.
"""

import contextlib
import fcntl
import hashlib
import json
import os

import numpy as np

from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

TASK = "task.json"
# How the names of what builders print end.
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
        # What a run left that was lost.
        for name in os.listdir(self.directory):
            remove(self._path(name))
        write_text(self._path(TASK), json.dumps(task, indent=1))

    def offer(self, weights: list) -> str:
        """Leaves weights to embed with; those before are not needed any more.

        Args:
            weights: list of arrays.

        Returns:
            str, their name. Of weights that are offered again, what was
            embedded with them counts.
        """
        digest = hashlib.sha256()
        for each in weights:
            digest.update(np.ascontiguousarray(each).view("uint8"))
        name = digest.hexdigest()[:16]
        os.makedirs(self._path(name), exist_ok=True)
        if not os.path.exists(self._weights(name)):
            weight_files.write(
                self._weights(name), weight_files.by_number(weights)
            )
        write_text(self._path(_CURRENT), name)
        kept = {TASK, _CURRENT, name, os.path.basename(self._weights(name))}
        for other in set(os.listdir(self.directory)) - kept:
            if not other.endswith((LOG, _LOCK)):
                remove(self._path(other))
        return name

    def missing(self, name: str) -> list[int]:
        """The ranges whose embeddings are not there yet."""
        found = self._listed(name)
        return [n for n in range(self._num_ranges) if _file(n) not in found]

    def collect(self, name: str) -> np.ndarray | None:
        """All embeddings, once every range is there.

        Args:
            name: str. As `offer` gave it.

        Returns:
            float32 array `(num_blocks, embedding_dim)`, or `None`: some are
            missing. Damaged ones are removed, for a builder to make again.
        """
        if self.missing(name):
            return None
        parts = []
        for number in range(self._num_ranges):
            path = self._path(name, _file(number))
            try:
                part = np.load(path, mmap_mode="r", allow_pickle=False)
                is_whole = len(part) == len(self.rows(number))
            # Whatever a torn file makes of numpy's reading.
            except (OSError, ValueError, EOFError):
                is_whole = False
            if not is_whole:
                remove(path)
                return None
            parts.append(part)
        return np.concatenate(parts)

    # === The builders' side ===

    @property
    def task(self) -> dict | None:
        """What the trainer said at the beginning; `None`: there is none."""
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
            return list(weight_files.read(self._weights(name)).values())
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
            int, or `None`: nothing is missing that no other builder is at.
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
        """Leaves the embeddings of a range, unless they are old."""
        path = self._path(name, _file(number))
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                np.save(file, embeddings, allow_pickle=False)
            os.replace(temporary, path)
        except FileNotFoundError:
            if self.current() == name:
                raise

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

    def _listed(self, name):
        try:
            return set(os.listdir(self._path(name)))
        except FileNotFoundError:
            return set()

    def _weights(self, name):
        return self._path(f"weights-{name}.npz")

    def _path(self, *names):
        return os.path.join(self.directory, *names)


def _file(number):
    return f"{number:05d}.npy"


def _read(path):
    """What a text file says; nothing, if it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
