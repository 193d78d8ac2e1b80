"""Search that scores every row, then takes the largest."""

import keras
import numpy as np
from keras import ops

from realm_tf.losses import float32_products
from realm_tf.models import row_shards
from realm_tf.models.fixed_weight import fixed_weight
from realm_tf.retrieval.exhaustive import best_rows
from realm_tf.retrieval.exhaustive import largest
from realm_tf.retrieval.index import Index
from realm_tf.retrieval.row_table import ROWS_AT_ONCE
from realm_tf.retrieval.row_table import Rows
from realm_tf.retrieval.row_table import RowTable


class _Exhaustive(keras.layers.Layer, Index):
    """Scores blocks of rows and keeps the best of them all.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
        rows_per_block: int, or `None` for all at once.
    """

    _num_devices = 1

    def __init__(self, embeddings, *, rows_per_block, **kwargs):
        super().__init__(trainable=False, dtype="float32", **kwargs)
        self.num_blocks, self.embedding_dim = embeddings.shape
        self._rows_per_block = rows_per_block

    def search(self, queries, num_candidates, allowed=None):
        self._check_num_candidates(num_candidates)
        with float32_products():
            return self._search(
                ops.cast(queries, "float32"), num_candidates, allowed
            )

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def _search_rows(
        self, queries, rows, num_candidates, allowed=None, first_id=0
    ):
        """The best of `rows`, whose first is block `first_id`.

        `num_candidates` of them, or all rows if they are fewer; of equal
        scores the smaller id first.
        """
        num_rows = rows.values.shape[0]
        if num_rows * self._num_devices > self.num_blocks:
            # What is beyond the last block fills the devices.
            is_row = first_id + ops.arange(num_rows) < self.num_blocks
            allowed = is_row[None] if allowed is None else allowed & is_row
        scores, places = best_rows(
            queries,
            rows,
            num_candidates,
            rows_at_once=self._rows_per_block,
            allowed=allowed,
        )
        return scores, first_id + places


class BruteForce(_Exhaustive):
    """Exact index as a Keras layer; its embeddings are a weight.

    Runs on every backend and device. The weight is not trained: a refresh
    assigns it. Products are float32, whatever the precision of the model
    around it.

    Made under a `keras.distribution` on the JAX backend (see
    `training.devices.use_all`), which copies other weights to every device,
    each device holds its part of the rows and searches that for all queries;
    the best of all parts are merged. Where the devices do not divide
    `num_blocks`, the weight ends with rows of zeros, which are never found.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
        rows_per_block: int. Score so many rows at a time, on each device, so
            that scores take the memory of `(batch_size, rows_per_block)` and
            not of `(batch_size, num_blocks)`; what is found is the same. For
            many queries at once 65,536 is also faster on a CPU, for one it is
            slower with JAX. Defaults to `None`: all at once.

    Example:

    >>> index = BruteForce(np.eye(3, dtype="float32"))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> np.asarray(block_ids).tolist()
    [[1, 2]]
    """

    ALWAYS_EXACT = True
    is_exact = True

    def __init__(self, embeddings, *, rows_per_block=None, **kwargs):
        super().__init__(embeddings, rows_per_block=rows_per_block, **kwargs)
        self._sharding = row_shards.sharding()
        if self._sharding is not None:
            self._num_devices = row_shards.num_devices(self._sharding)
        with keras.name_scope(self.name):
            self.embeddings = fixed_weight(
                self._place(embeddings), "embeddings", layout=self._sharding
            )
        self.built = True

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        if quantize != "none":
            return QuantizedBruteForce(files.embeddings, quantize=quantize)
        return cls(files.embeddings)

    def swap(self, embeddings):
        self._check_swap(embeddings)
        self.embeddings.assign(self._place(embeddings))

    def for_graph(self):
        # Whoever serves the graph has little memory for scores.
        self._rows_per_block = self._rows_per_block or ROWS_AT_ONCE
        return self

    def _place(self, embeddings):
        """The rows, each copied only to the device that searches it."""
        rows = np.asarray(embeddings, dtype="float32")
        if self._sharding is None:
            return rows
        return row_shards.place(rows, self._sharding)

    def _search(self, queries, num_candidates, allowed=None):
        rows = ops.convert_to_tensor(self.embeddings)
        if self._sharding is None:
            return self._search_rows(
                queries, Rows(rows), num_candidates, allowed
            )
        import jax
        from jax.sharding import PartitionSpec

        axis = self._sharding.spec[0]
        if allowed is None:
            allowed = ops.ones((1, self.num_blocks), "bool")
        missing = rows.shape[0] - self.num_blocks

        def search_own(queries, rows, allowed):
            first_id = jax.lax.axis_index(axis) * rows.shape[0]
            return self._search_rows(
                queries, Rows(rows), num_candidates, allowed, first_id
            )

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


class QuantizedBruteForce(_Exhaustive):
    """`BruteForce` over rows held in fewer bits; on one device.

    Every row is scored, so what is missed is what rounding moved: `RowTable`
    says by how much.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id;
            it may be mapped from a file.
        quantize: str. `"int8"` or `"bfloat16"`.
        rows_per_block: int. Rows that are float32 at once. Defaults to
            65,536.

    Raises:
        InputError: if `quantize` is another.
    """

    is_exact = False

    def __init__(
        self, embeddings, *, quantize, rows_per_block=ROWS_AT_ONCE, **kwargs
    ):
        super().__init__(embeddings, rows_per_block=rows_per_block, **kwargs)
        self.rows = RowTable(embeddings, quantize=quantize)
        self.built = True

    def swap(self, embeddings):
        self._check_swap(embeddings)
        self.rows.assign(embeddings)

    def _search(self, queries, num_candidates, allowed=None):
        return self._search_rows(
            queries, self.rows.read(), num_candidates, allowed
        )
