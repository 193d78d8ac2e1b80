import os
import subprocess
import sys

import eight_devices
import keras
import numpy as np
import pytest
import search_oracle

from realm_tf.retrieval.brute_force import BruteForce


def _embeddings(seed=0):
    return np.random.default_rng(seed).normal(size=(20, 4)).astype("float32")


def test_the_embeddings_are_not_trained():
    index = BruteForce(_embeddings())
    assert not index.trainable_variables
    (weight,) = index.non_trainable_variables
    np.testing.assert_array_equal(weight, _embeddings())


def test_a_model_saves_the_embeddings(tmp_path):
    def model(embeddings):
        queries = keras.Input((4,))
        outputs = BruteForce(embeddings, name="index")(
            queries, num_candidates=3
        )
        return keras.Model(queries, outputs)

    path = str(tmp_path / "model.weights.h5")
    saved = model(_embeddings())
    saved.save_weights(path)
    loaded = model(_embeddings(1))
    queries = _embeddings(2)
    expected = saved.predict_on_batch(queries)[1]
    assert not np.array_equal(loaded.predict_on_batch(queries)[1], expected)
    loaded.load_weights(path)
    np.testing.assert_array_equal(loaded.predict_on_batch(queries)[1], expected)


def test_on_the_jax_backend():
    pytest.importorskip("jax")
    code = (
        "import sys, numpy as np\n"
        "from realm_tf.retrieval.brute_force import BruteForce\n"
        "index = BruteForce(np.eye(3, dtype='float32'))\n"
        "scores, ids = index.search(np.array([[0.0, 2.0, 2.0]]), 2)\n"
        "print(np.asarray(scores).tolist(), np.asarray(ids).tolist())\n"
        "index.swap(np.eye(3)[::-1])\n"
        "print(np.asarray(index.search(np.eye(3)[:1], 1)[1]).tolist())\n"
        "print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert done.stdout.splitlines() == [
        "[[2.0, 2.0]] [[1, 2]]",
        "[[2]]",
        "False",
    ]


class TestInBlocksOfRows:
    # 50 rows: divided evenly or not, all at once, one by one.
    @pytest.mark.parametrize("rows_per_block", [1, 7, 10, 49, 50, 999])
    @pytest.mark.parametrize("num_candidates", [1, 8, 50])
    def test_the_same_is_found(self, rows_per_block, num_candidates):
        embeddings, queries = (
            search_oracle.integers(50),
            search_oracle.integers(9, seed=1),
        )
        index = BruteForce(embeddings, rows_per_block=rows_per_block)
        scores, block_ids = index.search(queries, num_candidates)
        expected = search_oracle.oracle(embeddings, queries, num_candidates)
        np.testing.assert_array_equal(block_ids, expected[1])
        np.testing.assert_array_equal(scores, expected[0])
        assert keras.backend.standardize_dtype(block_ids.dtype) == "int32"

    def test_negative_scores_win_against_nothing(self):
        index = BruteForce(-np.ones((5, 2)), rows_per_block=2)
        scores, block_ids = index.search(np.ones((1, 2)), 5)
        np.testing.assert_array_equal(block_ids, [[0, 1, 2, 3, 4]])
        np.testing.assert_array_equal(scores, [[-2.0] * 5])

    def test_in_a_compiled_model_that_is_refreshed(self):
        queries = keras.Input((4,))
        index = BruteForce(search_oracle.integers(50), rows_per_block=16)
        model = keras.Model(queries, index(queries, num_candidates=20))
        model.compile(jit_compile=True)
        for seed in (0, 2, 3):
            index.swap(search_oracle.integers(50, seed))
            for num_queries in (5, 3):
                batch = search_oracle.integers(num_queries, seed=1)
                scores, block_ids = model.predict(batch, verbose=0)
                expected = search_oracle.oracle(
                    search_oracle.integers(50, seed), batch, 20
                )
                np.testing.assert_array_equal(block_ids, expected[1])
                np.testing.assert_array_equal(scores, expected[0])

    @pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="SavedModel"
    )
    def test_in_a_saved_graph_for_any_batch_size(self, tmp_path):
        import tensorflow as tf

        module = tf.Module()
        module.index = BruteForce(search_oracle.integers(50), rows_per_block=16)
        module.search = tf.function(
            lambda queries: module.index.search(queries, 20),
            input_signature=[tf.TensorSpec((None, 4), tf.float32)],
        )
        tf.saved_model.save(module, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        for num_queries in (1, 6):
            batch = search_oracle.integers(num_queries, seed=1)
            expected = search_oracle.oracle(
                search_oracle.integers(50), batch, 20
            )
            np.testing.assert_array_equal(loaded.search(batch)[1], expected[1])

    def test_all_scores_are_never_held(self):
        jax = pytest.importorskip("jax")
        if keras.backend.backend() != "jax":
            pytest.skip("the compiled program is JAX's")

        def program(**arguments):
            index = BruteForce(search_oracle.integers(1000), **arguments)
            search = jax.jit(lambda queries: index.search(queries, 3))
            return search.lower(search_oracle.integers(7)).compile().as_text()

        assert "f32[7,1000]" in program()
        assert "f32[7,1000]" not in program(rows_per_block=100)

    def test_no_rows_are_refused(self):
        with pytest.raises(ValueError, match="rows_per_block=0"):
            BruteForce(search_oracle.integers(5), rows_per_block=0)


def test_mixed_precision_changes_nothing():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.index = BruteForce(_embeddings())

        def call(self, queries):
            # Inside, Keras casts weights to the precision of the model.
            return self.index.search(queries, 20)[0]

    queries = search_oracle.integers(3)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        scores = Model().predict(queries, verbose=0)
        by_call = BruteForce(_embeddings())(queries, num_candidates=20)[0]
    finally:
        keras.config.set_dtype_policy("float32")
    expected = search_oracle.oracle(_embeddings(), queries, 20)[0]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(by_call, expected, atol=1e-5)


_ON_EIGHT_DEVICES = """
    import sys
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
    for num_blocks, k, rows_per_block in [
        (64, 20, None),  # more than the eight rows of a device
        (61, 61, 3),
        (203, 5, 7),
        (3, 3, None),  # some devices have none
        (9, 2, None),
    ]:
        with devices.use_all(16):
            inputs = keras.Input((4,))
            index = BruteForce(
                rows(num_blocks, 0), rows_per_block=rows_per_block
            )
            model = keras.Model(inputs, index(inputs, num_candidates=k))
            model.compile(jit_compile=True)
            for seed in (0, 1, 2):
                index.swap(rows(num_blocks, seed))
                found = model.predict(queries, verbose=0)
                check(index, rows(num_blocks, seed), found, queries, k)
        # Any number of queries, outside a model and the scope.
        check(
            index, rows(num_blocks, 2), index.search(queries[:3], k),
            queries[:3], k,
        )

    # Files of weights have the rows of the blocks, on any number of devices.
    model.save_weights(sys.argv[1])
    inputs = keras.Input((4,))
    alone = BruteForce(np.zeros((9, 4)), name=index.name)
    on_one = keras.Model(inputs, alone(inputs, num_candidates=2))
    on_one.load_weights(sys.argv[1])
    np.testing.assert_array_equal(alone.embeddings, rows(9, 2))
    index.swap(np.zeros((9, 4)))
    model.load_weights(sys.argv[1])
    check(index, rows(9, 2), index.search(queries, 2), queries, 2)

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


def test_on_eight_devices(tmp_path):
    pytest.importorskip("jax")
    weights = str(tmp_path / "index.weights.h5")
    assert eight_devices.run(_ON_EIGHT_DEVICES, weights) == "same\n"
