import keras
import numpy as np
import pytest
import search_oracle
from keras import ops

from realm_tf.errors import InputError
from realm_tf.retrieval import row_table
from realm_tf.retrieval.brute_force import QuantizedBruteForce
from realm_tf.retrieval.row_table import RowTable
from realm_tf.retrieval.row_table import to_int8


def _rows(num_rows, seed=0):
    return search_oracle.rows(num_rows, seed, width=16)


def _integers(num_rows, seed=0):
    """Rows that int8 and bfloat16 hold exactly: the scale of each is 1."""
    random = np.random.default_rng(seed)
    rows = random.integers(-2, 3, (num_rows, 4)).astype("float32")
    rows[:, 0] = 127.0
    return rows


@pytest.mark.parametrize("magnitude", [1e-30, 1e-3, 1.0, 1e6, 1e30])
def test_an_int8_value_is_wrong_by_half_a_scale_at_most(magnitude):
    rows = _rows(500) * np.float32(magnitude)
    rows[7] = 0.0
    values, scales = to_int8(rows)
    assert values.dtype == "int8" and scales.dtype == "float32"
    assert np.abs(values.astype(int)).max(axis=1).tolist() == [
        0 if number == 7 else 127 for number in range(500)
    ]
    np.testing.assert_allclose(
        scales.astype("float64"), np.abs(rows).max(axis=1) / 127, rtol=1e-6
    )
    restored = values * scales.astype("float64")[:, None]
    error = np.abs(restored - rows).max(axis=1)
    assert (error <= scales / 2 * (1 + 1e-4)).all()
    # Not by rounding to less than 255 steps.
    assert error.max() > 0.4 * scales.max()


def _error_bound(rows, queries, quantize):
    """What the class says a score is wrong by at most."""
    if quantize == "none":
        return np.zeros((len(queries), len(rows)))
    if quantize == "bfloat16":
        return np.abs(queries) @ np.abs(rows.T) * 2.0**-8
    scales = np.abs(rows).max(axis=1) / 127
    return np.abs(queries).sum(axis=1)[:, None] * scales / 2


@pytest.mark.parametrize("quantize", row_table.QUANTIZATIONS)
def test_scores_are_within_the_stated_bound(quantize):
    rows, queries = _rows(300), _rows(9, seed=1)
    table = RowTable(rows, quantize=quantize).read()
    exact = queries.astype("float64") @ rows.T.astype("float64")
    bound = _error_bound(rows, queries, quantize) + 1e-5
    found = np.asarray(
        table.score_slice(ops.convert_to_tensor(queries), 0, 300)
    )
    assert (np.abs(found - exact) <= bound).all()
    if quantize != "none":
        assert np.abs(found - exact).max() > 1e-4
    part = table.score_slice(ops.convert_to_tensor(queries), 120, 30)
    np.testing.assert_allclose(part, found[:, 120:150], atol=1e-5)
    places = ops.convert_to_tensor(np.array([299, 0, 5, 5], "int32"))
    for number, query in enumerate(queries):
        np.testing.assert_allclose(
            table.score_places(ops.convert_to_tensor(query), places),
            found[number, [299, 0, 5, 5]],
            atol=1e-5,
        )


@pytest.mark.parametrize(
    "quantize, dtype, bytes_a_row",
    [
        ("none", "float32", 64),
        ("bfloat16", "bfloat16", 32),
        ("int8", "int8", 20),
    ],
)
def test_what_the_weights_are(quantize, dtype, bytes_a_row):
    table = RowTable(_rows(50), quantize=quantize)
    assert table.values.dtype == dtype
    assert (table.num_rows, table.embedding_dim) == (50, 16)
    held = sum(np.asarray(each).nbytes for each in table.weights)
    assert held == 50 * bytes_a_row
    assert not table.trainable_weights


@pytest.mark.parametrize("quantize", row_table.QUANTIZATIONS)
def test_rows_are_read_in_parts_and_in_any_order(
    monkeypatch, tmp_path, quantize
):
    np.save(tmp_path / "rows.npy", _rows(50))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    order = np.random.default_rng(1).permutation(50)
    expected = RowTable(_rows(50)[order], quantize=quantize)
    queries = _rows(3, seed=1)
    places = np.random.default_rng(2).integers(0, 50, 30).astype("int32")
    scores = expected.read().score_places(
        ops.convert_to_tensor(queries[0]), ops.convert_to_tensor(places)
    )
    monkeypatch.setattr(row_table, "ROWS_AT_ONCE", 7)
    found = RowTable(mapped, quantize=quantize, order=order)
    for one, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    # Five parts, the last not full.
    in_parts = found.read().score_places(
        ops.convert_to_tensor(queries[0]), ops.convert_to_tensor(places)
    )
    np.testing.assert_allclose(in_parts, scores, atol=1e-6)
    found.assign(_rows(50, seed=3))
    np.testing.assert_array_equal(
        found.values,
        RowTable(_rows(50, seed=3), quantize=quantize).values,
    )


@pytest.mark.parametrize("quantize", ["int4", "", None])
def test_other_quantizations_are_refused(quantize):
    with pytest.raises(InputError, match="one of none, int8, bfloat16"):
        RowTable(_rows(5), quantize=quantize)


@pytest.mark.parametrize("quantize", ["int8", "bfloat16"])
class TestQuantizedBruteForce:
    @pytest.mark.parametrize("rows_per_block", [1, 7, 10, 49, 50, 999])
    @pytest.mark.parametrize("num_candidates", [1, 8, 50])
    def test_against_numpy(self, quantize, rows_per_block, num_candidates):
        embeddings, queries = _integers(50), _integers(9, seed=1)
        index = QuantizedBruteForce(
            embeddings, quantize=quantize, rows_per_block=rows_per_block
        )
        scores, block_ids = index.search(queries, num_candidates)
        expected = search_oracle.oracle(embeddings, queries, num_candidates)
        np.testing.assert_array_equal(block_ids, expected[1])
        np.testing.assert_array_equal(scores, expected[0])
        assert not index.is_exact

    def test_most_of_the_best_are_found(self, quantize):
        embeddings, queries = (
            _rows(2_000),
            _rows(50, seed=1),
        )
        index = QuantizedBruteForce(embeddings, quantize=quantize)
        found = np.asarray(index.search(queries, 5)[1]).tolist()
        truth = search_oracle.oracle(embeddings, queries, 5)[1].tolist()
        recall = np.mean(
            [
                len(set(a) & set(b)) / 5
                for a, b in zip(found, truth, strict=True)
            ]
        )
        assert recall >= 0.95

    def test_in_a_compiled_model_that_is_refreshed(self, quantize):
        queries = keras.Input((4,))
        index = QuantizedBruteForce(
            _integers(50), quantize=quantize, rows_per_block=16
        )
        model = keras.Model(queries, index(queries, num_candidates=20))
        model.compile(jit_compile=True)
        for seed in (0, 2):
            index.swap(_integers(50, seed))
            batch = _integers(5, seed=1)
            _, block_ids = model.predict(batch, verbose=0)
            expected = search_oracle.oracle(_integers(50, seed), batch, 20)
            np.testing.assert_array_equal(block_ids, expected[1])

    def test_the_table_is_never_whole_in_float32(self, quantize):
        jax = pytest.importorskip("jax")
        if keras.backend.backend() != "jax":
            pytest.skip("the compiled program is JAX's")

        def program(rows_per_block):
            index = QuantizedBruteForce(
                _rows(1000),
                quantize=quantize,
                rows_per_block=rows_per_block,
            )
            search = jax.jit(lambda queries: index.search(queries, 3))
            return search.lower(_rows(7)).compile().as_text()

        assert "f32[1000,16]" in program(1000)
        assert "f32[1000,16]" not in program(100)

    @pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="SavedModel"
    )
    def test_a_saved_graph_holds_the_small_rows(self, tmp_path, quantize):
        import tensorflow as tf

        module = tf.Module()
        module.index = QuantizedBruteForce(
            _integers(50), quantize=quantize, rows_per_block=16
        )
        module.search = tf.function(
            lambda queries: module.index.search(queries, 20),
            input_signature=[tf.TensorSpec((None, 4), tf.float32)],
        )
        tf.saved_model.save(module, str(tmp_path))
        held = {
            dtype
            for name, shape in tf.train.list_variables(
                str(tmp_path / "variables" / "variables")
            )
            if shape == [50, 4]
            for dtype in [
                tf.train.load_checkpoint(
                    str(tmp_path / "variables" / "variables")
                ).get_variable_to_dtype_map()[name]
            ]
        }
        assert held == {tf.as_dtype(quantize)}
        loaded = tf.saved_model.load(str(tmp_path))
        for num_queries in (1, 6):
            batch = _integers(num_queries, seed=1)
            expected = search_oracle.oracle(_integers(50), batch, 20)
            np.testing.assert_array_equal(loaded.search(batch)[1], expected[1])
