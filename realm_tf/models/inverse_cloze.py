"""The Inverse Cloze Task: the retriever's warm start."""

from keras import ops

from realm_tf import losses
from realm_tf.models.in_batch_retriever import InBatchRetriever


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

    Args:
        *towers: of `InBatchRetriever`: both embedders and the score scale.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
        Original code: google-research/language, language/orqa.
    """

    def __init__(self, *towers, **kwargs):
        names = ("accuracy", "accuracy_removed", "accuracy_left")
        super().__init__(*towers, metric_names=names, **kwargs)

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean loss of the batch's examples."""
        # (b,)
        is_example = ops.greater_equal(x["block_id"], 0)
        removed = ops.greater(x["removed"], 0)
        left = ops.logical_not(removed)
        loss, correct = losses.in_batch_softmax(
            y_pred["query_embeddings"],
            y_pred["block_embeddings"],
            ops.arange(ops.shape(x["block_id"])[0], dtype="int32"),
            is_example,
        )
        return self._mean_loss(
            loss,
            is_example,
            {
                "accuracy": (correct, is_example),
                "accuracy_removed": (
                    correct,
                    ops.logical_and(is_example, removed),
                ),
                "accuracy_left": (correct, ops.logical_and(is_example, left)),
            },
        )
