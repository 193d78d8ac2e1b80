"""The retriever, trained on questions with blocks that answer them."""

import keras
from keras import ops

from realm_tf import losses
from realm_tf.models.inverse_cloze import IctModel


class DprModel(keras.Model):
    """Finds the block that answers a question among all blocks of the batch.

        loss_i = log sum_{j: mask_ij} exp(f(x_i, z_j)) - f(x_i, z_i)

    z_i is the question's positive; the z_j are the positives and the hard
    negatives of all questions of the global batch that the mask allows. Where
    the batch is spread over devices by `keras.distribution.DataParallel`, all
    of it is seen. A `tf.distribute` strategy does not do that: the mask of a
    replica would not fit its blocks, which fails.

    Inputs are a dict of int tensors, as `data.hard_negatives.DprExamples` makes it:
    `query_token_ids` and `query_padding_mask` `(batch_size, query_length)`;
    `block_token_ids`, `block_segment_ids` and `block_padding_mask`
    `(batch_size, num_slots, block_length)`, the positive first;
    `candidate_mask` `(batch_size, batch_size * num_slots)`. A row whose mask
    is 0 takes no part. The output is a dict of `query_embeddings`, scaled,
    `(batch_size, embedding_dim)`, and `block_embeddings` `(batch_size *
    num_slots, embedding_dim)`.

    Metrics, over questions: `accuracy`, the positive has the highest score;
    `rank`, its mean rank among the candidates, from 1.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        3.2. The mask is not in it: see `DprExamples`.
    """

    def __init__(
        self, query_embedder, block_embedder, score_scale=1.0, **kwargs
    ):
        super().__init__(**kwargs)
        # For its towers: a text is embedded there as it is here.
        self._pairs = IctModel(
            query_embedder, block_embedder, score_scale=score_scale
        )
        self._trackers = {
            name: keras.metrics.Mean(name=name) for name in ("accuracy", "rank")
        }
        # Its parts are functional models with weights of their own.
        self.built = True

    def call(self, inputs, training=False):
        flat = {}
        for name, tensor in inputs.items():
            if name.startswith("block_"):
                # (b * slots, l)
                tensor = ops.reshape(tensor, (-1, ops.shape(tensor)[-1]))
            flat[name] = tensor
        return self._pairs(flat, training=training)

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean loss of the batch's questions."""
        # (b, b * slots)
        mask = ops.greater(x["candidate_mask"], 0)
        # (b,)
        is_example = ops.cast(ops.any(mask, axis=-1), "float32")
        num_slots = ops.shape(x["block_token_ids"])[1]
        targets = num_slots * ops.arange(ops.shape(mask)[0], dtype="int32")
        arguments = (
            y_pred["query_embeddings"],
            y_pred["block_embeddings"],
            targets,
            mask,
        )
        loss, correct = losses.in_batch_softmax(*arguments)
        for name, values in (
            ("accuracy", correct),
            ("rank", in_batch_ranks(*arguments)),
        ):
            self._trackers[name].update_state(
                ops.cast(values, "float32"), sample_weight=is_example
            )
        return ops.sum(loss) / ops.maximum(ops.sum(is_example), 1.0)


def in_batch_ranks(query_embeddings, block_embeddings, targets, mask):
    """The rank of each query's block among its candidates.

    Args:
        query_embeddings, block_embeddings, targets: as
            `losses.in_batch_softmax`.
        mask: bool tensor `(batch_size, num_blocks)`. See there.

    Returns:
        int32 tensor `(batch_size,)`, from 1: one more than the candidates
        with a higher score, or the same further to the front. So a rank of 1
        is what `in_batch_softmax` calls correct.
    """
    # (b, n)
    scores = ops.matmul(
        ops.cast(query_embeddings, "float32"),
        ops.transpose(ops.cast(block_embeddings, "float32")),
    )
    targets = ops.cast(targets, "int32")[:, None]
    own = ops.take_along_axis(scores, targets, axis=1)
    columns = ops.arange(ops.shape(scores)[1], dtype="int32")[None]
    before = ops.logical_or(
        ops.greater(scores, own),
        ops.logical_and(ops.equal(scores, own), ops.less(columns, targets)),
    )
    before = ops.logical_and(before, mask)
    return 1 + ops.sum(ops.cast(before, "int32"), axis=-1)
