"""On CPUs the functions sort, so numpy is the oracle here too."""

import eight_devices
import keras
import numpy as np
import pytest
import search_oracle

from realm_tf.errors import InputError
from realm_tf.retrieval.approximate import ApproximateMaxK
from realm_tf.retrieval.index import Index

NUM_BLOCKS, EMBEDDING_DIM = 300, 8


def _rows(num_rows=NUM_BLOCKS, seed=0):
    return search_oracle.rows(num_rows, seed, EMBEDDING_DIM)


def _check(found, embeddings, queries, num_candidates):
    scores, order = search_oracle.oracle(embeddings, queries, num_candidates)
    np.testing.assert_array_equal(found[1], order)
    np.testing.assert_allclose(found[0], scores, atol=1e-5)


@pytest.mark.parametrize("rows_per_block", [None, 64])
@pytest.mark.parametrize("num_candidates", [1, 10, NUM_BLOCKS])
def test_against_numpy(rows_per_block, num_candidates):
    index = ApproximateMaxK(_rows(), rows_per_block=rows_per_block)
    found = index.search(_rows(5, seed=1), num_candidates)
    _check(found, _rows(), _rows(5, seed=1), num_candidates)
    assert [keras.backend.standardize_dtype(x.dtype) for x in found] == [
        "float32",
        "int32",
    ]


@pytest.mark.parametrize("rows_per_block", [None, 64])
def test_in_a_compiled_model_that_is_refreshed(rows_per_block):
    queries = keras.Input((EMBEDDING_DIM,))
    index = ApproximateMaxK(_rows(), rows_per_block=rows_per_block)
    model = keras.Model(queries, index(queries, num_candidates=7))
    model.compile(jit_compile=True)
    for seed in (0, 2):
        index.swap(_rows(seed=seed))
        found = model.predict(_rows(5, seed=1), verbose=0)
        _check(found, _rows(seed=seed), _rows(5, seed=1), 7)


def test_what_the_function_is_asked_for(monkeypatch):
    """The recall is of all rows, not of the part that is searched."""
    if keras.backend.backend() == "jax":
        import jax.lax as module
    else:
        import tensorflow.math as module
    calls = []
    function = module.approx_max_k

    def record(scores, k, **options):
        calls.append((scores.shape[1], k, options))
        return function(scores, k, **options)

    monkeypatch.setattr(module, "approx_max_k", record)
    index = ApproximateMaxK(_rows(), recall_target=0.8, rows_per_block=200)
    index.search(_rows(5, seed=1), 7)
    options = {"recall_target": 0.8, "reduction_input_size_override": 300}
    assert calls == [(200, 7, options)] * 2


def test_what_it_says_of_itself():
    index = ApproximateMaxK(_rows())
    assert isinstance(index, Index)
    assert not index.is_exact
    assert (index.num_blocks, index.embedding_dim) == (300, 8)
    assert not index.trainable_variables
    with pytest.raises(InputError, match="300 blocks.*num_candidates=301"):
        index.search(_rows(5), 301)


@pytest.mark.parametrize("recall_target", [0.0, 1.5])
def test_no_such_recall(recall_target):
    with pytest.raises(ValueError, match=f"recall_target={recall_target}"):
        ApproximateMaxK(_rows(), recall_target=recall_target)


def test_on_eight_devices():
    pytest.importorskip("jax")
    code = """
        import keras, numpy as np
        from realm_tf.retrieval.approximate import ApproximateMaxK
        from realm_tf.training import devices

        random = np.random.default_rng(0)
        queries = random.normal(size=(16, 8)).astype("float32")
        # 301 rows: 38 a device, 3 of zeros. 40 of them do not come from one.
        tables = random.normal(size=(2, 301, 8)).astype("float32")
        for rows_per_block in (None, 10):
            with devices.use_all(16):
                inputs = keras.Input((8,))
                index = ApproximateMaxK(
                    tables[0], rows_per_block=rows_per_block
                )
                model = keras.Model(inputs, index(inputs, num_candidates=40))
                for table in tables:
                    index.swap(table)
                    scores, ids = model.predict(queries, verbose=0)
                    expected = np.argsort(-(queries @ table.T), axis=1)
                    np.testing.assert_array_equal(ids, expected[:, :40])
                    parts = index.embeddings.value.addressable_shards
                    assert [p.data.shape for p in parts] == [(38, 8)] * 8
        print("same")
    """
    assert eight_devices.run(code) == "same\n"
