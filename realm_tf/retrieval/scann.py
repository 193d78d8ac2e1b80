"""Approximate search with ScaNN's TensorFlow op, in the graph."""

import copy
import math
import uuid

import keras
import numpy as np

from realm_tf.errors import InputError
from realm_tf.models.fixed_weight import shared
from realm_tf.retrieval.index import Index

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


class Scann(Index):
    """ScaNN index; the searcher is a TensorFlow resource.

    The number of blocks decides the stages: below 20,000 every block is
    scored (as float32 or int8); from there on hashed scores choose
    `num_reordered` blocks that are scored again; from 100,000 on a tree
    leaves most of the blocks out. Only for the TensorFlow backend, on CPU.

    Make one with `build` or `from_files`.

    Args:
        searcher: `scann_ops.ScannSearcher`.
        module: `scann_ops.ScannState`. Its serialised form.
        shared_name: str. Of the resource.
        num_blocks: int. Rows.
        embedding_dim: int. Width of a row.
        reordering: str. `"float32"` or `"int8"`.
        num_reordered: int. Blocks that are scored again.

    References:
        [Guo et al., 2020](https://arxiv.org/abs/1908.10396).
    """

    def __init__(
        self,
        searcher,
        module,
        shared_name,
        *,
        num_blocks,
        embedding_dim,
        reordering,
        num_reordered,
    ):
        self._searcher = searcher
        self.module = module
        self._shared_name = shared_name
        self.num_blocks = num_blocks
        self.embedding_dim = embedding_dim
        self.is_exact = (
            num_blocks < _MIN_BLOCKS_FOR_HASHING and reordering == "float32"
        )
        self._reordering = reordering
        self._num_reordered = num_reordered

    OPTIONS = ("reordering", "num_reordered")

    @classmethod
    def build(
        cls,
        embeddings,
        *,
        reordering="float32",
        num_reordered=200,
    ):
        """An index over embeddings.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
            reordering: str. What the best candidates are scored with:
                `"float32"` (exact) or `"int8"` (a third of the memory).
                Defaults to `"float32"`.
            num_reordered: int. How many candidates are scored again, from
                20,000 blocks on. Defaults to `200`.

        Returns:
            `Scann`.

        Raises:
            InputError: if `num_reordered` is not positive, or ScaNN is
                missing.
        """
        if num_reordered < 1:
            raise InputError(
                "`num_reordered` must be at least 1. "
                f"Received: num_reordered={num_reordered}"
            )
        shared_name = _new_name()
        searcher = _build_searcher(
            embeddings, shared_name, reordering, num_reordered
        )
        return cls(
            searcher,
            searcher.serialize_to_module(),
            shared_name,
            num_blocks=embeddings.shape[0],
            embedding_dim=embeddings.shape[1],
            reordering=reordering,
            num_reordered=num_reordered,
        )

    @classmethod
    def from_files(cls, files, *, quantize="none"):
        if quantize != "none":
            raise InputError(
                f"{files} is a ScaNN index, which holds its rows as it was "
                f"built: expected quantize='none', received {quantize!r}; "
                "build it with `realm index --reordering int8` instead."
            )
        import tensorflow as tf

        ops = _scann_ops()
        state = files.state(_kept(files.parameters["reordering"]))
        tensors = []
        for name in STATE_NAMES:
            value = state.get(name, files.embeddings)
            if name in _STRING_STATE:
                # A scalar string, or one string in a list: `(1, length)`.
                string = value.tobytes()
                value = string if value.ndim == 1 else [string]
            else:
                value = shared(value)
            tensors.append(tf.convert_to_tensor(value))
        module = ops.ScannState(tensors)
        # Without a name of its own the searcher would live in the kernel
        # cache, which setting a random seed clears.
        shared_name = _new_name()
        handle = ops.tensors_to_scann(
            module.dataset,
            *(getattr(module, name) for name in STATE_NAMES[:-1]),
            shared_name=shared_name,
        )
        return cls(
            ops.ScannSearcher(handle),
            module,
            shared_name,
            num_blocks=files.num_blocks,
            embedding_dim=files.metadata["embedding_dim"],
            reordering=files.parameters["reordering"],
            num_reordered=files.parameters["num_reordered"],
        )

    def state(self) -> dict:
        """ScaNN's serialised form: name to numpy array.

        Rows that it scores as float32 are the embeddings, which an index's
        files hold anyway.
        """
        state = {}
        for name in _kept(self._reordering):
            value = getattr(self.module, name).numpy()
            if isinstance(value, bytes):
                state[name] = np.frombuffer(value, dtype="uint8")
            elif name in _STRING_STATE:
                (string,) = value
                state[name] = np.frombuffer(string, dtype="uint8")[None]
            elif value.ndim:
                state[name] = value
            else:
                # A part that this searcher has not: ScaNN gives a scalar of
                # uninitialised memory, which would differ from run to run.
                state[name] = np.zeros_like(value)
        return state

    def search(self, queries, num_candidates, allowed=None):
        import tensorflow as tf

        self._check_num_candidates(num_candidates)
        if allowed is not None:
            raise InputError(
                "The index kind 'scann' cannot leave blocks out of a search: "
                "expected kind brute_force or ivf."
            )
        backend = keras.backend.backend()
        if backend != "tensorflow":
            raise InputError(
                "The index kind 'scann' is a TensorFlow op and the Keras "
                f"backend is {backend!r}: use --kind ivf or brute_force."
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
        self._check_swap(embeddings)
        self.close()
        self._searcher = _build_searcher(
            embeddings,
            self._shared_name,
            self._reordering,
            self._num_reordered,
        )
        new_module = self._searcher.serialize_to_module()
        for name in STATE_NAMES:
            getattr(self.module, name).assign(getattr(new_module, name))

    def close(self) -> None:
        """Frees the searcher's memory; Python's collector does not."""
        import tensorflow as tf

        tf.raw_ops.DestroyResourceOp(resource=self._searcher.searcher_handle)


def _kept(reordering):
    """The names of what the files of an index keep of it."""
    return STATE_NAMES[:-1] if reordering == "float32" else STATE_NAMES


def _new_name():
    return f"realm-scann-{uuid.uuid4()}"


def _build_searcher(embeddings, shared_name, reordering, num_reordered):
    """ScaNN's searcher, of the stages for this many points."""
    num_blocks = len(embeddings)
    quantize = reordering == "int8"
    training_sample_size = min(num_blocks, _TRAINING_SAMPLE)
    builder = _scann_ops().builder(
        # Not copied if a file is mapped.
        shared(np.ascontiguousarray(embeddings, dtype="float32")),
        # Only the default of a search without a number of its own.
        min(10, num_blocks),
        "dot_product",
    )
    if num_blocks < _MIN_BLOCKS_FOR_HASHING:
        builder = builder.score_brute_force(quantize=quantize)
        return builder.build(shared_name=shared_name)
    if num_blocks >= _MIN_BLOCKS_FOR_TREE:
        num_leaves = round(math.sqrt(num_blocks))
        builder = builder.tree(
            num_leaves=num_leaves,
            num_leaves_to_search=max(1, round(num_leaves * _SEARCHED_FRACTION)),
            training_sample_size=training_sample_size,
        )
    # Two dimensions a block, as the original's and ScaNN's documentation.
    builder = builder.score_ah(
        2,
        anisotropic_quantization_threshold=0.2,
        training_sample_size=training_sample_size,
    )
    builder = builder.reorder(min(num_reordered, num_blocks), quantize=quantize)
    return builder.build(shared_name=shared_name)
