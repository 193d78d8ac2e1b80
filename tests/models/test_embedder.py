"""The embedder beside its embeddings.

These are held against others in test_hugging_face_parity.py and in
tests/checkpoints/test_sentence_transformers.py.
"""

import numpy as np
import pytest

from realm_tf.models.embedder import Embedder


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_nothing(make_encoder, token_batch, pooling):
    embedder = Embedder(make_encoder(), pooling=pooling, projection_dim=None)
    row = {name: array[1:, :3] for name, array in token_batch.items()}
    np.testing.assert_allclose(
        np.asarray(embedder(row))[0],
        np.asarray(embedder(token_batch))[1],
        atol=1e-5,
    )


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
