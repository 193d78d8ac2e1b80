"""Dense Passage Retrieval: trained on questions with blocks that answer them."""

from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.models.in_batch_retriever import InBatchRetriever


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

    Args:
        *towers: of `InBatchRetriever`: both embedders and the score scale.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        3.2. The mask is not in it: see `DprExamples`.
    """

    def __init__(self, *towers, **kwargs):
        super().__init__(*towers, metric_names=("accuracy", "rank"), **kwargs)

    def compute_loss(
        self, x, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean loss of the batch's questions."""
        # (b, b * slots)
        mask = ops.greater(x["candidate_mask"], 0)
        # (b,)
        is_example = ops.any(mask, axis=-1)
        num_slots = ops.shape(x["block_token_ids"])[1]
        targets = num_slots * ops.arange(ops.shape(mask)[0], dtype="int32")
        arguments = (
            y_pred["query_embeddings"],
            y_pred["block_embeddings"],
            targets,
            mask,
        )
        loss, correct = losses.in_batch_softmax(*arguments)
        ranks = metrics.in_batch_ranks(*arguments)
        return self._mean_loss(
            loss,
            is_example,
            {"accuracy": (correct, is_example), "rank": (ranks, is_example)},
        )
