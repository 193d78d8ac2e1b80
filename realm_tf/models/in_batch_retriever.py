"""Retrievers that learn from the blocks of their own batch."""

import keras
from keras import ops

from realm_tf.models import packing
from realm_tf.models.embedder import check_widths


class InBatchRetriever(keras.Model):
    """Two towers, whose queries and blocks come in one batch.

    Every block of the global batch may be a candidate of every query. On JAX
    with `keras.distribution.DataParallel` the batch of a step is the global
    one, so nothing is gathered by hand; under a `tf.distribute` strategy each
    replica would see its own part only, which is refused.

    Inputs are a dict of int tensors, among them `query_token_ids` and
    `query_padding_mask` `(batch_size, query_length)`; `block_token_ids`,
    `block_segment_ids` and `block_padding_mask`, `(batch_size, block_length)`
    or `(batch_size, num_slots, block_length)`. The output is a dict of
    float32 tensors: `query_embeddings`, scaled, `(batch_size,
    embedding_dim)`, and `block_embeddings` `(batch_size * num_slots,
    embedding_dim)`.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.
        metric_names: tuple of str. Means that `compute_loss` keeps.

    Raises:
        ValueError: if the towers differ in width; in `compute_loss`, under a
            `tf.distribute` strategy of more than one replica.
    """

    def __init__(
        self,
        query_embedder,
        block_embedder,
        score_scale=1.0,
        *,
        metric_names,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_widths(query_embedder, block_embedder)
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.score_scale = score_scale
        self._trackers = {
            name: keras.metrics.Mean(name=name) for name in metric_names
        }
        # Its parts are functional models with weights of their own.
        self.built = True

    def call(self, inputs, training=False):
        # JAX's `fit` hands NumPy arrays in, which towers refuse beside tensors.
        inputs = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        queries = self.query_embedder(
            packing.query_inputs(inputs, "query_"), training=training
        )
        blocks = {}
        for name in ("token_ids", "segment_ids", "padding_mask"):
            rows = inputs[f"block_{name}"]
            blocks[name] = ops.reshape(rows, (-1, ops.shape(rows)[-1]))
        blocks = self.block_embedder(blocks, training=training)
        return {
            "query_embeddings": self.score_scale * ops.cast(queries, "float32"),
            "block_embeddings": ops.cast(blocks, "float32"),
        }

    def _mean_loss(self, loss, is_example, tracked):
        """The mean over examples; keeps `(values, mask)` of each metric."""
        _check_one_replica()
        for name, (values, counted) in tracked.items():
            self._trackers[name].update_state(
                ops.cast(values, "float32"),
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
            "The loss needs all blocks of the batch on one replica, a "
            f"tf.distribute strategy has {replicas}: use the JAX backend "
            "with keras.distribution.DataParallel."
        )
