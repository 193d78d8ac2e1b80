"""The reader's span scores against a loop in numpy float64."""

import numpy as np
import pytest

from realm_tf.models.reader import Reader
from realm_tf.models.reader import SpanScorer


def _numpy_span_scores(scorer, sequence):
    """ORQA's scorer, span by span; a span over the end has h_end = 0."""
    kernel, bias = (np.asarray(v, "float64") for v in scorer.endpoints.weights)
    gamma, beta = (np.asarray(v, "float64") for v in scorer.layer_norm.weights)
    vector, score_bias = (
        np.asarray(v, "float64") for v in scorer.score.weights
    )
    hidden_dim = scorer.span_hidden_dim
    batch_size, length, _ = sequence.shape
    scores = np.zeros((batch_size, length, scorer.max_span_width))
    for row in range(batch_size):
        h = sequence[row] @ kernel + bias
        for start in range(length):
            for width in range(1, scorer.max_span_width + 1):
                last = start + width - 1
                h_start = h[start, :hidden_dim]
                h_end = h[last, hidden_dim:] if last < length else 0.0
                x = np.maximum(h_start + h_end, 0.0)
                x = x - x.mean()
                x = x / np.sqrt((x**2).mean() + 1e-3)
                x = x * gamma + beta
                scores[row, start, width - 1] = (x @ vector + score_bias)[0]
    return scores


@pytest.mark.parametrize("max_span_width", [1, 3, 9])
def test_span_scores_against_a_loop(randomize, max_span_width):
    scorer = SpanScorer(6, max_span_width, 1e-3)
    sequence = np.random.default_rng(1).normal(size=(2, 5, 8))
    scorer.build(sequence.shape)
    randomize(scorer)
    scores = np.asarray(scorer(sequence.astype("float32")))
    assert scores.shape == (2, 5, max_span_width)
    np.testing.assert_allclose(
        scores, _numpy_span_scores(scorer, sequence), atol=1e-5
    )


@pytest.fixture(scope="module")
def reader(make_encoder, randomize):
    reader = Reader(make_encoder(), span_hidden_dim=6, max_span_width=3)
    randomize(reader, seed=5)
    return reader


def test_padding_changes_no_span_before_it(reader, token_batch):
    row = {name: array[1:, :3] for name, array in token_batch.items()}
    alone = np.asarray(reader(row))[0]
    in_batch = np.asarray(reader(token_batch))[1]
    for start in range(3):
        widths = 3 - start
        np.testing.assert_allclose(
            in_batch[start, :widths], alone[start, :widths], atol=1e-5
        )


def test_the_pooled_output_is_not_trained(reader):
    frozen = {v.path.split("/")[0] for v in reader.non_trainable_weights}
    assert frozen == {"pooled_dense"}


@pytest.mark.slow
def test_a_reader_knows_whether_it_was_trained(make_encoder, token_batch):
    reader = Reader(make_encoder(), span_hidden_dim=6, max_span_width=3)
    assert not reader.is_trained
    reader.compile("adam", "mse")
    reader.train_on_batch(token_batch, np.ones((2, 7, 3), "float32"))
    assert reader.is_trained
