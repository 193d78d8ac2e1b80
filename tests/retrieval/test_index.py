"""Every kind of index against numpy: one contract, one oracle."""

import keras
import numpy as np
import pytest
import search_oracle
import tensorflow as tf

from realm_tf.errors import InputError
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.ivf import Ivf
from realm_tf.retrieval.scann import Scann

NUM_BLOCKS, EMBEDDING_DIM = 60, 8


def _embeddings(seed=0, num_blocks=NUM_BLOCKS):
    return search_oracle.rows(num_blocks, seed, EMBEDDING_DIM)


def _brute_force(embeddings):
    return BruteForce(embeddings)


def _ivf(embeddings):
    # With every partition probed it is exact.
    number = min(6, len(embeddings))
    return Ivf.build(embeddings, num_partitions=number, num_probed=number)


def _scann(embeddings):
    return Scann.build(embeddings)


def _scann_from_files(embeddings):
    return search_oracle.reloaded(Scann.build(embeddings))


def _exported_scann(embeddings):
    return _scann_from_files(embeddings).for_graph()


ALL = [_brute_force, _ivf, _scann, _scann_from_files, _exported_scann]
# What a trainer refreshes.
SWAPPABLE = [_brute_force, _ivf, _scann, _scann_from_files]


def _check(index, embeddings, queries, num_candidates):
    scores, block_ids = index.search(queries, num_candidates)
    expected = search_oracle.oracle(embeddings, queries, num_candidates)
    assert scores.shape == block_ids.shape == expected[1].shape
    assert keras.backend.standardize_dtype(scores.dtype) == "float32"
    assert keras.backend.standardize_dtype(block_ids.dtype) == "int32"
    np.testing.assert_array_equal(block_ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], atol=1e-5)


@pytest.mark.parametrize("make", ALL)
class TestSearch:
    @pytest.mark.parametrize("num_candidates", [1, 5, NUM_BLOCKS])
    @pytest.mark.parametrize("batch_size", [1, 17])
    def test_against_numpy(self, make, num_candidates, batch_size):
        embeddings = _embeddings()
        queries = _embeddings(1)[:batch_size]
        _check(make(embeddings), embeddings, queries, num_candidates)

    def test_of_equal_scores_the_smaller_id_is_first(self, make):
        # Small integers: many products are equal, and exactly so.
        random = np.random.default_rng(0)
        embeddings = random.integers(-1, 2, (200, 4)).astype("float32")
        queries = embeddings[:50]
        index = make(embeddings)
        for num_candidates in (1, 3, 200):
            _check(index, embeddings, queries, num_candidates)
        # All of them.
        embeddings = np.ones((30, 4), "float32")
        _check(make(embeddings), embeddings, embeddings[:2], 7)

    def test_one_block(self, make):
        embeddings = _embeddings(num_blocks=1)
        _check(make(embeddings), embeddings, _embeddings(1)[:3], 1)

    def test_the_largest_product_is_not_the_nearest_point(self, make):
        embeddings = np.array([[1, 0], [9, 9], [-20, 0]], "float32")
        queries = np.array([[1, 0], [-1, 0]], "float32")
        _check(make(embeddings), embeddings, queries, 3)

    @pytest.mark.parametrize("num_candidates", [0, -1, NUM_BLOCKS + 1])
    def test_too_many_candidates_are_refused(self, make, num_candidates):
        index = make(_embeddings())
        with pytest.raises(
            InputError,
            match=f"between 1 and the index's 60 .*={num_candidates}",
        ):
            index.search(_embeddings(1), num_candidates)

    def test_inside_a_graph_for_any_batch_size(self, make):
        embeddings = _embeddings()
        index = make(embeddings)
        traces = []

        @tf.function(
            input_signature=[tf.TensorSpec((None, EMBEDDING_DIM), tf.float32)]
        )
        def search(queries):
            traces.append(1)
            scores, block_ids = index.search(queries, 4)
            assert scores.shape.as_list() == [None, 4]
            assert block_ids.shape.as_list() == [None, 4]
            return scores, block_ids

        for batch_size in (1, 5, 2):
            queries = _embeddings(batch_size)[:batch_size]
            np.testing.assert_array_equal(
                search(queries)[1],
                search_oracle.oracle(embeddings, queries, 4)[1],
            )
        assert len(traces) == 1

    def test_queries_of_half_precision(self, make):
        embeddings = _embeddings()
        queries = _embeddings(1).astype("float16")
        _check(make(embeddings), embeddings, queries, 3)


@pytest.mark.parametrize("make", SWAPPABLE)
class TestSwap:
    def test_a_compiled_search_sees_new_embeddings(self, make):
        index = make(_embeddings())
        queries = _embeddings(1)
        traces = []

        @tf.function
        def search(queries):
            traces.append(1)
            return index.search(queries, 5)

        search(queries)
        for seed in (2, 3, 4):
            embeddings = _embeddings(seed)
            keras.utils.set_random_seed(seed)
            index.prepare(embeddings)()
            keras.utils.set_random_seed(seed)
            np.testing.assert_array_equal(
                search(queries)[1],
                search_oracle.oracle(embeddings, queries, 5)[1],
            )
            _check(index, embeddings, queries, 5)
        assert len(traces) == 1

    def test_two_indices_do_not_mix(self, make):
        first, second = make(_embeddings(0)), make(_embeddings(1))
        queries = _embeddings(2)
        first.prepare(_embeddings(3))()
        _check(first, _embeddings(3), queries, 4)
        _check(second, _embeddings(1), queries, 4)

    @pytest.mark.parametrize(
        "shape", [(NUM_BLOCKS - 1, 8), (NUM_BLOCKS, 7), (NUM_BLOCKS,)]
    )
    def test_another_shape_is_refused(self, make, shape):
        index = make(_embeddings())
        with pytest.raises(InputError, match=r"shape \(60, 8\)"):
            index.prepare(np.zeros(shape, "float32"))()
        _check(index, _embeddings(), _embeddings(1), 4)


@pytest.mark.parametrize("make", [_brute_force, _ivf])
def test_mixed_precision_changes_nothing(make):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.index = make(_embeddings())

        def call(self, queries):
            # Inside, Keras casts weights to the precision of the model.
            return self.index.search(queries, 20)[0]

    queries = search_oracle.integers(3).repeat(2, axis=1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        scores = Model().predict(queries, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    expected = search_oracle.oracle(_embeddings(), queries, 20)[0]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def _int8(embeddings):
    return BruteForce(embeddings, quantize="int8")


def _in_parts(embeddings):
    return BruteForce(embeddings, rows_per_block=7)


def _approximate_ivf(embeddings):
    return Ivf.build(embeddings, num_partitions=20, num_probed=1)


@pytest.mark.parametrize("share", [0.5, 0.05, 0.0])
@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize(
    "make", [_brute_force, _in_parts, _int8, _ivf, _approximate_ivf]
)
def test_only_what_is_allowed_is_found(make, share, is_shared):
    """Exactly, whatever the kind does otherwise."""
    random = np.random.default_rng(1)
    embeddings, queries = _embeddings(), _embeddings(1)[:9]
    allowed = random.random((1 if is_shared else 9, NUM_BLOCKS)) < share
    scores, block_ids = make(embeddings).search(
        queries, 8, keras.ops.convert_to_tensor(allowed)
    )
    scores, block_ids = np.asarray(scores), np.asarray(block_ids)
    every = np.where(allowed, queries @ embeddings.T, -np.inf)
    wanted = -np.sort(-every, axis=1)[:, :8]
    tolerance = 0.1 if make is _int8 else 1e-5
    np.testing.assert_allclose(scores, wanted, atol=tolerance)
    for row, ids in enumerate(block_ids):
        found = ids[np.isfinite(scores[row])]
        assert allowed[0 if is_shared else row][found].all()
        assert len(set(found)) == len(found)


def test_scann_cannot_leave_blocks_out():
    with pytest.raises(InputError, match="cannot leave blocks out"):
        _scann(_embeddings()).search(
            _embeddings()[:1], 1, np.ones((1, NUM_BLOCKS), bool)
        )
