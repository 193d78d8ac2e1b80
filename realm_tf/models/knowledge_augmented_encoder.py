"""The knowledge-augmented encoder: masked wordpieces, given a block."""

import keras

from realm_tf.models.encoder_model import EncoderModel
from realm_tf.models.encoder_model import make_inputs
from realm_tf.models.masked_lm import masked_lm_head


@keras.saving.register_keras_serializable(package="realm_tf")
class KnowledgeAugmentedEncoder(EncoderModel):
    """BERT over join_BERT(x, z_body) with the masked-LM head.

        p(y_m | z, x) = softmax(MLM(BERT(join_BERT(x, z_body))[m]))

    Query and block attend to each other. A row is a query with one of its
    candidates (`packing.JoinBert`); the query comes first, so its
    `mask_positions` are those of the joint sequence. Inputs are a dict of
    int tensors: `token_ids`, `segment_ids` and `padding_mask`,
    `(num_rows, sequence_length)`, and `mask_positions`,
    `(num_rows, num_masks)`, padded with any position. The output is a
    float32 tensor `(num_rows, num_masks, vocabulary_size)`: logits, at
    masked places only.

    Args:
        encoder: `BertEncoder`. Its pooled [CLS] is not read and not trained.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
        Original code: google-research/language, language/realm/model.py.
    """

    def __init__(self, encoder, **kwargs):
        inputs = make_inputs("mask_positions")
        # Nothing here reads the pooled [CLS].
        encoder.get_layer("pooled_dense").trainable = False
        sequence = encoder(
            {k: v for k, v in inputs.items() if k != "mask_positions"}
        )["sequence_output"]
        head = masked_lm_head(encoder)
        logits = head(sequence, inputs["mask_positions"])
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.encoder = encoder
