"""Training of the masked-LM head alone, without a retriever."""

import keras
from keras import ops

from realm_tf import losses
from realm_tf.models import packing


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
