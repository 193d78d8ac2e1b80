"""The knowledge-augmented encoder: masked wordpieces, given a block."""

import keras
import keras_hub
from keras import ops

from realm_tf import losses
from realm_tf.models import packing
from realm_tf.models.bert_encoder import ACTIVATIONS
from realm_tf.models.bert_encoder import EncoderModel
from realm_tf.models.bert_encoder import make_initializer
from realm_tf.models.bert_encoder import make_inputs


@keras.saving.register_keras_serializable(package="realm_tf")
class KnowledgeAugmentedEncoder(EncoderModel):
    """BERT over join_BERT(x, z_body) with the masked-LM head.

        p(y_m | z, x) = softmax(MLM(BERT(join_BERT(x, z_body))[m]))
        MLM(h) = LayerNorm(gelu(W h + b)) E^T + c

    Query and block attend to each other. A row is a query with one of its
    candidates (`packing.JoinBert`); the query comes first, so its
    `mask_positions` are those of the joint sequence. Inputs are a dict of
    int tensors: `token_ids`, `segment_ids` and `padding_mask`,
    `(num_rows, sequence_length)`, and `mask_positions`,
    `(num_rows, num_masks)`, padded with any position. The output is a
    float32 tensor `(num_rows, num_masks, vocabulary_size)`: logits, at
    masked places only.

    The head is `keras_hub.layers.MaskedLMHead` with BERT's settings, tied to
    the encoder's word embeddings E. It and the product with E run in float32
    under any dtype policy: steps of bfloat16 between logits of 10 are 0.06,
    and candidates that differ by less teach the retriever.

    Args:
        encoder: `BertEncoder`. Its pooled [CLS] is not read and not trained.
            From here on its `token_embedding` gives float32 in reverse,
            whoever calls it.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2;
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805).
        Original code: google-research/language, language/realm/model.py;
        google-research/bert, run_pretraining.py.
    """

    def __init__(self, encoder, **kwargs):
        inputs = make_inputs("mask_positions")
        # Nothing here reads the pooled [CLS].
        encoder.get_layer("pooled_dense").trainable = False
        sequence = encoder(
            {k: v for k, v in inputs.items() if k != "mask_positions"}
        )["sequence_output"]
        token_embedding = encoder.get_layer("token_embedding")
        token_embedding.reverse_dtype = "float32"
        logits = keras_hub.layers.MaskedLMHead(
            token_embedding=token_embedding,
            intermediate_activation=ACTIVATIONS[encoder.activation],
            layer_norm_epsilon=encoder.layer_norm_epsilon,
            kernel_initializer=make_initializer(),
            dtype="float32",
            name="masked_lm_head",
        )(sequence, inputs["mask_positions"])
        super().__init__(inputs, logits, {"encoder": encoder}, **kwargs)


class MaskedLmModel(keras.Model):
    """Predicts masked wordpieces from a given block, or from none.

        loss = -mean over wordpieces m to predict of log p(y_m | z, x)

    It gives a head to an encoder that comes without one, and teaches it to
    look up masked words, before `RealmModel` trains it with a retriever.
    Inputs as `RealmModel`, of which it reads `token_ids`, `padding_mask`,
    `mask_positions`, `mask_ids` and `mask_weights`, and what
    `data.masked_lm_warm_up` adds: `block_token_ids` `(batch_size, block_length)`,
    `block_lengths` `(batch_size,)`, 0 for the null block, and `block_kind`
    `(batch_size,)`. Without these all read the null block. The output is a
    float32 tensor `(batch_size, max_masked, vocabulary_size)`.

    Metrics: `accuracy_KIND` for each kind of block, over wordpieces that are
    not visible in the query; 0 where there are none.

    Args:
        knowledge_augmented_encoder: `KnowledgeAugmentedEncoder`.
        sep_id: int. Id of [SEP].
        block_kinds: tuple of str. Names of the values of `block_kind`, from
            0, such as `data.masked_lm_warm_up.KINDS`. Defaults to the null
            block alone.
    """

    def __init__(
        self,
        knowledge_augmented_encoder,
        *,
        sep_id,
        block_kinds=("null_block",),
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.knowledge_augmented_encoder = knowledge_augmented_encoder
        self.join_bert = packing.JoinBert(sep_id)
        self._trackers = [
            keras.metrics.Mean(name=f"accuracy_{name}") for name in block_kinds
        ]

    def call(self, inputs, training=False):
        inputs = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        token_ids = inputs["token_ids"]
        no_body = ops.zeros_like(token_ids[:, :1])
        joined = self.join_bert(
            token_ids,
            inputs["padding_mask"],
            inputs.get("block_token_ids", no_body)[:, None],
            inputs.get("block_lengths", no_body[:, 0])[:, None],
            inputs["mask_positions"],
        )
        return self.knowledge_augmented_encoder(
            packing.trim(joined), training=training
        )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        x = {k: ops.convert_to_tensor(v) for k, v in x.items()}
        mask_ids = ops.cast(x["mask_ids"], "int32")
        weights = ops.cast(x["mask_weights"], "float32")
        self._update_trackers(x, y_pred, mask_ids, weights)
        log_probs = losses.masked_lm_log_probs(y_pred, mask_ids)
        return -losses.mean_over_masked(weights * log_probs, weights)

    def _update_trackers(self, x, logits, mask_ids, weights):
        visible = ops.take_along_axis(
            ops.cast(x["token_ids"], "int32"), x["mask_positions"], axis=1
        )
        weights = weights * ops.cast(
            ops.not_equal(visible, mask_ids), "float32"
        )
        correct = ops.equal(
            ops.cast(ops.argmax(logits, axis=-1), "int32"), mask_ids
        )
        kinds = x.get("block_kind", ops.zeros_like(mask_ids[:, 0]))
        for kind, tracker in enumerate(self._trackers):
            # (b, 1)
            of_kind = ops.cast(ops.equal(kinds, kind), "float32")[:, None]
            tracker.update_state(correct, sample_weight=weights * of_kind)
