"""The Inverse Cloze Task: the retriever's warm start."""

import keras
from keras import ops

from realm_tf import losses


class IctModel(keras.Model):
    """Finds the block of a sentence among all blocks of the batch.

        loss_i = log sum_j exp(f(x_i, z_j)) - f(x_i, z_i)

    Every block of the global batch is a candidate. On JAX with
    `keras.distribution.DataParallel` the batch of the step is the global one,
    so nothing is gathered by hand; under a `tf.distribute` strategy each
    replica would see its own part only, which is refused.

    Inputs are a dict of int tensors, as `data.inverse_cloze.IctExamples` makes it:
    `query_token_ids` and `query_padding_mask` `(batch_size, query_length)`;
    `block_token_ids`, `block_segment_ids` and `block_padding_mask`
    `(batch_size, block_length)`; `removed` and `block_id` `(batch_size,)`.
    Rows whose `block_id` is -1 take no part. The output is a dict of
    `query_embeddings`, scaled, and `block_embeddings`, `(batch_size,
    embedding_dim)`.

    Metrics, over examples: `accuracy`, the own block has the highest score;
    `accuracy_removed` and `accuracy_left`, the same where the block goes
    without the sentence and where it was left in. Blocks are drawn without
    replacement, so chance is 1 / batch_size.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
        Original code: google-research/language, language/orqa.
    """

    def __init__(
        self, query_embedder, block_embedder, score_scale=1.0, **kwargs
    ):
        super().__init__(**kwargs)
        if query_embedder.embedding_dim != block_embedder.embedding_dim:
            raise ValueError(
                "Both towers must have one embedding_dim. Received: "
                f"query_embedder.embedding_dim={query_embedder.embedding_dim},"
                f" block_embedder.embedding_dim={block_embedder.embedding_dim}"
            )
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.score_scale = score_scale
        self._trackers = {
            name: keras.metrics.Mean(name=name)
            for name in ("accuracy", "accuracy_removed", "accuracy_left")
        }
        # Its parts are functional models with weights of their own.
        self.built = True

    def call(self, inputs, training=False):
        # JAX's `fit` hands NumPy arrays in, which towers refuse beside tensors.
        inputs = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        queries = self.query_embedder(
            {
                "token_ids": inputs["query_token_ids"],
                "segment_ids": ops.zeros_like(inputs["query_token_ids"]),
                "padding_mask": inputs["query_padding_mask"],
            },
            training=training,
        )
        blocks = self.block_embedder(
            {
                name: inputs[f"block_{name}"]
                for name in ("token_ids", "segment_ids", "padding_mask")
            },
            training=training,
        )
        return {
            "query_embeddings": self.score_scale * ops.cast(queries, "float32"),
            "block_embeddings": ops.cast(blocks, "float32"),
        }

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean loss of the batch's examples."""
        _check_one_replica()
        # (b,)
        is_example = ops.greater_equal(x["block_id"], 0)
        removed = ops.greater(x["removed"], 0)
        loss, correct = losses.in_batch_softmax(
            y_pred["query_embeddings"],
            y_pred["block_embeddings"],
            ops.arange(ops.shape(x["block_id"])[0], dtype="int32"),
            is_example,
        )
        for name, counted in (
            ("accuracy", is_example),
            ("accuracy_removed", ops.logical_and(is_example, removed)),
            (
                "accuracy_left",
                ops.logical_and(is_example, ops.logical_not(removed)),
            ),
        ):
            self._trackers[name].update_state(
                ops.cast(correct, "float32"),
                sample_weight=ops.cast(counted, "float32"),
            )
        num_examples = ops.sum(ops.cast(is_example, "float32"))
        return ops.sum(loss) / ops.maximum(num_examples, 1.0)


def _check_one_replica():
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            "IctModel needs all blocks of the batch on one replica, a "
            f"tf.distribute strategy has {replicas}: use the JAX backend "
            "with keras.distribution.DataParallel."
        )
