"""Exact search: every inner product, then the largest."""

import keras
import numpy as np
from keras import ops

from realm_tf.retrieval.index import Index
from realm_tf.retrieval.row_table import ROWS_AT_ONCE
from realm_tf.retrieval.row_table import RowTable
from realm_tf.retrieval.row_table import float32_products


class BruteForce(keras.layers.Layer, Index):
    """Exact index as a Keras layer; its embeddings are a weight.

    Runs on every backend and device. The weight is not trained: a refresh
    assigns it. Products are float32, whatever the precision of the model
    around it.

    Made under a `keras.distribution` on the JAX backend (see
    `training.devices.use_all`), which copies other weights to every device,
    each device holds its part of the rows and searches that for all queries;
    the best of all parts are merged. Where the devices do not divide
    `num_blocks`, the weight ends with rows of zeros, which are never found
    and not written to files of weights.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
        rows_per_block: int. Score so many rows at a time, on each device, so
            that scores take the memory of `(batch_size, rows_per_block)` and
            not of `(batch_size, num_blocks)`; what is found is the same. For
            many queries at once 65,536 is also faster on a CPU, for one it is
            slower with JAX. Defaults to `None`: all at once.

    Raises:
        ValueError: if `rows_per_block` is not positive.

    Example:

    >>> index = BruteForce(np.eye(3, dtype="float32"))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> np.asarray(block_ids).tolist()
    [[1, 2]]
    """

    def __init__(self, embeddings, *, rows_per_block=None, **kwargs):
        super().__init__(trainable=False, dtype="float32", **kwargs)
        if rows_per_block is not None and rows_per_block < 1:
            raise ValueError(
                "`rows_per_block` must be positive, or None for all rows at "
                f"once. Received: rows_per_block={rows_per_block}"
            )
        self._num_blocks, self._embedding_dim = embeddings.shape
        self._rows_per_block = rows_per_block
        self._sharding = _sharding_of_rows()
        with keras.name_scope(self.name):
            self.embeddings = keras.Variable(
                self._place(embeddings),
                dtype="float32",
                trainable=False,
                # A model of mixed precision would cast the table every time.
                autocast=False,
                name="embeddings",
                layout=self._sharding,
            )
        self.built = True

    ALWAYS_EXACT = True

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        if quantize != "none":
            return QuantizedBruteForce(files.embeddings, quantize=quantize)
        return cls(files.embeddings)

    @property
    def num_blocks(self):
        return self._num_blocks

    @property
    def embedding_dim(self):
        return self._embedding_dim

    @property
    def is_exact(self):
        return True

    def search(self, queries, num_candidates):
        self._check_num_candidates(num_candidates)
        queries = ops.cast(queries, "float32")
        rows = ops.convert_to_tensor(self.embeddings)
        if self._sharding is None:
            return self._search_rows(queries, rows, 0, num_candidates)
        return self._search_shards(queries, rows, num_candidates)

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def swap(self, embeddings):
        self._check_swap(embeddings)
        self.embeddings.assign(self._place(embeddings))

    def for_graph(self):
        # Whoever serves the graph has little memory for scores.
        self._rows_per_block = self._rows_per_block or ROWS_AT_ONCE
        return self

    def save_own_variables(self, store):
        store["0"] = np.asarray(self.embeddings)[: self.num_blocks]

    def load_own_variables(self, store):
        self.swap(np.asarray(store["0"]))

    def _place(self, embeddings):
        """The rows, each copied only to the device that searches it."""
        if self._sharding is None:
            return np.asarray(embeddings, dtype="float32")
        import jax

        num_devices = self._sharding.mesh.shape[self._sharding.spec[0]]
        rows_per_device = -(-self.num_blocks // num_devices)
        shape = (num_devices * rows_per_device, self.embedding_dim)

        def part(index):
            start, limit, _ = index[0].indices(shape[0])
            rows = np.asarray(embeddings[start:limit], dtype="float32")
            return np.pad(rows, [[0, limit - start - len(rows)], [0, 0]])

        return jax.make_array_from_callback(shape, self._sharding, part)

    def _search_shards(self, queries, rows, num_candidates):
        import jax
        from jax.sharding import PartitionSpec

        axis = self._sharding.spec[0]

        def search_own(queries, rows):
            first_id = jax.lax.axis_index(axis) * rows.shape[0]
            return self._search_rows(queries, rows, first_id, num_candidates)

        # Left to itself, the compiler would bring all scores to every device.
        # `(batch_size, num_devices * num)`: parts are by rising ids, and so
        # are equal scores.
        scores, block_ids = jax.shard_map(
            search_own,
            mesh=self._sharding.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(axis, None)),
            out_specs=PartitionSpec(None, axis),
        )(queries, rows)
        return _largest(scores, block_ids, num_candidates)

    def _search_rows(self, queries, rows, first_id, num_candidates):
        """The best of `rows`, whose first is block `first_id`.

        `num_candidates` of them, or all rows if they are fewer.
        """

        def search_block(start, size, lowest_row):
            part = rows
            if size < rows.shape[0]:
                part = ops.slice(rows, (start, 0), (size, self.embedding_dim))
            lowest_id = None if lowest_row is None else first_id + lowest_row
            return self._search_block(
                queries, part, first_id + start, num_candidates, lowest_id
            )

        return _best_of_blocks(
            search_block,
            num_rows=rows.shape[0],
            rows_per_block=self._rows_per_block,
            num_candidates=num_candidates,
        )

    def _search_block(
        self, queries, rows, first_id, num_candidates, lowest_id=None
    ):
        """As `_search_rows`, at once; ids below `lowest_id` are not found."""
        num_rows = rows.shape[0]
        scores = self._relevance_scores(queries, rows)
        block_ids = first_id + ops.arange(num_rows, dtype="int32")
        if lowest_id is not None:
            scores = ops.where(block_ids < lowest_id, -np.inf, scores)
        if self.embeddings.shape[0] > self.num_blocks:
            scores = ops.where(block_ids >= self.num_blocks, -np.inf, scores)
        scores, places = self._top_k(scores, min(num_candidates, num_rows))
        return scores, first_id + ops.cast(places, "int32")

    def _relevance_scores(self, queries, rows):
        with float32_products():
            return ops.einsum("bd,nd->bn", queries, rows)

    def _top_k(self, scores, num_candidates):
        return ops.top_k(scores, num_candidates)


class QuantizedBruteForce(keras.layers.Layer, Index):
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

    def __init__(
        self, embeddings, *, quantize, rows_per_block=ROWS_AT_ONCE, **kwargs
    ):
        super().__init__(trainable=False, dtype="float32", **kwargs)
        self._rows_per_block = rows_per_block
        self.rows = RowTable(embeddings, quantize=quantize)
        self.built = True

    @property
    def num_blocks(self):
        return self.rows.num_rows

    @property
    def embedding_dim(self):
        return self.rows.embedding_dim

    @property
    def is_exact(self):
        return False

    def search(self, queries, num_candidates):
        self._check_num_candidates(num_candidates)
        queries = ops.cast(queries, "float32")
        rows = self.rows.read()

        def search_block(start, size, lowest_row):
            scores = rows.score_slice(queries, start, size)
            block_ids = start + ops.arange(size, dtype="int32")
            if lowest_row is not None:
                scores = ops.where(block_ids < lowest_row, -np.inf, scores)
            scores, places = ops.top_k(scores, min(num_candidates, size))
            return scores, start + ops.cast(places, "int32")

        return _best_of_blocks(
            search_block,
            num_rows=self.num_blocks,
            rows_per_block=self._rows_per_block,
            num_candidates=num_candidates,
        )

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def swap(self, embeddings):
        self._check_swap(embeddings)
        self.rows.assign(embeddings)


def _sharding_of_rows():
    """How rows lie on the devices in use; `None` if nothing is shared."""
    distribution = keras.distribution.distribution()
    if keras.backend.backend() != "jax" or distribution is None:
        return None
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec

    return NamedSharding(
        distribution.device_mesh.backend_mesh,
        PartitionSpec(distribution.batch_dim_name, None),
    )


def _best_of_blocks(search_block, *, num_rows, rows_per_block, num_candidates):
    """The best of all rows, from the best of each block of rows.

    Args:
        search_block: function of the first row of a block, its size, and the
            lowest row that may be found in it (`None`: any), that gives the
            scores and ids of at most `num_candidates`, best first.
        num_rows: int.
        rows_per_block: int, or `None` for all at once.
        num_candidates: int. If rows are fewer, they are all found.

    Returns:
        `(scores, block_ids)`; of equal scores the smaller row first.
    """
    size = min(rows_per_block or num_rows, num_rows)
    num_candidates = min(num_candidates, num_rows)
    if size == num_rows:
        return search_block(0, size, None)

    def step(number, best):
        # A last block that is not full overlaps the one before it.
        start = ops.minimum(number * size, num_rows - size)
        found = search_block(
            start, size, number * size if num_rows % size else None
        )
        scores, block_ids = (
            ops.concatenate(pair, axis=1)
            for pair in zip(best, found, strict=True)
        )
        return _largest(scores, block_ids, num_candidates)

    scores, block_ids = search_block(0, size, None)
    # Places of those that a block of fewer rows cannot give.
    missing = [[0, 0], [0, num_candidates - block_ids.shape[1]]]
    best = (
        ops.pad(scores, missing, constant_values=-np.inf),
        ops.pad(block_ids, missing, constant_values=-1),
    )
    return ops.fori_loop(1, -(-num_rows // size), step, best)


def _largest(scores, block_ids, num_candidates):
    """The best candidates; of equal ones those that come first."""
    scores, places = ops.top_k(scores, num_candidates)
    return scores, ops.take_along_axis(block_ids, places, axis=1)
