import functools

import eight_devices
import keras
import numpy as np
import pytest
import search_oracle

from realm_tf.retrieval.brute_force import BruteForce

KINDS = {
    "exact": BruteForce,
    "int8": functools.partial(BruteForce, quantize="int8"),
    "bfloat16": functools.partial(BruteForce, quantize="bfloat16"),
}
all_kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
quantized = pytest.mark.parametrize("quantize", ["int8", "bfloat16"])
on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="the compiled program is JAX's"
)


def _integers(num_rows, seed=0):
    """Rows that int8 and bfloat16 hold exactly: the scale of each is 1."""
    rows = search_oracle.integers(num_rows, seed)
    rows[:, 0] = 127.0
    return rows


def _check(found, embeddings, queries, num_candidates):
    scores, block_ids = search_oracle.oracle(
        embeddings, queries, num_candidates
    )
    np.testing.assert_array_equal(found[1], block_ids)
    np.testing.assert_array_equal(found[0], scores)


# 50 rows: divided evenly or not, all at once, one by one.
@pytest.mark.parametrize("rows_per_block", [1, 7, 10, 999])
@pytest.mark.parametrize("num_candidates", [8, 50])
@all_kinds
def test_the_same_is_found_in_blocks(make, rows_per_block, num_candidates):
    embeddings, queries = _integers(50), _integers(9, seed=1)
    index = make(embeddings, rows_per_block=rows_per_block)
    found = index.search(queries, num_candidates)
    _check(found, embeddings, queries, num_candidates)
    assert keras.backend.standardize_dtype(found[1].dtype) == "int32"
    assert index.is_exact == (make is BruteForce)


@all_kinds
def test_in_a_compiled_model_that_is_refreshed(make):
    queries = keras.Input((4,))
    index = make(_integers(50), rows_per_block=16)
    model = keras.Model(queries, index(queries, num_candidates=20))
    model.compile(jit_compile=True)
    for seed in (0, 2, 3):
        index.prepare(_integers(50, seed))()
        for num_queries in (5, 3):
            batch = _integers(num_queries, seed=1)
            found = model.predict(batch, verbose=0)
            _check(found, _integers(50, seed), batch, 20)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModel"
)
@pytest.mark.parametrize("kind", ["exact", "int8", "bfloat16"])
def test_a_saved_graph_holds_the_rows_as_they_are(tmp_path, kind):
    import tensorflow as tf

    module = tf.Module()
    module.index = KINDS[kind](_integers(50), rows_per_block=16)
    module.search = tf.function(
        lambda queries: module.index.search(queries, 20),
        input_signature=[tf.TensorSpec((None, 4), tf.float32)],
    )
    tf.saved_model.save(module, str(tmp_path))
    variables = tf.train.load_checkpoint(str(tmp_path / "variables/variables"))
    dtypes = variables.get_variable_to_dtype_map()
    held = {
        dtypes[name]
        for name, shape in variables.get_variable_to_shape_map().items()
        if shape == [50, 4]
    }
    assert held == {tf.as_dtype("float32" if kind == "exact" else kind)}
    loaded = tf.saved_model.load(str(tmp_path))
    for num_queries in (1, 6):
        batch = _integers(num_queries, seed=1)
        _check(loaded.search(batch), _integers(50), batch, 20)


def _program(index, queries):
    import jax

    search = jax.jit(lambda queries: index.search(queries, 3))
    return search.lower(queries).compile().as_text()


@on_jax
def test_all_scores_are_never_held():
    rows, queries = search_oracle.rows(1000), search_oracle.rows(7)
    whole = _program(BruteForce(rows), queries)
    assert "f32[7,1000]" in whole
    parts = _program(BruteForce(rows, rows_per_block=100), queries)
    assert "f32[7,1000]" not in parts


@on_jax
@quantized
def test_the_table_is_never_whole_in_float32(quantize):
    for rows_per_block, is_whole in ((1000, True), (100, False)):
        index = KINDS[quantize](
            search_oracle.rows(1000), rows_per_block=rows_per_block
        )
        program = _program(index, search_oracle.rows(7))
        assert ("f32[1000,8]" in program) == is_whole


_ON_EIGHT_DEVICES = """
    import keras, jax, numpy as np
    from realm_tf.retrieval.brute_force import BruteForce
    from realm_tf.training import devices

    def rows(num, seed):
        random = np.random.default_rng(seed)
        return random.integers(-2, 3, (num, 4)).astype("float32")

    def check(index, embeddings, found, queries, k):
        scores = queries @ embeddings.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(found[1], order)
        np.testing.assert_array_equal(
            found[0], np.take_along_axis(scores, order, axis=1)
        )
        # The rows of each device are there and nowhere else.
        parts = sorted(
            index.embeddings.value.addressable_shards,
            key=lambda part: part.device.id,
        )
        assert len({part.device.id for part in parts}) == 8
        assert len({part.data.shape for part in parts}) == 1
        held = np.concatenate([np.asarray(part.data) for part in parts])
        np.testing.assert_array_equal(held[: len(embeddings)], embeddings)
        assert not held[len(embeddings) :].any()
        assert len(held) - len(embeddings) < 8

    queries = rows(16, seed=9)
    for make, num_blocks, k, rows_per_block in [
        (BruteForce, 64, 20, None),  # more than the eight rows of a device
        (BruteForce, 61, 61, 3),
        (BruteForce, 203, 5, 7),
        (BruteForce, 3, 3, None),  # some devices have none
        (BruteForce, 301, 40, 10),
        (BruteForce, 9, 2, None),
    ]:
        with devices.use_all(16):
            inputs = keras.Input((4,))
            index = make(rows(num_blocks, 0), rows_per_block=rows_per_block)
            model = keras.Model(inputs, index(inputs, num_candidates=k))
            model.compile(jit_compile=True)
            for seed in (0, 1, 2):
                index.prepare(rows(num_blocks, seed))()
                found = model.predict(queries, verbose=0)
                check(index, rows(num_blocks, seed), found, queries, k)
        # Any number of queries, outside a model and the scope.
        check(
            index, rows(num_blocks, 2), index.search(queries[:3], k),
            queries[:3], k,
        )

    # What is compiled brings neither rows nor scores together.
    with devices.use_all(16):
        index = BruteForce(rows(203, 0))
    sharding = jax.sharding.NamedSharding(
        index.embeddings.value.sharding.mesh,
        jax.sharding.PartitionSpec("batch"),
    )
    program = (
        jax.jit(
            lambda weights, queries: index.stateless_call(
                [], weights, queries, num_candidates=5
            )[0]
        )
        .lower(
            [index.embeddings.value], jax.device_put(rows(16, 1), sharding)
        )
        .compile()
        .as_text()
    )
    assert "f32[26,4]" in program
    for whole in ("[208,4]", "[4,208]", "[16,208]"):
        assert whole not in program
    print("same")
"""


@pytest.mark.slow
def test_on_eight_devices():
    pytest.importorskip("jax")
    assert eight_devices.run(_ON_EIGHT_DEVICES) == "same\n"
