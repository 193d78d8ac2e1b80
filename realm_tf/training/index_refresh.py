"""Keeps the index of a model in training close to its block tower."""

import sys
import threading
import time

import keras
import numpy as np

from realm_tf.errors import InputError
from realm_tf.training.index_exchange import Snapshot

_SECONDS_BETWEEN_LOOKS = 0.1
# A builder that dies again and again is started again ever more rarely.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class SyncIndexRefresh(keras.callbacks.Callback):
    """Embeds all blocks again every so many steps, while training waits.

    For exact experiments: the run does not depend on the machine's speed. The
    exchange is between two steps: none sees a mixed index, and nothing is
    traced again. The index's age joins the logs of each step, as `index_age`
    (steps). It follows from the number of steps done, and the embeddings are
    weights of the model: a run that is resumed (`training.resume`) goes on
    with the same index.

    Args:
        index: `retrieval.index.Index` of the model in training.
        embed: function without arguments that gives the embeddings, float32
            array `(num_blocks, embedding_dim)`.
        every_steps: int. 0 never refreshes.
    """

    def __init__(self, index, embed, *, every_steps: int):
        super().__init__()
        self._index = index
        self._embed = embed
        self._every_steps = every_steps
        self._done = 0
        self.num_refreshes = 0

    def get_state(self):
        """Nothing: all follows from the number of steps."""

    def set_state(self, state):
        """Takes up what `get_state` gave."""

    def on_train_begin(self, logs=None):
        self._done = int(self.model.optimizer.iterations)

    # At the beginning, so that a state saved at the end of a step is followed
    # by the same refresh.
    def on_train_batch_begin(self, batch, logs=None):
        if not self._every_steps or not self._done:
            return
        if self._done % self._every_steps == 0:
            _sync(self.model)
            self._index.swap(self._embed())
            self.num_refreshes += 1

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        if logs is not None:
            every = self._every_steps
            # Of the index that the step searched.
            age = (self._done - 1) % every if every else self._done - 1
            logs["index_age"] = age


class IndexRefresh(keras.callbacks.Callback):
    """Exchanges the index for newer ones that a builder makes meanwhile.

    Training never waits. Every so many steps the block tower is copied for
    the builder; a thread hands the copy over, sees to it that the builder
    lives, and fetches what it publishes. The exchange happens between two
    steps: none sees a mixed index, and nothing is traced again. While the
    builder is still busy no other copy is taken: it sets the pace where it is
    the slower one. The age of the index that a step searched joins its logs,
    as `index_age` (steps) and `index_minutes`.

    Use it as any Keras callback; with `training.resume`, also as one of its
    `parts`, so that a run which goes on knows the age of its index.

    Args:
        index: `retrieval.index.Index` of the model in training.
        tower: `Embedder`. Its block tower.
        exchange: `IndexExchange`.
        worker: `index_workers.Worker`.
        every_steps: int. Least steps between two copies.

    Attributes:
        index_step: int. Steps done when the tower was copied that made the
            index in use.
        swaps: list of (step, index_step). The exchanges, each before its
            step (counted from 0).
        num_restarts: int. How often the builder had died.
    """

    def __init__(self, index, tower, exchange, worker, *, every_steps: int):
        super().__init__()
        self.index_step = 0
        self.swaps = []
        self._index = index
        self._tower = tower
        self._exchange = exchange
        self._every_steps = every_steps
        self._link = _Link(exchange, worker)
        self._done = 0
        self._copied_at = 0
        self._taken_at = time.time()

    @property
    def num_restarts(self) -> int:
        return self._link.num_restarts

    def get_state(self):
        """What `training.resume` keeps of this."""
        return {"index_step": self.index_step, "taken_at": self._taken_at}

    def set_state(self, state):
        """Takes up what `get_state` gave."""
        self.index_step = self._copied_at = state["index_step"]
        self._taken_at = state["taken_at"]

    def on_train_begin(self, logs=None):
        self._done = int(self.model.optimizer.iterations)
        # Of another run, or after the state that this one goes on from.
        self._exchange.clear()
        self._copied_at = self.index_step
        self._link.start()

    def on_train_batch_begin(self, batch, logs=None):
        built = self._link.take()
        due = self._done - self._copied_at >= self._every_steps
        copy = due and self._link.is_free
        if built is None and not copy:
            return
        _sync(self.model)
        if built is not None:
            self.index_step, self._taken_at, embeddings = built
            self._index.swap(embeddings)
            self.swaps.append((self._done, self.index_step))
        if copy:
            weights = [np.array(w) for w in self._tower.get_weights()]
            self._link.give(Snapshot(self._done, weights))
            self._copied_at = self._done

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        if logs is not None:
            logs["index_age"] = self._done - 1 - self.index_step
            logs["index_minutes"] = (time.time() - self._taken_at) / 60

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Ends the builder; after an exception in `fit` nobody else does."""
        self._link.stop()


class _Link:
    """The thread between trainer and builder."""

    def __init__(self, exchange, worker):
        self._exchange = exchange
        self._worker = worker
        self._lock = threading.Lock()
        self._given = None
        self._built = None
        # The snapshot that the builder is at work on.
        self._open = None
        self._thread = None
        self._stopped = threading.Event()
        self.num_restarts = 0
        self._pause = _FIRST_PAUSE
        self._start_at = None

    @property
    def is_free(self):
        """Whether nothing is being built."""
        return self._open is None

    def give(self, snapshot):
        with self._lock:
            self._given = self._open = snapshot

    def take(self):
        """(step, time, embeddings) of a new index, once."""
        with self._lock:
            built, self._built = self._built, None
        return built

    def start(self):
        self._given = self._built = self._open = self._start_at = None
        self._stopped.clear()
        self._worker.start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None
        self._worker.stop()

    def _run(self):
        while not self._stopped.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                self._look()
            except (OSError, InputError) as error:
                # A full disk, say; training goes on with the index it has.
                _say(f"{error}; tried again in {self._pause:.0f} s")
                self._stopped.wait(self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _look(self):
        if self._given is not None:
            self._exchange.write_snapshot(self._given)
            with self._lock:
                self._given = None
        self._keep_alive()
        if self._open is None or self._given is not None:
            return
        step = self._open.step
        if self._exchange.newest_index() != step:
            return
        embeddings = self._read(step)
        if embeddings is not None:
            with self._lock:
                self._built = (step, self._open.taken_at, embeddings)
                self._open = None
            self._pause = _FIRST_PAUSE

    def _read(self, step):
        try:
            return self._exchange.read_index(step)
        except InputError as error:
            _say(f"{error} It is made again.")
            self._exchange.remove_index(step)

    def _keep_alive(self):
        now = time.monotonic()
        if self._start_at is None:
            reason = self._worker.death()
            if reason is not None:
                _say(
                    f"the builder stopped ({reason}); started again in "
                    f"{self._pause:.0f} s, training goes on"
                )
                self._start_at = now + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        elif now >= self._start_at:
            self._worker.start()
            self._start_at = None
            self.num_restarts += 1


def _say(message):
    print(f"index refresh: {message}", file=sys.stderr, flush=True)


def _sync(model):
    """Gives variables the values of the last step (JAX)."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
