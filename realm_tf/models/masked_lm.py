"""BERT's masked-LM head, and its training without any block."""

import keras
import keras_hub
from keras import ops

from realm_tf import losses
from realm_tf.models import joint
from realm_tf.models.bert_encoder import approximate_gelu
from realm_tf.models.bert_encoder import exact_gelu


def masked_lm_head(encoder, *, name="masked_lm_head"):
    """BERT's masked-LM head over an encoder, tied to its word embeddings.

        logits[m] = LayerNorm(gelu(W h[m] + b)) E^T + c

    `keras_hub.layers.MaskedLMHead` is this with BERT's settings. It and the
    product with E run in float32 under any dtype policy: steps of bfloat16
    between logits of 10 are 0.06, and candidates that differ by less teach
    the retriever.

    Args:
        encoder: `BertEncoder`. Gives E, the GELU and the LayerNorm's
            epsilon. From here on its `token_embedding` gives float32 in
            reverse, whoever calls it.
        name: str. Of the layer. Defaults to `"masked_lm_head"`.

    Returns:
        `keras_hub.layers.MaskedLMHead`. Call it with the encoder's
        `sequence_output` and `mask_positions`, int tensor `(batch_size,
        num_masks)`; it gives logits, float32, `(batch_size, num_masks,
        vocabulary_size)`.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805).
        Original code: google-research/bert, run_pretraining.py.
    """
    token_embedding = encoder.get_layer("token_embedding")
    token_embedding.reverse_dtype = "float32"
    return keras_hub.layers.MaskedLMHead(
        token_embedding=token_embedding,
        intermediate_activation=(
            exact_gelu if encoder.activation == "gelu" else approximate_gelu
        ),
        layer_norm_epsilon=encoder.layer_norm_epsilon,
        # Standard deviation as in google-research/bert, modeling.py.
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        dtype="float32",
        name=name,
    )


class MaskedLmModel(keras.Model):
    """Predicts masked wordpieces from the null block: without evidence.

        loss = -mean over masked wordpieces m of log p(y_m | null, x)

    It gives a head to an encoder that comes without one, before `RealmModel`
    trains both. Inputs as `RealmModel`, of which it reads `token_ids`,
    `padding_mask`, `mask_positions`, `mask_ids` and `mask_weights`; the
    output is a float32 tensor `(batch_size, max_masked, vocabulary_size)`.

    Args:
        knowledge_augmented_encoder: `KnowledgeAugmentedEncoder`.
        sep_id: int. Id of [SEP].
    """

    def __init__(self, knowledge_augmented_encoder, *, sep_id, **kwargs):
        super().__init__(**kwargs)
        self.knowledge_augmented_encoder = knowledge_augmented_encoder
        self.sep_id = sep_id
        self._accuracy = keras.metrics.Mean(name="mlm_accuracy")

    def call(self, inputs, training=False):
        token_ids = ops.convert_to_tensor(inputs["token_ids"])
        no_body = ops.zeros_like(token_ids[:, :1])
        joined = joint.join_bert(
            token_ids,
            ops.convert_to_tensor(inputs["padding_mask"]),
            no_body,
            no_body[:, 0],
            sep_id=self.sep_id,
            max_length=token_ids.shape[1] + 1,
        )
        joined.pop("block_positions")
        return self.knowledge_augmented_encoder(
            {
                **joined,
                "mask_positions": ops.convert_to_tensor(
                    inputs["mask_positions"]
                ),
            },
            training=training,
        )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        mask_ids = ops.cast(x["mask_ids"], "int32")
        weights = ops.cast(x["mask_weights"], "float32")
        predicted = ops.cast(ops.argmax(y_pred, axis=-1), "int32")
        self._accuracy.update_state(
            ops.equal(predicted, mask_ids), sample_weight=weights
        )
        log_probs = losses.masked_lm_log_probs(y_pred, mask_ids)
        return -ops.sum(weights * log_probs) / ops.maximum(
            ops.sum(weights), 1.0
        )
