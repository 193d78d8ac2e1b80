"""Embeds blocks with a model's block tower, batch by batch."""

import collections
import concurrent.futures
import threading
from collections.abc import Callable

import keras
import numpy as np

from realm_tf.models.cpu_operations import only_for_this_process
from realm_tf.models.precision import accelerator
from realm_tf.text import packing

# Rows are padded to a multiple of this.
_LENGTH_STEP = 8
# The same on an accelerator, where each shape is compiled for seconds: 50,000
# blocks of all lengths took an H100 153 s with steps of 8, a million of one
# length took three processes 221 s.
_LENGTH_STEP_ON_ACCELERATORS = 64
# Blocks that each of several devices embeds at once.
_ROWS_PER_DEVICE = 8
# Batches that TensorFlow computes at once: one uses the cores that the other
# leaves idle. 1.2 times the blocks a second of one at a time
# (MiniLM in bfloat16, two cores).
_BATCHES_AT_ONCE = 2


class BlockEmbedder:
    """The block tower with its packing: title and body to an embedding.

    Args:
        loaded: `LoadedModel`.
        max_length: int. Most wordpieces of `[CLS] title [SEP] body [SEP]`.
        tower: `Embedder`. Defaults to `None`: that of `loaded`.
    """

    def __init__(self, loaded, *, max_length: int, tower=None):
        self._loaded = loaded
        self._max_length = max_length
        self._tower = tower or loaded.model.block_embedder

    @property
    def embedding_dim(self) -> int:
        """Width of an embedding."""
        return self._tower.embedding_dim

    def embed_ids(self, title_ids, token_ids):
        """Embeddings of blocks given as wordpieces.

        Args:
            title_ids: list of lists of int.
            token_ids: list of lists of int. Bodies.

        Returns:
            `(embeddings, padding_mask)`: float32 `(batch_size,
            embedding_dim)` and int32 `(batch_size, length)` arrays.
        """
        tokenizer = self._loaded.tokenizer
        rows = list(zip(title_ids, token_ids, strict=True))
        longest = max(len(title) + len(body) for title, body in rows) + 3
        step = _LENGTH_STEP_ON_ACCELERATORS if accelerator() else _LENGTH_STEP
        rounded = -(-longest // step) * step
        inputs = packing.join_bert(
            rows,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
            max_length=min(rounded, self._max_length),
            segment_ids=self._loaded.block_segment_ids,
        )
        embeddings = predict(self._tower, inputs)
        return np.asarray(embeddings, "float32"), inputs["padding_mask"]

    def embed_all(
        self,
        lengths,
        read: Callable,
        *,
        batch_size: int,
        after_batch: Callable = lambda num_done: None,
    ) -> np.ndarray:
        """Embeddings of many blocks, in batches of like length.

        A batch is as wide as its longest block: sorted by length, little of
        what is computed is padding. Equal lengths stay in order, so the same
        blocks always make the same batches.

        Args:
            lengths: int array `(num_blocks,)`. Wordpieces of title and body.
            read: function of an int array of places that gives the
                `(title_ids, token_ids)` of these blocks, see `embed_ids`.
            batch_size: int. Blocks computed at once.
            after_batch: function of how many blocks are done, never called by
                two threads at once. An exception ends this. Defaults to
                nothing.

        Returns:
            float32 array `(num_blocks, embedding_dim)`.
        """
        found = np.empty((len(lengths), self.embedding_dim), "float32")
        order = np.argsort(lengths, kind="stable")
        lock = threading.Lock()
        num_done = 0

        def embed(first):
            nonlocal num_done
            places = order[first : first + batch_size]
            with lock:
                rows = read(places)
            found[places], _ = self.embed_ids(*rows)
            with lock:
                num_done += len(places)
                after_batch(num_done)

        firsts = range(0, len(order), batch_size)
        if _in_threads():
            with concurrent.futures.ThreadPoolExecutor(
                _BATCHES_AT_ONCE
            ) as pool:
                # Raises what a batch raised, and begins no further one.
                collections.deque(pool.map(embed, firsts), maxlen=0)
        else:
            for first in firsts:
                embed(first)
        return found


def _in_threads():
    """Whether batches may be computed at once.

    Keras' JAX backend keeps a model's state while it computes, and another
    thread does not see the `keras.distribution` of this one.
    """
    is_alone = keras.distribution.distribution() is None
    return is_alone and keras.backend.backend() == "tensorflow"


def predict(model, inputs: dict):
    """The outputs of rows that do not depend on each other.

    They are compiled, which a plain call is not. Several devices in use each
    take a part of them. As Keras refuses a batch that devices cannot share
    evenly, it is filled up with repetitions of the last row.

    Args:
        model: `keras.Model` of one output.
        inputs: dict of arrays `(num_rows, ...)`, at least one row.

    Returns:
        float array of `num_rows` rows.
    """
    if keras.distribution.distribution() is None:
        with only_for_this_process():
            return model.predict_on_batch(inputs)
    batch_size = _ROWS_PER_DEVICE * len(keras.distribution.list_devices())
    num_rows = len(next(iter(inputs.values())))
    added = -num_rows % batch_size
    inputs = {
        name: np.concatenate([rows, np.repeat(rows[-1:], added, axis=0)])
        for name, rows in inputs.items()
    }
    outputs = model.predict(inputs, batch_size=batch_size, verbose=0)
    return outputs[:num_rows]
