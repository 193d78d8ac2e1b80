"""Keeps the index of a model in training close to its block tower."""

import sys
import threading
import time

import keras
import numpy as np

from realm_tf.data import feeding
from realm_tf.training import hosts

# No step.
_NOTHING = -1
# Before a builder that failed is asked again.
_SECONDS_OF_PAUSE = 10.0


class IndexRefresh(keras.callbacks.Callback):
    """Exchanges the index for newer ones.

    Every so many steps the block tower is copied and a builder makes an index
    of the copy. The exchange happens between two steps: none sees a mixed
    index, and nothing is traced again. The age of the index that a step
    searched joins its logs, as `index_age` (steps).

    Training waits, for exact experiments: the run does not depend on the
    machine's speed. Or it never waits: a thread hands the copy to the
    builder, and again after it failed, until it gives an index. While the
    builder is still busy no other copy is taken: it sets the pace where it is
    the slower one. The age is then also logged as `index_minutes`.

    Of processes that train together, the first has the builder, and all
    exchange the index before the same step.

    Use it as any Keras callback; with `training.resume`, also as one of its
    `parts`, so that a run which goes on knows the age of its index.

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

    def get_state(self):
        """What `training.resume` keeps of this."""
        self._versions.keep(self.index_step)
        return {"index_step": self.index_step, "taken_at": self._taken_at}

    def set_state(self, state):
        """Takes up what `get_state` gave; the index is the version of that
        step already."""
        self.index_step = state["index_step"]
        self._taken_at = state["taken_at"]

    def on_train_begin(self, logs=None):
        self._done = feeding.steps_done(self.model.optimizer)
        self._copied_at = self.index_step
        self._stopped.clear()

    # At the beginning, so that a state saved at the end of a step is followed
    # by the same refresh.
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
            self._copy()

    def refresh(self):
        """Exchanges the index for one of the tower as it is, and waits."""
        # What a builder may be at is older.
        self.close()
        self._stopped.clear()
        self.model  # noqa: B018
        self._copy(wait=True)

    def _copy(self, wait=None):
        weights = [np.array(w) for w in self._tower.get_weights()]
        self._copied_at = self._done
        self._begin(
            self._done,
            weights,
            time.time(),
            wait=self._wait if wait is None else wait,
        )

    def _swap(self, step):
        if hosts.is_first():
            (_, self._taken_at, swap), self._built = self._built, None
        else:
            swap = self._index.prepare(self._versions.read(step))
        self.index_step = step
        swap()
        self.swaps.append((self._done, self.index_step))

    def _begin(self, step, weights, taken_at, *, wait):
        if wait:
            self._built = step, taken_at, self._make(step, weights)
            self._swap(step)
            return
        if not hosts.is_first():
            return
        self._thread = threading.Thread(
            target=self._build_at_last,
            args=(step, weights, taken_at),
            daemon=True,
        )
        self._thread.start()

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        if logs is not None:
            logs["index_age"] = self._done - 1 - self.index_step
            if not self._wait:
                logs["index_minutes"] = (time.time() - self._taken_at) / 60

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Ends the thread; after an exception in `fit` nobody else does."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._built = None

    def _build_at_last(self, step, weights, taken_at):
        while not self._stopped.is_set():
            try:
                prepared = self._make(step, weights)
            # Whatever it was, a full disk say: training goes on with the
            # index it has.
            except Exception as error:
                if not self._stopped.is_set():
                    print(
                        f"index refresh: {type(error).__name__}: {error}; "
                        f"tried again in {_SECONDS_OF_PAUSE:.0f} s, training goes on",
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
