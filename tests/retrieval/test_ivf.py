import keras
import numpy as np
import pytest
import search_oracle
from graph_ops import op_names

from realm_tf.errors import InputError
from realm_tf.retrieval import row_table
from realm_tf.retrieval.ivf import Ivf

is_tensorflow = keras.backend.backend() == "tensorflow"


def _clustered(num_rows, seed=0, width=32):
    """Points around 300 centres, some of them longer than others."""
    centres = np.random.default_rng(99).normal(size=(300, width))
    centres *= np.exp(0.3 * np.random.default_rng(98).normal(size=(300, 1)))
    random = np.random.default_rng(seed)
    noise = 0.7 * random.normal(size=(num_rows, width))
    rows = centres[random.integers(0, 300, num_rows)] + noise
    return rows.astype("float32")


def _scored(index, query):
    """Ids that a search scores: partition after partition, one by one."""
    state = index.state()
    limits = np.cumsum(state["sizes"])
    order = np.argsort(-(state["centroids"] @ query), kind="stable")
    return np.concatenate(
        [
            state["block_ids"][limit - size : limit]
            for size, limit in zip(
                state["sizes"][order], limits[order], strict=True
            )
        ]
    )


def _reference(index, embeddings, queries, num_candidates):
    found = []
    for query in queries:
        num_rows = max(index.num_scored, num_candidates)
        ids = np.sort(_scored(index, query)[:num_rows])
        scores = embeddings[ids] @ query
        order = np.argsort(-scores, kind="stable")[:num_candidates]
        found.append(ids[order])
    return np.array(found)


def _check(index, embeddings, queries, num_candidates):
    scores, block_ids = map(np.asarray, index.search(queries, num_candidates))
    np.testing.assert_array_equal(
        block_ids, _reference(index, embeddings, queries, num_candidates)
    )
    exact = np.take_along_axis(queries @ embeddings.T, block_ids, axis=1)
    np.testing.assert_allclose(scores, exact, atol=1e-4)


class TestSomePartitions:
    @pytest.mark.parametrize("num_probed", [1, 3, 19])
    @pytest.mark.parametrize("num_candidates", [1, 4, 300])
    def test_the_best_partitions_are_scored(self, num_probed, num_candidates):
        embeddings = search_oracle.rows(300)
        queries = search_oracle.rows(23, seed=1)
        index = Ivf.build(embeddings, num_partitions=20, num_probed=num_probed)
        assert not index.is_exact
        assert index.num_scored == 15 * num_probed
        _check(index, embeddings, queries, num_candidates)

    def test_partitions_may_be_small_where_they_are_best(self):
        # 39 of one row, towards the first axis; one of 61, away from it.
        random = np.random.default_rng(0)
        embeddings = search_oracle.rows(100)
        embeddings[:39, 0] = 10.0 + random.permutation(39)
        embeddings[39:, 0] = -10.0
        centroids = np.concatenate(
            [embeddings[:39], embeddings[39:].mean(axis=0, keepdims=True)]
        )
        partitions = {
            "centroids": centroids,
            "sizes": np.array([1] * 39 + [61], "int32"),
            "block_ids": np.arange(100, dtype="int32"),
        }
        index = Ivf(embeddings, partitions, num_partitions=40, num_probed=4)
        assert index.num_scored == 10
        queries = np.eye(8, dtype="float32")[:1] * [[1.0], [-1.0]]
        for num_candidates in (5, 60):
            _check(index, embeddings, queries.astype("float32"), num_candidates)

    def test_the_best_are_found_at_the_defaults(self):
        embeddings, queries = _clustered(10_000), _clustered(200, seed=1)
        index = Ivf.build(embeddings)
        assert (index.num_partitions, index.num_probed) == (400, 48)
        assert index.num_scored == 1_200
        assert search_oracle.recall(index, embeddings, queries, 5) >= 0.95


@pytest.mark.parametrize(
    "given, expected",
    [
        ((1, None, None), (1, 1)),
        ((10, None, None), (10, 10)),
        ((10_000, None, None), (400, 48)),
        ((10_000, 20, None), (20, 20)),
        ((10_000, None, 400), (400, 400)),
        ((10_000, 10_000, 1), (10_000, 1)),
        ((10, 11, None), "`num_partitions` must be between 1 and 10.*=11"),
        ((10, 0, None), "num_partitions=0"),
        ((10, 5, 6), "`num_probed` must be between 1 and 5.*=6"),
        ((10_000, None, 0), "num_probed=0"),
    ],
)
def test_numbers_of_partitions(given, expected):
    num_blocks, *numbers = given
    options = dict(zip(Ivf.OPTIONS, numbers, strict=True))
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            Ivf.resolve(num_blocks, **options)
    else:
        found = Ivf.resolve(num_blocks, **options)
        assert tuple(found.values()) == expected


@pytest.mark.parametrize("quantize", ["int8", "bfloat16"])
def test_small_rows_find_nearly_the_same(quantize):
    embeddings, queries = _clustered(3_000), _clustered(50, seed=1)
    index = Ivf.build(embeddings)
    small = Ivf.build(embeddings, quantize=quantize)
    assert small.rows.values.dtype == quantize
    # By this fine-tuning tells whether it can score with the index's rows.
    assert not hasattr(index, "embeddings")
    for one, other in zip(
        small.state().values(), index.state().values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    exact = search_oracle.recall(index, embeddings, queries, 5)
    assert search_oracle.recall(small, embeddings, queries, 5) > exact - 0.05
    scores, block_ids = map(np.asarray, small.search(queries, 5))
    true = np.take_along_axis(queries @ embeddings.T, block_ids, axis=1)
    # 1.2 % of the largest value, and of each value, for 32 of them.
    np.testing.assert_allclose(scores, true, atol=0.5)
    assert np.abs(scores - true).max() > 1e-4


def test_a_compiled_model_sees_new_embeddings():
    queries = keras.Input((8,))
    index = Ivf.build(search_oracle.rows(200), num_partitions=20, num_probed=3)
    model = keras.Model(queries, index(queries, num_candidates=5))
    model.compile(jit_compile=True)
    for seed in (0, 2, 3):
        embeddings = search_oracle.rows(200, seed)
        index.prepare(embeddings)()
        fresh = Ivf.build(embeddings, num_partitions=20, num_probed=3)
        for num_queries in (5, 3):
            batch = search_oracle.rows(num_queries, seed=1)
            scores, block_ids = model.predict(batch, verbose=0)
            np.testing.assert_array_equal(
                block_ids, _reference(fresh, embeddings, batch, 5)
            )
            exact = np.take_along_axis(batch @ embeddings.T, block_ids, axis=1)
            np.testing.assert_allclose(scores, exact, atol=1e-5)


@pytest.mark.skipif(is_tensorflow, reason="the compiled program is JAX's")
@pytest.mark.parametrize("quantize", row_table.QUANTIZATIONS)
def test_the_rows_of_one_query_are_held_at_once(quantize):
    import jax

    index = Ivf.build(
        search_oracle.rows(1_000),
        num_partitions=50,
        num_probed=5,
        quantize=quantize,
    )
    search = jax.jit(lambda queries: index.search(queries, 3))
    program = search.lower(search_oracle.rows(7)).compile().as_text()
    assert "[100,8]" in program
    assert "[7,100,8]" not in program and "[700,8]" not in program
    if quantize != "none":
        assert "f32[1000,8]" not in program


@pytest.mark.skipif(not is_tensorflow, reason="SavedModel")
@pytest.mark.parametrize("quantize", row_table.QUANTIZATIONS)
def test_a_saved_search_holds_only_ops_of_tensorflow(tmp_path, quantize):
    import tensorflow as tf

    embeddings = search_oracle.rows(300)
    module = tf.Module()
    module.index = Ivf.build(
        embeddings, num_partitions=30, num_probed=3, quantize=quantize
    )
    traces = []

    @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32)])
    def search(queries):
        traces.append(1)
        scores, block_ids = module.index.search(queries, 4)
        assert scores.shape.as_list() == [None, 4]
        assert block_ids.shape.as_list() == [None, 4]
        return scores, block_ids

    module.search = search
    tf.saved_model.save(module, str(tmp_path))
    assert len(traces) == 1
    loaded = tf.saved_model.load(str(tmp_path))
    for num_queries in (1, 6, 0):
        queries = search_oracle.rows(num_queries, seed=1)
        scores, block_ids = loaded.search(queries)
        assert block_ids.shape == (num_queries, 4)
        if quantize == "none":
            expected = _reference(module.index, embeddings, queries, 4)
            np.testing.assert_array_equal(
                block_ids, expected.reshape(num_queries, 4)
            )
        eager = module.index.search(queries, 4)
        np.testing.assert_array_equal(block_ids, eager[1])
        np.testing.assert_allclose(scores, eager[0], atol=1e-5)
    ops = op_names(tmp_path)
    assert {"While", "GatherV2", "TopKV2"} <= {
        name.removeprefix("Stateless") for name in ops
    }
    assert not {name for name in ops if not hasattr(tf.raw_ops, name)}
