"""Approximate search with ScaNN's TensorFlow op, in the graph."""

import copy
import dataclasses
import itertools
import math
import uuid
import weakref

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
# A searcher is built in some 4.9 KB a row of 384 numbers: 20 GB (our choice).
_MAX_BLOCKS_OF_A_PART = 4_000_000


def _scann_ops():
    try:
        from scann.scann_ops.py import scann_ops
    except ImportError as error:
        raise InputError(
            "The index kind 'scann' needs the package scann (Linux x86-64): "
            'pip install "scann>=1.4.2,<1.5". Elsewhere use --kind ivf.'
        ) from error
    return scann_ops


@dataclasses.dataclass(frozen=True)
class _Part:
    """The searcher of a range of blocks.

    Args:
        first: int. The first block.
        limit: int. The one after the last.
        shared_name: str. Of the TensorFlow resource.
        searcher: `scann_ops.ScannSearcher`, or `None`: made of the state when
            a graph first runs.
        state: `scann_ops.ScannState`. Its serialised form.
    """

    first: int
    limit: int
    shared_name: str
    searcher: object
    state: object

    def search(self, queries, num_candidates, num_reordered):
        """Scores and ids of the best blocks of its range."""
        import tensorflow as tf

        num_candidates = min(num_candidates, self.limit - self.first)
        searcher = self.searcher
        if searcher is None:
            # Of the op itself TensorFlow keeps one searcher for all calls
            # outside of a graph, and of functions one for all of a graph.
            if tf.executing_eagerly():
                searcher = _scann_ops().searcher_from_module(self.state)
            else:
                searcher = _searcher(self.state)
        block_ids, scores = searcher.search_batched(
            queries,
            final_num_neighbors=num_candidates,
            pre_reorder_num_neighbors=max(num_candidates, num_reordered),
        )
        # Of no queries ScaNN gives no columns, either.
        shape = (tf.shape(queries)[0], num_candidates)
        block_ids = tf.cast(block_ids, tf.int32) + self.first
        return tf.reshape(scores, shape), tf.reshape(block_ids, shape)


class Scann(Index):
    """ScaNN index; its searchers are TensorFlow resources.

    The number of blocks decides the stages: below 20,000 every block is
    scored (as float32 or int8); from there on hashed scores choose
    `num_reordered` blocks that are scored again; from 100,000 on a tree
    leaves most of the blocks out. Only for the TensorFlow backend, on CPU.

    More blocks than one searcher can be built of have several, of a range
    each; a search asks all and keeps the best.

    Make one with `build` or `from_files`.

    Args:
        parts: list of `_Part`, in the order of their blocks.
        embedding_dim: int. Width of a row.
        reordering: str. `"float32"` or `"int8"`.
        num_reordered: int. Blocks that are scored again.

    References:
        [Guo et al., 2020](https://arxiv.org/abs/1908.10396).
    """

    def __init__(self, parts, *, embedding_dim, reordering, num_reordered):
        import tensorflow as tf

        self._parts = parts
        # Saved with a graph.
        self.module = tf.Module()
        self.module.parts = [part.state for part in parts]
        self.num_blocks = parts[-1].limit
        self.embedding_dim = embedding_dim
        self.is_exact = reordering == "float32" and all(
            part.limit - part.first < _MIN_BLOCKS_FOR_HASHING for part in parts
        )
        self._reordering = reordering
        self._num_reordered = num_reordered
        # TensorFlow keeps the resources until they are destroyed.
        self._handles = [part.searcher.searcher_handle for part in parts]
        weakref.finalize(self, _free, self._handles).atexit = False

    OPTIONS = ("reordering", "num_reordered", "num_parts")

    @classmethod
    def resolve(cls, num_blocks, *, num_parts=None, **options):
        if num_parts is None:
            num_parts = -(-num_blocks // _MAX_BLOCKS_OF_A_PART)
        if not 1 <= num_parts <= num_blocks:
            raise InputError(
                f"`num_parts` must be 1 to {num_blocks}, one block each. "
                f"Received: num_parts={num_parts}"
            )
        return {**options, "num_parts": num_parts}

    @classmethod
    def build(
        cls,
        embeddings,
        *,
        reordering="float32",
        num_reordered=200,
        num_parts=1,
    ):
        """An index over embeddings.

        Args:
            embeddings: float array `(num_blocks, embedding_dim)`.
            reordering: str. Precision of the scores of the best candidates:
                `"float32"` (exact) or `"int8"` (a third of the memory).
                Defaults to `"float32"`.
            num_reordered: int. How many candidates are scored again, from
                20,000 blocks on. Defaults to `200`.
            num_parts: int. Searchers that share the blocks; one is built
                after the other. Defaults to `1`.

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
        parts = []
        for first, limit in _ranges(len(embeddings), num_parts):
            rows = embeddings[first:limit]
            name = _new_name()
            searcher = _build_searcher(rows, name, reordering, num_reordered)
            state = _state(searcher, rows, reordering)
            parts.append(_Part(first, limit, name, searcher, state))
        return cls(
            parts,
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
        reordering = files.parameters["reordering"]
        parts = []
        for number, (first, limit) in enumerate(
            _ranges(files.num_blocks, files.parameters["num_parts"])
        ):
            names = {name: _file(name, number) for name in _kept(reordering)}
            kept = files.state(names.values())
            tensors = []
            for name in STATE_NAMES:
                if name not in names:
                    value = shared(files.embeddings[first:limit])
                else:
                    value = kept[names[name]]
                    if name in _STRING_STATE:
                        # A scalar string, or one in a list: `(1, length)`.
                        string = value.tobytes()
                        value = string if value.ndim == 1 else [string]
                    else:
                        value = shared(value)
                tensors.append(tf.convert_to_tensor(value))
            state = ops.ScannState(tensors)
            # Without a name of its own the searcher would live in the kernel
            # cache, which setting a random seed clears.
            shared_name = _new_name()
            searcher = _searcher(state, shared_name=shared_name)
            parts.append(_Part(first, limit, shared_name, searcher, state))
        return cls(
            parts,
            embedding_dim=files.metadata["embedding_dim"],
            reordering=reordering,
            num_reordered=files.parameters["num_reordered"],
        )

    def state(self) -> dict:
        """ScaNN's serialised form: name to numpy array.

        Rows that it scores as float32 are the embeddings, which an index's
        files hold anyway.
        """
        return {
            _file(name, number): _as_array(getattr(part.state, name), name)
            for number, part in enumerate(self._parts)
            for name in _kept(self._reordering)
        }

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
        queries = tf.cast(queries, tf.float32)
        found = [
            part.search(queries, num_candidates, self._num_reordered)
            for part in self._parts
        ]
        if len(found) == 1:
            return found[0]
        scores, block_ids = (
            tf.concat(each, axis=1) for each in zip(*found, strict=True)
        )
        scores, places = tf.math.top_k(scores, num_candidates)
        return scores, tf.gather(block_ids, places, batch_dims=1)

    def for_graph(self):
        """An index of the same rows whose search can be saved in a SavedModel.

        Track its `module` in what is saved. Searchers are made again from the
        state's variables when the graph first runs; the resources of this
        process mean nothing in another one.

        Returns:
            `Scann`. It shares its memory with this one.
        """
        index = copy.copy(self)
        index._parts = [
            dataclasses.replace(part, searcher=None) for part in self._parts
        ]
        return index

    def prepare(self, embeddings):
        """As `Index.prepare`; searchers are built when it is called.

        They are rebuilt under the names of the old ones, so this must not run
        while a search does: a trainer swaps between two steps. A server loads a
        new SavedModel version instead.
        """
        self._check_swap(embeddings)
        return lambda: self._swap(embeddings)

    def _swap(self, embeddings):
        _free(self._handles)
        for number, part in enumerate(self._parts):
            rows = embeddings[part.first : part.limit]
            searcher = _build_searcher(
                rows, part.shared_name, self._reordering, self._num_reordered
            )
            new = _state(searcher, rows, self._reordering)
            for name in STATE_NAMES:
                getattr(part.state, name).assign(getattr(new, name))
            self._parts[number] = dataclasses.replace(part, searcher=searcher)
            self._handles.append(searcher.searcher_handle)


def _free(handles):
    """Frees the memory of searchers, and empties the list."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    # Python's collector may run while any graph is built. `tf.init_scope` stays
    # in a `tf.Graph`.
    with context.eager_mode():
        while handles:
            tf.raw_ops.DestroyResourceOp(resource=handles.pop())


def _searcher(state, **options):
    """Makes a searcher of its serialised form."""
    ops = _scann_ops()
    handle = ops.tensors_to_scann(
        state.dataset,
        *(getattr(state, name) for name in STATE_NAMES[:-1]),
        **options,
    )
    return ops.ScannSearcher(handle)


def _ranges(num_blocks, num_parts):
    """First block and the one after the last of each part."""
    bounds = [num_blocks * number // num_parts for number in range(num_parts)]
    return list(itertools.pairwise([*bounds, num_blocks]))


def _file(name, number):
    """Name of a part's array; the first part has no number."""
    return f"{name}-{number}" if number else name


def _state(searcher, rows, reordering):
    """`ScannState` of a searcher, without a copy of rows that are mapped."""
    ops = _scann_ops()
    tensors = list(ops.scann_to_tensors(searcher.searcher_handle))
    if reordering == "float32":
        tensors[-1] = shared(rows)
    return ops.ScannState(tensors)


def _as_array(variable, name):
    """A part of `ScannState` as it is kept."""
    value = variable.numpy()
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype="uint8")
    if name in _STRING_STATE:
        (string,) = value
        return np.frombuffer(string, dtype="uint8")[None]
    # A scalar is of a part that this searcher has not: ScaNN gives
    # uninitialised memory, which would differ from run to run.
    return value if value.ndim else np.zeros_like(value)


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
