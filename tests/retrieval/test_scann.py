import gc

import keras
import numpy as np
import pytest
import search_oracle
import tensorflow as tf

from realm_tf.errors import InputError
from realm_tf.retrieval import scann
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.scann import Scann


def _equal(first, second, queries, k):
    for one, two in zip(
        first.search(queries, k), second.search(queries, k), strict=True
    ):
        np.testing.assert_array_equal(one, two)


REORDERINGS = ["float32", "int8"]


@pytest.fixture(scope="module")
def many():
    """Embeddings from which on ScaNN hashes."""
    return search_oracle.clustered(20_000)


@pytest.fixture(scope="module")
def hashed(many):
    """An index of them by what reorders."""
    return {
        reordering: Scann.build(many, reordering=reordering)
        for reordering in REORDERINGS
    }


def test_below_20_000_blocks_every_block_is_scored():
    embeddings = search_oracle.clustered(5_000)
    queries = search_oracle.clustered(50, seed=1)
    index = Scann.build(embeddings)
    assert index.is_exact
    assert search_oracle.recall(index, embeddings, queries, k=100) == 1.0
    # The last number that is: one more and it hashes.
    assert scann._MIN_BLOCKS_FOR_HASHING == 20_000


def test_int8_keeps_most_of_the_best():
    embeddings = search_oracle.clustered(5_000)
    queries = search_oracle.clustered(100, seed=1)
    index = Scann.build(embeddings, reordering="int8")
    assert not index.is_exact
    assert search_oracle.recall(index, embeddings, queries, k=10) >= 0.95
    scores, block_ids = index.search(queries, 10)
    exact = np.take_along_axis(
        queries @ embeddings.T, np.asarray(block_ids), axis=1
    )
    # 127 steps for the largest value of each of 32 dimensions.
    np.testing.assert_allclose(scores, exact, atol=0.5)
    # A quarter of the memory: the float32 rows are gone.
    state = index.state()
    assert state["int8_dataset"].shape == (5_000, 32)
    assert state["dataset"].size == 0 or state["dataset"].ndim == 0


@pytest.mark.parametrize("num_blocks", [500, 25_000])
def test_rows_that_are_the_embeddings_are_not_kept_twice(num_blocks):
    embeddings = search_oracle.clustered(num_blocks)
    index = Scann.build(embeddings)
    (part,) = index.module.parts
    np.testing.assert_array_equal(part.dataset, embeddings)
    assert "dataset" not in index.state()


@pytest.mark.parametrize("reordering", REORDERINGS)
def test_hashed_search_finds_the_best(many, hashed, reordering):
    queries = search_oracle.clustered(100, seed=1)
    index = hashed[reordering]
    assert not index.is_exact
    assert search_oracle.recall(index, many, queries, k=10) >= 0.9
    # More candidates than are scored again by default.
    scores, block_ids = map(np.asarray, index.search(queries, 300))
    assert all(len(set(row)) == 300 for row in block_ids.tolist())
    assert (np.diff(scores, axis=1) <= 1e-5).all()
    if reordering == "float32":
        exact = np.take_along_axis(queries @ many.T, block_ids, axis=1)
        np.testing.assert_allclose(scores, exact, atol=1e-3)
        few = Scann.build(many, num_reordered=10)
        assert search_oracle.recall(few, many, queries, k=10) < 0.8


@pytest.mark.parametrize("reordering", REORDERINGS)
def test_a_saved_state_gives_the_same_results(many, hashed, reordering):
    queries = search_oracle.clustered(20, seed=1)
    small = Scann.build(many[:3_000], reordering=reordering)
    for index in (small, hashed[reordering]):
        loaded = search_oracle.reloaded(index, reordering)
        assert loaded.is_exact == index.is_exact
        _equal(index, loaded, queries, 20)
        _equal(index, loaded.for_graph(), queries, 20)
        # A copy of the copy.
        _equal(index, search_oracle.reloaded(loaded, reordering), queries, 20)
        assert {type(array) for array in index.state().values()} <= {np.ndarray}
    # It outlives the one it was made from.
    loaded = search_oracle.reloaded(small, reordering)
    expected = small.search(queries, 3)[1]
    (part,) = small._parts
    # Python's collector may run while a graph is built.
    with tf.Graph().as_default():
        del small
        gc.collect()
    np.testing.assert_array_equal(loaded.search(queries, 3)[1], expected)
    with pytest.raises(tf.errors.NotFoundError):
        part.search(queries, 3, num_reordered=200)


def test_the_same_embeddings_give_the_same_state(many, hashed):
    again = Scann.build(many).state()
    for name, array in hashed["float32"].state().items():
        np.testing.assert_array_equal(array, again[name])


def test_parts_find_what_one_finds():
    """Of parts of other sizes, and fewer blocks in each than are asked for."""
    embeddings = search_oracle.rows(50)
    queries = search_oracle.rows(9, seed=1)
    one = Scann.build(embeddings)
    for num_parts in (2, 3, 50):
        index = Scann.build(embeddings, num_parts=num_parts)
        assert index.is_exact
        _equal(index, one, queries, 20)
        _equal(search_oracle.reloaded(index), one, queries, 50)
        assert index.search(queries[:0], 5)[1].shape == (0, 5)
    index.prepare(embeddings[::-1])()
    for found in (index, search_oracle.reloaded(index)):
        _equal(found, Scann.build(embeddings[::-1]), queries, 20)
    parts = index._parts
    del index, found
    gc.collect()
    for part in parts:
        with pytest.raises(tf.errors.NotFoundError):
            part.search(queries, 1, num_reordered=200)


@pytest.mark.parametrize("reordering", REORDERINGS)
def test_parts_that_are_hashed(many, reordering):
    embeddings = np.concatenate([many, search_oracle.clustered(20_000, seed=2)])
    queries = search_oracle.clustered(100, seed=1)
    index = Scann.build(embeddings, reordering=reordering, num_parts=2)
    assert not index.is_exact
    assert search_oracle.recall(index, embeddings, queries, k=10) >= 0.9
    _equal(index, search_oracle.reloaded(index, reordering), queries, 20)


def test_how_many_parts_there_are():
    assert Scann.resolve(4_000_000)["num_parts"] == 1
    assert Scann.resolve(13_353_718)["num_parts"] == 4
    assert Scann.resolve(100, num_parts=7)["num_parts"] == 7
    for wrong in (0, 101):
        with pytest.raises(InputError, match=f"Received: num_parts={wrong}"):
            Scann.resolve(100, num_parts=wrong)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_in_a_saved_model(tmp_path, num_parts):
    embeddings = search_oracle.clustered(200)

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.index = search_oracle.reloaded(
                Scann.build(embeddings, num_parts=num_parts)
            ).for_graph()
            self.state = self.index.module

        @tf.function(
            input_signature=[tf.TensorSpec((None, 32), tf.float32, "queries")]
        )
        def search(self, queries):
            return self.index.search(queries, 5)

    path = str(tmp_path / "saved")
    module = Module()
    tf.saved_model.save(module, path)
    loaded = tf.saved_model.load(path)
    queries = search_oracle.clustered(10, seed=1)
    scores, block_ids = loaded.search(queries)
    expected = BruteForce(embeddings).search(queries, 5)
    np.testing.assert_array_equal(block_ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], atol=1e-4)


def test_another_backend_is_refused(monkeypatch):
    index = Scann.build(search_oracle.clustered(50))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(InputError, match="'jax': use --kind ivf or brute"):
        index.search(search_oracle.clustered(2), 3)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scann.scann_ops.py", None)
    with pytest.raises(InputError, match="pip install .*--kind ivf"):
        Scann.build(search_oracle.clustered(50))
