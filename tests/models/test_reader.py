"""The reader beside its scores, which test_hugging_face_parity.py checks."""

import numpy as np
import pytest

from realm_tf.models.reader import Reader


@pytest.fixture(scope="module")
def reader(make_encoder, randomize):
    reader = Reader(make_encoder(), span_hidden_dim=6, max_span_width=3)
    randomize(reader, seed=5)
    return reader


def test_scores_are_log_odds(reader, make_encoder, randomize, token_batch):
    """The layer begins as nothing, and what it says counts for all spans."""
    own = Reader(
        make_encoder(), span_hidden_dim=6, max_span_width=3, none_span=True
    )
    randomize(own, seed=5)
    none = own.get_layer("none")
    kernel, bias = map(np.asarray, none.get_weights())
    sequence = np.asarray(own.encoder(token_batch)["sequence_output"])
    of_block = sequence[:, 0] @ kernel + bias
    assert np.ptp(of_block) > 0.01
    found = np.asarray(own(token_batch))
    none.set_weights([np.zeros_like(kernel), np.zeros_like(bias)])
    spans = np.asarray(own(token_batch))
    np.testing.assert_allclose(found, spans - of_block[:, None], atol=1e-5)
    new = Reader(
        make_encoder(), span_hidden_dim=6, max_span_width=3, none_span=True
    )
    assert not any(np.any(v) for v in new.get_layer("none").get_weights())
    # Without the layer the scores are those of the spans.
    assert "none" not in {layer.name for layer in reader.layers}
    weights = [v for v in own.weights if not v.path.startswith("none")]
    reader = Reader(make_encoder(), span_hidden_dim=6, max_span_width=3)
    reader.set_weights(weights)
    np.testing.assert_allclose(
        np.asarray(reader(token_batch)), spans, atol=1e-6
    )


def test_the_pooled_output_is_not_trained(reader):
    frozen = {v.path.split("/")[0] for v in reader.non_trainable_weights}
    assert frozen == {"pooled_dense"}
