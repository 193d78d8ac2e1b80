"""What the encoder does beside BERT's equations.

These are held against transformers: in test_knowledge_augmented_encoder.py
with one GELU, in tests/checkpoints/test_initial.py with the other.
"""

import pytest

from realm_tf.models.bert_encoder import BertEncoder


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='relu'"):
        BertEncoder(9, 1, 1, 4, 8, activation="relu")
