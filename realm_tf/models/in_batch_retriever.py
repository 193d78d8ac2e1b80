"""Retrievers that learn from the blocks of their own batch."""

import keras
from keras import ops

from realm_tf import losses
from realm_tf.models import packing


class InBatchRetriever(keras.Model):
    """Two towers, whose queries and blocks come in one batch.

    Every block of the global batch may be a candidate of every query. On JAX
    with `keras.distribution.DataParallel` the batch of a step is the global
    one, so nothing is gathered by hand; under a `tf.distribute` strategy each
    replica sees its own part only.

    Inputs are a dict of int tensors, among them `query_token_ids` and
    `query_padding_mask` `(batch_size, query_length)`; `block_token_ids`,
    `block_segment_ids` and `block_padding_mask`, `(batch_size, block_length)`
    or `(batch_size, num_slots, block_length)`. The output is a dict of
    float32 tensors: `query_embeddings`, scaled, `(batch_size,
    embedding_dim)`, and `block_embeddings` `(batch_size * num_slots,
    embedding_dim)`.

    A subclass has `metric_names`, the means that `compute_loss` keeps,
    `_candidates`, the mask of `losses.in_batch_softmax` and which rows are
    examples, and `_measure`, name of each metric to its values and what of
    them counts.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.
    """

    def __init__(
        self, query_embedder, block_embedder, score_scale=1.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.score_scale = score_scale
        self._trackers = {
            name: keras.metrics.Mean(name=name) for name in self.metric_names
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

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean loss of the batch's examples."""
        queries = y_pred["query_embeddings"]
        blocks = y_pred["block_embeddings"]
        mask, is_example = self._candidates(x)
        # An example's own block is the first of its row.
        batch_size = ops.shape(queries)[0]
        num_slots = ops.shape(blocks)[0] // batch_size
        targets = num_slots * ops.arange(batch_size, dtype="int32")
        loss, ranks = losses.in_batch_softmax(queries, blocks, targets, mask)
        for name, (values, counted) in self._measure(
            x, ranks, is_example
        ).items():
            self._trackers[name].update_state(
                ops.cast(values, "float32"),
                sample_weight=ops.cast(counted, "float32"),
            )
        num_examples = ops.sum(ops.cast(is_example, "float32"))
        return ops.sum(loss) / ops.maximum(num_examples, 1.0)


class IctModel(InBatchRetriever):
    """Finds the block of a sentence among all blocks of the batch.

        loss_i = log sum_j exp(f(x_i, z_j)) - f(x_i, z_i)

    Inputs are those of `InBatchRetriever` with one block a row, and int
    tensors `removed` and `block_id` `(batch_size,)`, as
    `data.inverse_cloze.IctExamples` makes them. Rows whose `block_id` is -1
    take no part.

    Metrics, over examples: `accuracy`, the own block has the highest score;
    `accuracy_removed` and `accuracy_left`, the same where the block goes
    without the sentence and where it was left in. Blocks are drawn without
    replacement, so chance is 1 / batch_size.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
        Original code: google-research/language, language/orqa.
    """

    metric_names = ("accuracy", "accuracy_removed", "accuracy_left")

    def _candidates(self, x):
        is_example = ops.greater_equal(x["block_id"], 0)
        return is_example, is_example

    def _measure(self, x, ranks, is_example):
        correct = ops.equal(ranks, 1)
        removed = ops.greater(x["removed"], 0)
        left = ops.logical_not(removed)
        return {
            "accuracy": (correct, is_example),
            "accuracy_removed": (correct, ops.logical_and(is_example, removed)),
            "accuracy_left": (correct, ops.logical_and(is_example, left)),
        }


class DprModel(InBatchRetriever):
    """Finds the block that answers a question among all blocks of the batch.

        loss_i = log sum_{j: mask_ij} exp(f(x_i, z_j)) - f(x_i, z_i)

    z_i is the question's positive; the z_j are the positives and the hard
    negatives of all questions of the global batch that the mask allows.

    Inputs are those of `InBatchRetriever` with `num_slots` blocks a row, the
    positive first, and an int tensor `candidate_mask` `(batch_size,
    batch_size * num_slots)`, as `data.hard_negatives.DprExamples` makes them.
    A row whose mask is 0 takes no part.

    Metrics, over questions: `accuracy`, the positive has the highest score;
    `rank`, its mean rank among the candidates, from 1.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        3.2. The mask is not in it: see `DprExamples`.
    """

    metric_names = ("accuracy", "rank")

    def _candidates(self, x):
        # (b, b * slots)
        mask = ops.greater(x["candidate_mask"], 0)
        return mask, ops.any(mask, axis=-1)

    def _measure(self, x, ranks, is_example):
        return {
            "accuracy": (ops.equal(ranks, 1), is_example),
            "rank": (ranks, is_example),
        }
