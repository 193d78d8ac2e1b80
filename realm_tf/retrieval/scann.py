"""Approximate search with ScaNN's TensorFlow op, in the graph."""

import copy
import math
import uuid

import numpy as np

from realm_tf.errors import InputError
from realm_tf.retrieval.index import Index

REORDERINGS = ("float32", "int8")
# From docs/algorithms.md of google-research/scann: brute force below 20,000
# points, no partitioning below 100,000, about sqrt(n) leaves above.
_MIN_BLOCKS_FOR_HASHING = 20_000
_MIN_BLOCKS_FOR_TREE = 100_000
# Our choice: half a percent of the leaves would be fast, but recall@5 of a
# retriever is worth more than microseconds.
_SEARCHED_FRACTION = 0.1
_TRAINING_SAMPLE = 250_000


def _scann_ops():
    try:
        from scann.scann_ops.py import scann_ops
    except ImportError as error:
        raise InputError(
            "The index kind 'scann' needs the package scann (Linux x86-64): "
            'pip install "scann>=1.4.2,<1.5". Elsewhere use --kind ivf.'
        ) from error
    return scann_ops


def _configure(builder, *, num_blocks, reordering, num_reordered):
    """The sequence of ScaNN stages for this many points."""
    quantize = reordering == "int8"
    if num_blocks < _MIN_BLOCKS_FOR_HASHING:
        return builder.score_brute_force(quantize=quantize)
    if num_blocks >= _MIN_BLOCKS_FOR_TREE:
        num_leaves = round(math.sqrt(num_blocks))
        builder = builder.tree(
            num_leaves=num_leaves,
            num_leaves_to_search=max(1, round(num_leaves * _SEARCHED_FRACTION)),
            training_sample_size=min(num_blocks, _TRAINING_SAMPLE),
        )
    # Two dimensions a block, as the original's and ScaNN's documentation.
    return builder.score_ah(
        2,
        anisotropic_quantization_threshold=0.2,
        training_sample_size=min(num_blocks, _TRAINING_SAMPLE),
    ).reorder(min(num_reordered, num_blocks), quantize=quantize)


class Scann(Index):
    """ScaNN index; the searcher is a TensorFlow resource.

    The number of blocks decides the stages: below 20,000 every block is
    scored (as float32 or int8); from there on hashed scores choose
    `num_reordered` blocks that are scored again; from 100,000 on a tree
    leaves most of the blocks out. Only for the TensorFlow backend, on CPU.

    Build one with `Scann.build`, or `Scann(state)` from a saved state.

    Args:
        state: dict of numpy arrays, ScaNN's own serialised form (see
            `state`).
        num_blocks: int. Rows.
        embedding_dim: int. Width of a row.
        reordering: str. `"float32"` or `"int8"`. Defaults to `"float32"`.
        num_reordered: int. Blocks that are scored again. Defaults to `200`.

    References:
        [Guo et al., 2020](https://arxiv.org/abs/1908.10396).
    """

    def __init__(
        self,
        state,
        *,
        num_blocks,
        embedding_dim,
        reordering="float32",
        num_reordered=200,
        searcher=None,
    ):
        ops = _scann_ops()
        self._num_blocks = num_blocks
        self._embedding_dim = embedding_dim
        self._reordering = reordering
        self._num_reordered = num_reordered
        self._shared_name = None
        if searcher is None:
            self.module = _state_module(ops, state)
            searcher = ops.ScannSearcher(_named_handle(ops, self.module))
        else:
            searcher, self._shared_name = searcher
            self.module = searcher.serialize_to_module()
        self._searcher = searcher

    OPTIONS = ("reordering", "num_reordered")

    @classmethod
    def build(
        cls,
        embeddings,
        *,
        reordering="float32",
        num_reordered=200,
        report=None,
    ):
        """An index over embeddings.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
            reordering: str. What the best candidates are scored with:
                `"float32"` (exact) or `"int8"` (a third of the memory).
                Defaults to `"float32"`.
            num_reordered: int. How many candidates are scored again, from
                20,000 blocks on. Defaults to `200`.
            report: not used, as ScaNN says nothing while it builds.

        Returns:
            `Scann`.

        Raises:
            InputError: if `reordering` is neither, `num_reordered` is not
                positive, or ScaNN is missing.
        """
        if reordering not in REORDERINGS:
            raise InputError(
                f"`reordering` must be one of {REORDERINGS}: ScaNN's op can "
                f"not be saved with others. Received: {reordering!r}"
            )
        if num_reordered < 1:
            raise InputError(
                "`num_reordered` must be at least 1. "
                f"Received: num_reordered={num_reordered}"
            )
        shared_name = f"realm-scann-{uuid.uuid4()}"
        searcher = _build_searcher(
            embeddings, shared_name, reordering, num_reordered
        )
        return cls(
            None,
            num_blocks=embeddings.shape[0],
            embedding_dim=embeddings.shape[1],
            reordering=reordering,
            num_reordered=num_reordered,
            searcher=(searcher, shared_name),
        )

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        if quantize != "none":
            raise InputError(
                f"{files} is a ScaNN index, which holds its rows as it was "
                f"built: expected quantize='none', received {quantize!r}; "
                "build it with `realm index --reordering int8` instead."
            )
        return cls(
            files.state(STATE_NAMES),
            num_blocks=files.num_blocks,
            embedding_dim=files.metadata["embedding_dim"],
            reordering=files.parameters["reordering"],
            num_reordered=files.parameters["num_reordered"],
        )

    @property
    def num_blocks(self):
        return self._num_blocks

    @property
    def embedding_dim(self):
        return self._embedding_dim

    @property
    def is_exact(self):
        return (
            self._num_blocks < _MIN_BLOCKS_FOR_HASHING
            and self._reordering == "float32"
        )

    def state(self) -> dict:
        """ScaNN's serialised form: name to numpy array."""
        state = {}
        for name in STATE_NAMES:
            value = getattr(self.module, name).numpy()
            if name in _STRING_STATE:
                state[name] = _string_to_array(value)
            elif value.ndim:
                state[name] = value
            else:
                # A part that this searcher has not: ScaNN gives a scalar of
                # uninitialised memory, which would differ from run to run.
                state[name] = np.zeros_like(value)
        return state

    def search(self, queries, num_candidates):
        import tensorflow as tf

        self._check_num_candidates(num_candidates)
        if keras_backend() != "tensorflow":
            raise InputError(
                "The index kind 'scann' is a TensorFlow op and the Keras "
                f"backend is {keras_backend()!r}: use --kind ivf or brute_force."
            )
        searcher = self._searcher or _scann_ops().searcher_from_module(
            self.module
        )
        block_ids, scores = searcher.search_batched(
            tf.cast(queries, tf.float32),
            final_num_neighbors=num_candidates,
            pre_reorder_num_neighbors=max(num_candidates, self._num_reordered),
        )
        # Of no queries ScaNN gives no columns, either.
        shape = (tf.shape(queries)[0], num_candidates)
        block_ids = tf.cast(block_ids, tf.int32)
        return tf.reshape(scores, shape), tf.reshape(block_ids, shape)

    def for_graph(self):
        """As `Index.for_graph`; track its `module` in what is saved.

        The searcher is made again from the state's variables, which the
        SavedModel holds, when the graph first runs; the resource of this
        process means nothing there.
        """
        index = copy.copy(self)
        index._searcher = None
        return index

    def swap(self, embeddings):
        """Takes new embeddings; compiled searches see them at once.

        The searcher is rebuilt under the name of the old one, so this must
        not run while a search does: a trainer swaps between two steps. A
        server loads a new SavedModel version instead.
        """
        import tensorflow as tf

        self._check_swap(embeddings)
        if self._shared_name is None:
            raise InputError(
                "An index loaded from a directory is read-only: build one "
                "with `Scann.build` to refresh it in training."
            )
        tf.raw_ops.DestroyResourceOp(resource=self._searcher.searcher_handle)
        searcher = _build_searcher(
            embeddings,
            self._shared_name,
            self._reordering,
            self._num_reordered,
        )
        new_module = searcher.serialize_to_module()
        for name in STATE_NAMES:
            getattr(self.module, name).assign(getattr(new_module, name))
        self._searcher = searcher

    def close(self) -> None:
        """Frees the searcher's memory; Python's collector does not."""
        import tensorflow as tf

        tf.raw_ops.DestroyResourceOp(resource=self._searcher.searcher_handle)


# The variables of scann_ops.ScannState, in the order of its constructor.
STATE_NAMES = (
    "scann_config",
    "serialized_partitioner",
    "datapoint_to_token",
    "ah_codebook",
    "hashed_dataset",
    "int8_dataset",
    "int8_multipliers",
    "dp_norms",
    "dataset",
)
# Serialised protos: strings to TensorFlow, uint8 on disk.
_STRING_STATE = ("scann_config", "serialized_partitioner", "ah_codebook")


def keras_backend() -> str:
    """The Keras backend in use."""
    import keras

    return keras.backend.backend()


def _build_searcher(embeddings, shared_name, reordering, num_reordered):
    builder = _scann_ops().builder(
        np.ascontiguousarray(embeddings, dtype="float32"),
        # Only the default of a search without a number of its own.
        min(10, len(embeddings)),
        "dot_product",
    )
    builder = _configure(
        builder,
        num_blocks=len(embeddings),
        reordering=reordering,
        num_reordered=num_reordered,
    )
    return builder.build(shared_name=shared_name)


def _named_handle(ops, module):
    # Without a name of its own the searcher would live in the kernel cache,
    # which setting a random seed clears.
    return ops.tensors_to_scann(
        module.dataset,
        module.scann_config,
        module.serialized_partitioner,
        module.datapoint_to_token,
        module.ah_codebook,
        module.hashed_dataset,
        module.int8_dataset,
        module.int8_multipliers,
        module.dp_norms,
        shared_name=f"realm-scann-{uuid.uuid4()}",
    )


def _state_module(ops, state):
    import tensorflow as tf

    return ops.ScannState(
        [
            tf.constant(
                _array_to_string(state[name])
                if name in _STRING_STATE
                else state[name]
            )
            for name in STATE_NAMES
        ]
    )


def _string_to_array(value):
    # A scalar string, or one string in a list: `(1, length)`.
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype="uint8")
    (string,) = value
    return np.frombuffer(string, dtype="uint8")[None]


def _array_to_string(array):
    return array.tobytes() if array.ndim == 1 else [array.tobytes()]
