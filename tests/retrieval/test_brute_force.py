import doctest
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from realm_tf.retrieval import brute_force
from realm_tf.retrieval.brute_force import BruteForce


def test_examples():
    assert doctest.testmod(brute_force).failed == 0


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
