"""What the encoder does beside BERT's equations.

These are held against transformers: in test_knowledge_augmented_encoder.py
with one GELU, in tests/checkpoints/test_initial.py with the other.
"""

import numpy as np
import pytest

from realm_tf.models.bert_encoder import BertEncoder


def test_padding_changes_nothing(make_encoder, token_batch):
    encoder = make_encoder()
    outputs = encoder(token_batch)
    # Wordpieces where the mask is 0 are not read either.
    padded = {
        name: np.pad(array, [[0, 0], [0, 4]], constant_values=value)
        for (name, array), value in zip(
            token_batch.items(), (17, 1, 0), strict=True
        )
    }
    wider = encoder(padded)
    kept = token_batch["padding_mask"] == 1
    np.testing.assert_allclose(
        np.asarray(wider["sequence_output"])[:, :7][kept],
        np.asarray(outputs["sequence_output"])[kept],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        np.asarray(wider["pooled_output"]),
        np.asarray(outputs["pooled_output"]),
        atol=1e-5,
    )


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='relu'"):
        BertEncoder(9, 1, 1, 4, 8, activation="relu")
