"""A BERT of width 8 whose weights are large enough to tell things apart."""

import numpy as np
import pytest

VOCABULARY_SIZE = 60


def randomize_weights(model, *, seed=0, scale=0.4):
    """Normal weights, biases and gains too, so that nothing is neutral."""
    random = np.random.default_rng(seed)
    for variable in model.variables:
        if "seed_generator" in variable.path:
            continue
        value = random.normal(scale=scale, size=variable.shape)
        if variable.path.endswith("gamma"):
            value = value + 1.0
        variable.assign(value.astype("float32"))


@pytest.fixture(scope="session")
def randomize():
    return randomize_weights


@pytest.fixture(scope="session")
def make_encoder():
    """Makes a `BertEncoder` with random weights; arguments override."""
    from realm_tf.models.bert_encoder import BertEncoder

    def make(*, seed=0, **arguments):
        arguments = {
            "vocabulary_size": VOCABULARY_SIZE,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 8,
            "intermediate_dim": 12,
            "max_sequence_length": 32,
            **arguments,
        }
        encoder = BertEncoder(**arguments)
        randomize_weights(encoder, seed=seed)
        return encoder

    return make


@pytest.fixture(scope="session")
def token_batch():
    """Two rows of `token_ids`, `segment_ids`, `padding_mask`."""
    return {
        "token_ids": np.array(
            [[2, 11, 12, 3, 21, 22, 3], [2, 13, 3, 0, 0, 0, 0]]
        ),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1], [0] * 7]),
        "padding_mask": np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]]),
    }
