"""The embedder beside its embeddings.

These are held against others in test_hugging_face_parity.py and in
tests/checkpoints/test_sentence_transformers.py.
"""

import numpy as np
import pytest

from realm_tf.models.embedder import Embedder


def test_a_row_of_padding_is_zero_and_not_nan(make_encoder, token_batch):
    embedder = Embedder(
        make_encoder(), pooling="mean", projection_dim=None, normalize=True
    )
    inputs = {
        **token_batch,
        "padding_mask": np.zeros_like(token_batch["padding_mask"]),
    }
    np.testing.assert_array_equal(np.asarray(embedder(inputs)), 0.0)


def test_what_is_not_read_is_not_trained(make_encoder):
    mean = Embedder(make_encoder(), pooling="mean", projection_dim=None)
    assert not mean.encoder.get_layer("pooled_dense").trainable
    assert {v.path.split("/")[0] for v in mean.non_trainable_weights} == {
        "pooled_dense"
    }
    assert not Embedder(make_encoder()).non_trainable_weights


def test_an_unknown_pooling_is_refused(make_encoder):
    with pytest.raises(ValueError, match="pooling='max'"):
        Embedder(make_encoder(), pooling="max")
