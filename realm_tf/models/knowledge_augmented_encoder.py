"""The knowledge-augmented encoder: masked wordpieces, given a block."""

import keras

from realm_tf import losses
from realm_tf.models.masked_lm import masked_lm_head


@keras.saving.register_keras_serializable(package="realm_tf")
class KnowledgeAugmentedEncoder(keras.Model):
    """BERT over join_BERT(x, z_body) with the masked-LM head.

        p(y_m | z, x) = softmax(MLM(BERT(join_BERT(x, z_body))[m]))

    Query and block attend to each other. A row is a query with one of its
    candidates (`packing.JoinBert`); the query stands first, so its
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
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in (
                "token_ids",
                "segment_ids",
                "padding_mask",
                "mask_positions",
            )
        }
        # Nothing here reads the pooled [CLS].
        encoder.get_layer("pooled_dense").trainable = False
        sequence = encoder(
            {k: v for k, v in inputs.items() if k != "mask_positions"}
        )["sequence_output"]
        head = masked_lm_head(encoder)
        logits = head(sequence, inputs["mask_positions"])
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.encoder = encoder

    def log_probs(self, inputs, mask_ids, training=False):
        """log p(y_m | z, x) of the wordpieces that were masked.

        Beside the logits, nothing of the vocabulary's width is kept.

        Args:
            inputs: dict of int tensors, as the model's.
            mask_ids: int tensor `(num_rows, num_masks)`. The wordpieces,
                padded with any id.
            training: bool. Defaults to `False`.

        Returns:
            float32 tensor `(num_rows, num_masks)`, in nats. What stands at
            padding has no meaning.
        """
        return losses.masked_lm_log_probs(
            self(inputs, training=training), mask_ids
        )

    def get_config(self):
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        encoder = keras.saving.deserialize_keras_object(config.pop("encoder"))
        return cls(encoder, **config)
