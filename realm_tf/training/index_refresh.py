"""Keeps the index of a model in training close to its block tower."""

import collections
import os
import re
import sys
import threading
import time

import keras
import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.training import hosts
from realm_tf.training.training_log import steps_done

# No step.
_NOTHING = -1
# Before a builder that failed is asked again.
_SECONDS_OF_PAUSE = 10.0
# The file of a version.
_VERSION = re.compile(r"(\d{8})\.npy")


class IndexRefresh(keras.callbacks.Callback):
    """Exchanges the index for newer ones.

    Every so many steps the block tower is copied and a builder makes an index
    of the copy. The exchange happens between two steps: none sees a mixed
    index, and nothing is traced again. The logs of a step get
    `index_age`, steps between the copy and the search; those of an interval get
    the mean.

    Either training waits for the builder: then a run does not depend on the
    machine's speed. Or it never waits: a thread runs the builder, and again
    after it failed, until it gives an index. No other copy is taken meanwhile,
    so a slow builder sets the pace. Then the age is also logged as
    `index_minutes`.

    Of processes that train together, the first has the builder, and all
    exchange the index before the same step.

    As one of the `parts` of `training.resume`, a resumed run knows the age of
    its index. The owner calls `close` after the last step.

    Args:
        index: `retrieval.index.Index` of the model in training, or what has
            its `prepare`, which is called where the embeddings are made, and
            `swap`, called between two steps.
        tower: `Embedder`. Its block tower.
        build: see `training.index_builder`.
        versions: `IndexVersions`. Each version is written there before it is
            searched, for a run that goes on; the caller writes the first.
        every_steps: int. Least steps between two copies; 0: none is taken.
        wait: bool. Whether training waits.

    Attributes:
        index_step: int. Steps done when the tower was copied that made the
            index in use.
        swaps: list of (step, index_step). The exchanges, each before its
            step (counted from 0).
    """

    def __init__(
        self, index, tower, build, *, versions, every_steps: int, wait: bool
    ):
        super().__init__()
        self.index_step = 0
        self.swaps = []
        self._index = index
        self._tower = tower
        self._build = build
        self._versions = versions
        self._every_steps = every_steps
        self._wait = wait
        self._done = 0
        self._copied_at = 0
        self._taken_at = time.time()
        self._thread = None
        self._stopped = threading.Event()
        # (step, time, function that swaps) of a new index.
        self._built = None
        # Of the steps of this interval.
        self._ages = []

    def get_state(self):
        """The state that `training.resume` keeps."""
        self._versions.keep(self.index_step)
        return {"index_step": self.index_step, "taken_at": self._taken_at}

    def set_state(self, state):
        """Takes up the state of `get_state`; the caller has loaded the version
        of that step."""
        self.index_step = self._copied_at = state["index_step"]
        self._taken_at = state["taken_at"]

    def on_train_begin(self, logs=None):
        self._done = steps_done(self.model)

    # At the beginning of a step, so that a state saved at the end of one is
    # followed by the same refresh.
    def on_train_batch_begin(self, batch, logs=None):
        is_busy = self._thread is not None and self._thread.is_alive()
        due = 0 < self._every_steps <= self._done - self._copied_at
        built_from, copy = hosts.agree(
            _NOTHING if self._built is None else self._built[0],
            due and not is_busy,
        )
        if built_from == _NOTHING and not copy:
            return
        # On JAX variables have the values of the last step when Keras is asked
        # for its model.
        self.model  # noqa: B018
        if built_from != _NOTHING:
            self._swap(built_from)
        if copy:
            self._copy(wait=self._wait)

    def refresh(self):
        """Exchanges the index for one of the tower as it is, and waits."""
        # An index that is being built is older.
        self.close()
        self._stopped.clear()
        self.model  # noqa: B018
        self._copy(wait=True)

    def _copy(self, *, wait):
        step = self._copied_at = self._done
        taken_at = time.time()
        weights = [np.array(w) for w in self._tower.get_weights()]
        if wait:
            self._built = step, taken_at, self._make(step, weights)
            self._swap(step)
        elif hosts.is_first():
            self._thread = threading.Thread(
                target=self._build_until_done,
                args=(step, weights, taken_at),
                daemon=True,
            )
            self._thread.start()

    def _swap(self, step):
        if hosts.is_first():
            (_, self._taken_at, swap), self._built = self._built, None
        else:
            swap = self._index.prepare(self._versions.read(step))
        self.index_step = step
        swap()
        self.swaps.append((self._done, step))

    def on_train_batch_end(self, batch, logs=None):
        self._ages.append(self._done - self.index_step)
        self._done += 1
        self._add_age(logs, self._ages[-1])

    def on_epoch_end(self, epoch, logs=None):
        self._add_age(logs, float(np.mean(self._ages)))
        self._ages = []

    def _add_age(self, logs, steps):
        logs["index_age"] = steps
        if not self._wait:
            logs["index_minutes"] = (time.time() - self._taken_at) / 60

    def close(self):
        """Ends the thread. The owner of the callback calls it."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._built = None

    def _build_until_done(self, step, weights, taken_at):
        while not self._stopped.is_set():
            try:
                prepared = self._make(step, weights)
            # Whatever it was, such as a full disk: training continues with the
            # index it has.
            except Exception as error:
                if not self._stopped.is_set():
                    print(
                        f"index refresh: {type(error).__name__}: {error}; "
                        f"next try in {_SECONDS_OF_PAUSE:.0f} s, training "
                        "continues",
                        file=sys.stderr,
                        flush=True,
                    )
                self._stopped.wait(_SECONDS_OF_PAUSE)
            else:
                self._built = step, taken_at, prepared
                return

    def _make(self, step, weights):
        embeddings = self._build(weights, self._stopped)
        self._versions.write(step, embeddings)
        return self._index.prepare(embeddings)


class IndexVersions:
    """The embeddings that the indices of a run were made of, one file each.

    A saved state of the training names a version by its step, so it need not
    hold embeddings as large as the corpus. Each version is written once, where
    it is made: by a builder, beside the steps.

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
        array_files.write_array(self._path(step), embeddings)

    def read(self, step: int) -> np.ndarray:
        """The embeddings of a version that a state names, memory-mapped.

        Raises:
            InputError: if the file is missing or damaged.
        """
        found = array_files.load_array(self._path(step))
        self._keep(step)
        return found

    def keep(self, step: int) -> None:
        """Removes versions older than those that the last two states name.

        Args:
            step: int. Of the version that a state about to be written names.
        """
        self._keep(step)
        oldest = min(self._kept)
        for name in os.listdir(self._directory):
            # NFS calls a removed file that is still mapped `.nfs...`.
            match = _VERSION.fullmatch(name)
            if match and int(match[1]) < oldest:
                os.remove(os.path.join(self._directory, name))

    def _keep(self, step):
        if step not in self._kept:
            self._kept.append(step)

    def _path(self, step):
        return os.path.join(self._directory, f"{step:08d}.npy")
