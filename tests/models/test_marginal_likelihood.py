"""The layer in a Functional model, beside the functions it is made of."""

import doctest

import keras
import numpy as np
import pytest

from realm_tf import losses
from realm_tf import metrics
from realm_tf.models.realm import MarginalLikelihood


@pytest.fixture
def inputs():
    random = np.random.default_rng(0)
    return {
        "log_probs": -random.gamma(2, 2, (2, 3, 4)).astype("float32"),
        "query_embeddings": random.normal(size=(2, 5)).astype("float32"),
        "block_embeddings": random.normal(size=(2, 3, 5)).astype("float32"),
        "mask_weights": np.array([[1, 1, 0, 0], [1, 0, 0, 0]], "float32"),
        "candidate_mask": np.array([[True, True, False], [True] * 3]),
    }


def _expected(inputs, marginalization):
    log_probs, queries, blocks, weights, mask = inputs.values()
    priors = losses.retrieval_log_probs(queries, blocks, mask)
    arguments = (log_probs, priors, weights, mask)
    marginal = losses.marginal_log_likelihood(
        *arguments, marginalization=marginalization
    )
    return {
        "retrieval_log_probs": priors,
        "marginal_log_likelihood": marginal,
        "retrieval_utility": metrics.retrieval_utility(*arguments),
    }


@pytest.mark.parametrize("marginalization", losses.MARGINALIZATIONS)
def test_a_functional_model_gives_what_functions_give(inputs, marginalization):
    symbolic = {
        name: keras.Input(array.shape[1:], dtype=str(array.dtype), name=name)
        for name, array in inputs.items()
    }
    layer = MarginalLikelihood(marginalization)
    model = keras.Model(symbolic, layer(**symbolic))
    copy = keras.Model.from_config(model.get_config())
    expected = _expected(inputs, marginalization)
    for each in (model, copy):
        outputs = each(inputs)
        assert set(outputs) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(
                np.asarray(outputs[name]), np.asarray(value), atol=1e-6
            )


def test_the_example_runs_when_it_is_pasted():
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(MarginalLikelihood, globs={})
    assert doctest.DocTestRunner().run(example) == (0, len(example.examples))


def test_an_unknown_marginalization_is_refused(inputs):
    with pytest.raises(ValueError, match="marginalization='all'"):
        MarginalLikelihood("all")(**inputs)
