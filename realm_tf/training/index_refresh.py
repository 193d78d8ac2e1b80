"""Keeps the index of a model in training close to its block tower."""

import sys
import threading
import time

import keras
import numpy as np

# A builder that fails again and again is asked again ever more rarely.
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

    Training never waits. Every so many steps the block tower is copied; a
    thread hands the copy to the builder, and again after it failed, until it
    gives an index. The exchange happens between two steps: none sees a mixed
    index, and nothing is traced again. While the builder is still busy no
    other copy is taken: it sets the pace where it is the slower one. The age
    of the index that a step searched joins its logs, as `index_age` (steps)
    and `index_minutes`.

    Use it as any Keras callback; with `training.resume`, also as one of its
    `parts`, so that a run which goes on knows the age of its index.

    Args:
        index: `retrieval.index.Index` of the model in training.
        tower: `Embedder`. Its block tower.
        builder: see `training.index_builder`.
        every_steps: int. Least steps between two copies.

    Attributes:
        index_step: int. Steps done when the tower was copied that made the
            index in use.
        swaps: list of (step, index_step). The exchanges, each before its
            step (counted from 0).
    """

    def __init__(self, index, tower, builder, *, every_steps: int):
        super().__init__()
        self.index_step = 0
        self.swaps = []
        self._index = index
        self._tower = tower
        self._builder = builder
        self._every_steps = every_steps
        self._done = 0
        self._copied_at = 0
        self._taken_at = time.time()
        self._thread = None
        self._stopped = threading.Event()
        # (step, time, embeddings) of a new index.
        self._built = None

    def get_state(self):
        """What `training.resume` keeps of this."""
        return {"index_step": self.index_step, "taken_at": self._taken_at}

    def set_state(self, state):
        """Takes up what `get_state` gave."""
        self.index_step = state["index_step"]
        self._taken_at = state["taken_at"]

    def on_train_begin(self, logs=None):
        self._done = int(self.model.optimizer.iterations)
        self._copied_at = self.index_step
        self._stopped.clear()
        self._builder.start()

    def on_train_batch_begin(self, batch, logs=None):
        is_busy = self._thread is not None and self._thread.is_alive()
        built, self._built = self._built, None
        due = self._done - self._copied_at >= self._every_steps
        copy = due and not is_busy
        if built is None and not copy:
            return
        _sync(self.model)
        if built is not None:
            self.index_step, self._taken_at, embeddings = built
            self._index.swap(embeddings)
            self.swaps.append((self._done, self.index_step))
        if copy:
            weights = [np.array(w) for w in self._tower.get_weights()]
            self._copied_at = self._done
            self._thread = threading.Thread(
                target=self._build,
                args=(self._done, weights, time.time()),
                daemon=True,
            )
            self._thread.start()

    def on_train_batch_end(self, batch, logs=None):
        self._done += 1
        if logs is not None:
            logs["index_age"] = self._done - 1 - self.index_step
            logs["index_minutes"] = (time.time() - self._taken_at) / 60

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Ends the builder; after an exception in `fit` nobody else does."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._built = None
        self._builder.stop()

    def _build(self, step, weights, taken_at):
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            try:
                embeddings = self._builder.build(step, weights, self._stopped)
            # Whatever it was, a full disk say: training goes on with the
            # index it has.
            except Exception as error:
                if not self._stopped.is_set():
                    print(
                        f"index refresh: {type(error).__name__}: {error}; "
                        f"tried again in {pause:.0f} s, training goes on",
                        file=sys.stderr,
                        flush=True,
                    )
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._built = step, taken_at, embeddings
                return


class RetrievalAge(keras.callbacks.Callback):
    """Adds to the logs of each step how old its retrieval is.

    `retrieval_age`: steps from the swap whose query tower and embeddings the
    step's batch was searched with. The embeddings were computed before that
    swap; `index_age` counts from there.

    Args:
        retriever: `HostRetriever`, which gave the batches.
    """

    def __init__(self, retriever):
        super().__init__()
        self._retriever = retriever

    def on_train_begin(self, logs=None):
        self._retriever.steps_done = int(self.model.optimizer.iterations)

    # At the end, so that a swap before the next step finds it counted,
    # whatever the order of the callbacks.
    def on_train_batch_end(self, batch, logs=None):
        age = self._retriever.steps_done - self._retriever.pop_step()
        self._retriever.steps_done += 1
        if logs is not None:
            logs["retrieval_age"] = age


def _sync(model):
    """Gives variables the values of the last step (JAX)."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()
