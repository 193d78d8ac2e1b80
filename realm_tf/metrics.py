"""Metrics of a retriever in training: pure functions on tensors.

All in float32 and not reduced over the batch (`losses.mean_over_masked` does).
"""

from keras import ops

from realm_tf import losses


def retrieval_entropy(retrieval_log_probs, mask):
    """Entropy of the retriever's choice.

        H(x) = - sum_z p(z | x) log p(z | x)

    Args:
        retrieval_log_probs: float tensor `(batch_size, num_candidates)`.
        mask: bool tensor of the same shape. Candidates that take part.

    Returns:
        float32 tensor `(batch_size,)`, in nats: 0 to the logarithm of the
        number of candidates.
    """
    log_probs = ops.where(mask, ops.cast(retrieval_log_probs, "float32"), 0.0)
    # Excluded candidates have log p = 0 here, so that p log p = 0.
    return -ops.sum(ops.exp(log_probs) * log_probs, axis=-1)


def retrieval_utility(log_probs, retrieval_log_probs, mask_weights, mask):
    """Gain of the prediction by retrieval, over the null block alone.

        RU[m] = log sum_z p(z | x) p(y_m | z, x) - log p(y_m | null, x)

    By wordpiece in both forms of the likelihood, so that they compare.

    Args:
        log_probs, retrieval_log_probs, mask_weights, mask: as
            `losses.marginal_log_likelihood`. Candidate 0 is the null block
            and is allowed in every row.

    Returns:
        float32 tensor `(batch_size, num_masks)`, in nats; 0 where nothing is
        masked.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), appendix on
        retrieval utility; summed out over blocks and averaged over
        wordpieces, as in the original code.
    """
    marginal = losses.marginal_log_likelihood(
        log_probs, retrieval_log_probs, mask_weights, mask
    )
    alone = ops.cast(log_probs[:, 0], "float32")
    return ops.where(ops.greater(mask_weights, 0), marginal - alone, 0.0)


def marginal_predictions(logits, retrieval_log_probs, mask):
    """The most likely wordpiece at each masked place, blocks summed out.

        argmax_v sum_z p(z | x) p(v | z, x)

    Args:
        logits: float tensor `(batch_size, num_candidates, num_masks,
            vocabulary_size)`.
        retrieval_log_probs: float tensor `(batch_size, num_candidates)`.
            log p(z | x), in nats.
        mask: bool tensor of the same shape. Candidates that take part.

    Returns:
        int32 tensor `(batch_size, num_masks)`. Ids of the vocabulary.
    """
    log_probs = ops.cast(retrieval_log_probs, "float32")
    # (b, k)
    weights = ops.where(mask, ops.exp(log_probs), 0.0)
    # (b, k, m, v)
    probs = ops.softmax(ops.cast(logits, "float32"), axis=-1)
    # (b, m, v)
    marginal = ops.sum(weights[:, :, None, None] * probs, axis=1)
    return ops.cast(ops.argmax(marginal, axis=-1), "int32")
