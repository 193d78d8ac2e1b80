"""Search that scores every row, then takes the largest."""

import keras
from keras import ops

from realm_tf.losses import float32_products
from realm_tf.models import row_shards
from realm_tf.retrieval.index import Index
from realm_tf.retrieval.row_table import ROWS_AT_ONCE
from realm_tf.retrieval.row_table import Rows
from realm_tf.retrieval.row_table import RowTable
from realm_tf.retrieval.row_table import best_rows
from realm_tf.retrieval.row_table import largest


class BruteForce(keras.layers.Layer, Index):
    """Index that scores all blocks, as a Keras layer; its rows are weights.

    It runs on every backend and device. The weights are not trained: a refresh
    assigns them. Products are float32, whatever the precision of the model
    around it. With `quantize` rows take fewer bits, and the search is as exact
    as their rounding (`RowTable`).

    Under a `keras.distribution` on the JAX backend (`training.devices.use_all`),
    each device holds a part of the rows, unless they are quantized, and searches
    it for all queries; the best of all parts are merged. Where the devices do
    not divide `num_blocks`, the weight ends with rows of zeros, which are never
    found.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
            It is not copied if it is mapped from a file (`shared`).
        quantize: str. `"none"`, `"int8"` or `"bfloat16"`. Defaults to `"none"`.
        rows_per_block: int. Rows that are scored at a time, on each device:
            scores take the memory of `(batch_size, rows_per_block)`; the result
            is the same. Defaults to 65,536.

    Example:

    >>> import numpy as np
    >>> index = BruteForce(np.eye(3, dtype="float32"))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> np.asarray(block_ids).tolist()
    [[1, 2]]
    """

    ALWAYS_EXACT = True

    def __init__(
        self,
        embeddings,
        *,
        quantize="none",
        rows_per_block=ROWS_AT_ONCE,
        **kwargs,
    ):
        super().__init__(trainable=False, dtype="float32", **kwargs)
        self.num_blocks, self.embedding_dim = embeddings.shape
        self.is_exact = quantize == "none"
        self._rows_per_block = rows_per_block
        self._sharding = row_shards.sharding() if self.is_exact else None
        self.rows = RowTable(
            embeddings, quantize=quantize, sharding=self._sharding
        )
        self.built = True

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        return cls(files.embeddings, quantize=quantize)

    @property
    def embeddings(self):
        """Weight of the rows; an index of quantized rows has none."""
        if not self.is_exact:
            raise AttributeError("Quantized rows are no embeddings.")
        return self.rows.values

    def prepare(self, embeddings):
        self._check_swap(embeddings)
        return lambda: self.rows.assign(embeddings)

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def search(self, queries, num_candidates, allowed=None):
        self._check_num_candidates(num_candidates)
        queries = ops.cast(queries, "float32")
        with float32_products():
            if self._sharding is None:
                return best_rows(
                    queries,
                    self.rows.read(),
                    num_candidates,
                    rows_at_once=self._rows_per_block,
                    allowed=allowed,
                )
            return self._search_shards(queries, num_candidates, allowed)

    def _search_shards(self, queries, num_candidates, allowed):
        import jax
        from jax.sharding import PartitionSpec

        rows = self.rows.read().values
        axis = self._sharding.spec[0]
        if allowed is None:
            allowed = ops.ones((1, self.num_blocks), "bool")
        # Rows after the last block fill the devices.
        missing = rows.shape[0] - self.num_blocks

        def search_own(queries, rows, allowed):
            scores, places = best_rows(
                queries,
                Rows(rows),
                num_candidates,
                rows_at_once=self._rows_per_block,
                allowed=allowed,
            )
            return scores, jax.lax.axis_index(axis) * rows.shape[0] + places

        # Left to itself, the compiler would bring all scores to every device.
        # `(batch_size, num_devices * num)`: parts are by rising ids, and so
        # are equal scores.
        scores, block_ids = jax.shard_map(
            search_own,
            mesh=self._sharding.mesh,
            in_specs=(
                PartitionSpec(),
                PartitionSpec(axis, None),
                PartitionSpec(None, axis),
            ),
            out_specs=PartitionSpec(None, axis),
        )(queries, rows, ops.pad(allowed, [[0, 0], [0, missing]]))
        return largest(scores, block_ids, num_candidates)
