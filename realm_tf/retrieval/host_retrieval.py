"""Retrieval in the input pipeline, for blocks that no accelerator can hold.

`RealmModel` searches in its step and takes the blocks' wordpieces from a
table on the device. Where table and embeddings are too large for that, the
host finds the candidates while batches are made, as the original does: from
memory-mapped blocks, with a query tower of its own on the processor. What it
searches is older than the step: `training.index_refresh` says by how much.

References:
    [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.3.
    Original code: google-research/language, language/realm.
"""

import collections
import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import remove
from realm_tf.data import feeding
from realm_tf.data.feeding import ReadAhead
from realm_tf.retrieval.numpy_index import NumpyIndex

_CPU = "cpu:0"


@dataclasses.dataclass(eq=False)
class _Version:
    """What a batch is searched with, as a whole.

    Args:
        step: int. Steps done when it was taken.
        weights: list of tensors. Of the query tower.
        index: `Index` of block embeddings.
        num_users: int. The batches that are being made with it, and 1 while it
            is the latest; at 0 its index is closed.
    """

    step: int
    weights: list
    index: object
    num_users: int = 1


class HostRetriever(keras.callbacks.Callback):
    """Adds to batches the candidates that `RealmModel` may read.

    Each batch is made from one version: the block embeddings and the query
    tower's weights as they were at one `swap`. A thread may swap while
    another makes a batch, which is finished with the version it began with.

    It searches with the masked query, without dropout. With the weights and
    the embeddings of the model, candidates are those that an exact index in
    the model would find.

    In place of an index it serves `training.index_refresh` (whose callbacks
    give the model's variables their last values before they call `swap`, and
    which keeps the embeddings). As one of the `parts` of `training.resume`, a
    run that goes on searches with the query tower that it had. As a callback, it counts the steps, and adds to the
    logs of each how old its retrieval is, as `retrieval_age`: steps from the
    swap whose query tower and embeddings the step's batch was searched with.
    The embeddings were computed before that swap; `index_age` counts from
    there.

    Args:
        blocks: `PackedBlocks`. What is retrieved.
        embeddings: float array `(num_blocks, embedding_dim)`, may be
            memory-mapped. Row = block id.
        query_tower: `Embedder`. The model's; its weights are copied now and
            at each swap.
        num_searched: int. Candidates of a query; `num_retrieved + num_spare`
            of the model. Where there are fewer blocks, -1 follows.
        max_block_length: int. Bodies and titles are cut and padded to it, as
            a `BlockTable` of this length would cut them.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.
        make_index: function of embeddings that gives an `Index`, called by
            `prepare`; such as `Scann.build` with the TensorFlow backend.
            Defaults to `NumpyIndex`: exact.
        directory: str. Where `get_state` leaves weights of the query tower;
            local. Made if need be.

    Attributes:
        num_blocks: int. Number of blocks.
        embedding_dim: int. Width of an embedding.
        steps_done: int. Steps of the training so far: the names of versions
            follow from it.
    """

    def __init__(
        self,
        blocks,
        embeddings,
        *,
        query_tower,
        num_searched: int,
        max_block_length: int,
        score_scale: float = 1.0,
        make_index: Callable = NumpyIndex,
        directory: str,
    ):
        super().__init__()
        self.num_blocks, self.embedding_dim = embeddings.shape
        self.steps_done = 0
        self._blocks = blocks
        self._articles = blocks.article_numbers()
        self._query_tower = query_tower
        self._embed = _compile_tower(query_tower, score_scale)
        self._num_searched = num_searched
        self._max_block_length = max_block_length
        self._make_index = make_index
        self._directory = directory
        # The version that is written, and the files of it and the one before.
        self._written = None
        self._kept = collections.deque(maxlen=2)
        self._ahead = None
        self._taken_at = collections.deque()
        self._lock = threading.Lock()
        self._version = None
        self.swap(self.prepare(embeddings))

    def prepare(self, embeddings):
        """An index of new embeddings, in any thread.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
        """
        with keras.device(_CPU):
            return self._make_index(np.asarray(embeddings, "float32"))

    def swap(self, index) -> None:
        """Takes an index, and the query tower's weights as they are.

        The index before is closed when no batch needs it any more.

        Args:
            index: what `prepare` gave.
        """
        weights = self._query_tower.get_weights()
        self._take(index, weights, self.steps_done)

    def _take(self, index, weights, step):
        with keras.device(_CPU):
            # Not views of what training goes on to change.
            weights = [ops.convert_to_tensor(np.array(w)) for w in weights]
        with self._lock:
            before = self._version
            self._version = _Version(step, weights, index)
        if before is not None:
            self._leave(before)

    @contextlib.contextmanager
    def _used(self):
        """The latest version, which is not closed inside."""
        with self._lock:
            version = self._version
            version.num_users += 1
        try:
            yield version
        finally:
            self._leave(version)

    def _leave(self, version):
        with self._lock:
            version.num_users -= 1
            is_over = not version.num_users
        if is_over:
            version.index.close()

    # === Candidates ===

    def add_candidates(self, batch: dict) -> dict:
        """Retrieves for a batch.

        Args:
            batch: dict of int arrays, as `PretrainingExamples` makes it.

        Returns:
            dict of the same arrays and, int32, `candidate_block_ids`,
            `candidate_lengths`, `candidate_title_lengths` and
            `candidate_of_article` `(batch_size, num_searched)`,
            `candidate_token_ids` and `candidate_title_ids` `(batch_size,
            num_searched, max_block_length)`; see `RealmModel`.
        """
        with self._used() as version:
            return self._add_candidates(batch, version)

    def _add_candidates(self, batch, version):
        queries = self._embed(version.weights, batch)
        num = min(self._num_searched, self.num_blocks)
        block_ids = np.full((len(queries), self._num_searched), -1, "int32")
        with keras.device(_CPU):
            block_ids[:, :num] = version.index.search(queries, num)[1]
        own = np.asarray(batch["block_id"])[:, None]
        articles = self._articles[np.maximum(block_ids, 0)]
        of_article = (articles == self._articles[np.maximum(own, 0)]) & (
            (own >= 0) & (block_ids >= 0)
        )
        added = {
            "block_ids": block_ids,
            "of_article": of_article.astype("int32"),
            **self.contents(block_ids),
        }
        return {
            **batch,
            **{f"candidate_{name}": rows for name, rows in added.items()},
        }

    def contents(self, block_ids) -> dict:
        """What blocks say, as `BlockTable` gives it; -1 is an empty block."""
        unique, places = np.unique(block_ids, return_inverse=True)
        shape = (len(unique), self._max_block_length)
        found = {
            "token_ids": np.zeros(shape, "int32"),
            "lengths": np.zeros(len(unique), "int32"),
            "title_ids": np.zeros(shape, "int32"),
            "title_lengths": np.zeros(len(unique), "int32"),
        }
        for row, block_id in enumerate(unique.tolist()):
            if block_id < 0:
                continue
            block = self._blocks[block_id]
            for name, lengths in (
                ("token_ids", "lengths"),
                ("title_ids", "title_lengths"),
            ):
                ids = getattr(block, name)[: self._max_block_length]
                found[name][row, : len(ids)] = ids
                found[lengths][row] = len(ids)
        places = places.reshape(block_ids.shape)
        return {name: rows[places] for name, rows in found.items()}

    # === Batches ===

    def batches(self, function: Callable, *, prefetch: int) -> Callable:
        """Batches with candidates from batches without.

        Of what the function that is returned gives, use the latest only: an
        earlier one is ended.

        Args:
            function: function of (epoch, step) that gives an iterator, such
                as `ExampleBatches.batches`.
            prefetch: int. Batches that a thread makes ahead. 0: each is made
                when it is asked for (see `data.feeding.on_demand` for when Keras asks).

        Returns:
            function of (epoch, step) that gives an iterator. What the thread
            raises, it raises; the thread ends with it.
        """

        def retrieved(epoch=0, step=0):
            self.close()
            made = self._make(function(epoch, step))
            if prefetch:
                made = self._ahead = ReadAhead(made, prefetch)
            taken_at = self._taken_at = collections.deque()
            return _deliver(made, taken_at)

        return retrieved

    def close(self) -> None:
        """Ends the thread, if there is one."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def on_train_begin(self, logs=None):
        self.steps_done = feeding.steps_done(self.model.optimizer)

    # At the end, so that a swap before the next step finds it counted,
    # whatever the order of the callbacks.
    def on_train_batch_end(self, batch, logs=None):
        age = self.steps_done - self._taken_at.popleft()
        self.steps_done += 1
        if logs is not None:
            logs["retrieval_age"] = age

    def _make(self, batches):
        for batch in batches:
            with self._used() as version:
                made = self._add_candidates(batch, version), version.step
            yield made

    # === State ===

    def get_state(self):
        """What `training.resume` keeps of this: the step of a version, whose
        weights are left in `directory`."""
        version = self._version
        if version is not self._written:
            os.makedirs(self._directory, exist_ok=True)
            weight_files.write(
                self._path(version.step),
                weight_files.by_number(version.weights),
            )
            self._is_written(version)
        # A state that is not yet written may be lost: the one before counts.
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if path not in self._kept:
                remove(path)
        return {"step": version.step}

    def set_state(self, state):
        """Takes up what `get_state` gave; the embeddings that it began with
        are those of the version already."""
        step = state["step"]
        weights = weight_files.read(self._path(step)).values()
        with keras.device(_CPU):
            self._version.weights = list(map(ops.convert_to_tensor, weights))
        self._version.step = step
        self._is_written(self._version)

    def _path(self, step):
        return os.path.join(self._directory, f"{step:08d}.npz")

    def _is_written(self, version):
        self._written = version
        path = self._path(version.step)
        if path not in self._kept:
            self._kept.append(path)


def _compile_tower(query_tower, score_scale):
    """A function of weights and batch: scaled queries, float32 arrays."""
    with keras.device(_CPU):
        tower = query_tower.copy()

    def embed(weights, token_ids, padding_mask):
        # The copy has no state that threads could race for.
        with keras.StatelessScope(zip(tower.weights, weights, strict=True)):
            queries = score_scale * tower(
                {
                    "token_ids": token_ids,
                    "segment_ids": ops.zeros_like(token_ids),
                    "padding_mask": padding_mask,
                },
                training=False,
            )
        return ops.cast(queries, "float32")

    # TensorFlow's compiled functions would wait for threads that may wait for
    # the batch.
    if keras.backend.backend() == "jax":
        import jax

        embed = jax.jit(embed)

    def embed_on_host(weights, batch):
        with keras.device(_CPU):
            inputs = (
                ops.convert_to_tensor(batch[name])
                for name in ("token_ids", "padding_mask")
            )
            return np.asarray(embed(weights, *inputs))

    return embed_on_host


def _deliver(made, taken_at):
    try:
        for batch, step in made:
            taken_at.append(step)
            yield batch
    finally:
        made.close()
