import numpy as np
import pytest
import search_oracle
from keras import ops

from realm_tf.retrieval import row_table
from realm_tf.retrieval.row_table import RowTable
from realm_tf.retrieval.row_table import to_int8


def _rows(num_rows, seed=0):
    return search_oracle.rows(num_rows, seed, width=16)


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
    held = sum(np.asarray(each).nbytes for each in table.weights)
    assert held == 50 * bytes_a_row
    assert not table.trainable_weights


@pytest.mark.parametrize("quantize", row_table.QUANTIZATIONS)
def test_rows_are_read_in_parts_in_any_order(monkeypatch, tmp_path, quantize):
    np.save(tmp_path / "rows.npy", _rows(50))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    order = np.random.default_rng(1).permutation(50)
    expected = RowTable(_rows(50)[order], quantize=quantize)
    monkeypatch.setattr(row_table, "ROWS_AT_ONCE", 7)
    found = RowTable(mapped, quantize=quantize, order=order)
    for one, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    found.assign(_rows(50, seed=3))
    np.testing.assert_array_equal(
        found.values, RowTable(_rows(50, seed=3), quantize=quantize).values
    )
