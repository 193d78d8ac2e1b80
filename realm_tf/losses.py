"""REALM's losses: pure functions on tensors, nothing reduced over the batch.

Masks are boolean and separate from scores. A row in which nothing is allowed,
or nothing is correct, gives 0 with a gradient of 0, never NaN.
"""

from keras import ops


def masked_logsumexp(scores, mask, axis=-1):
    """log sum exp over the allowed entries.

        log sum_{i: mask_i} exp(scores_i)

    Args:
        scores: float tensor. Finite; entries outside the mask are not read.
        mask: bool tensor of the same shape. Entries that take part.
        axis: int or tuple of int. What to sum over. Defaults to `-1`.

    Returns:
        float tensor without `axis`, in nats. Where the mask holds nothing it
        is the most negative number of the type, and its gradient is 0.
    """
    scores = ops.convert_to_tensor(scores)
    lowest = _lowest(scores.dtype)
    shifted = ops.where(mask, scores, lowest)
    largest = ops.stop_gradient(ops.max(shifted, axis=axis, keepdims=True))
    # Without a shift of its own, exp(lowest - lowest) would be 1.
    weights = ops.where(
        mask, ops.exp(ops.where(mask, scores - largest, 0.0)), 0.0
    )
    total = ops.sum(weights, axis=axis)
    any_allowed = ops.any(mask, axis=axis)
    log_total = ops.log(ops.where(any_allowed, total, 1.0))
    return ops.where(
        any_allowed, ops.squeeze(largest, axis=axis) + log_total, lowest
    )


def marginal_span_loss(scores, correct, mask, axis=-1):
    """Negative log-probability that a correct entry is chosen.

        loss = log sum_{i in mask} exp(s_i) - log sum_{i in correct} exp(s_i)

    The retriever's loss with candidates for entries (correct: those that
    contain an answer) and the reader's with spans for entries.

    Args:
        scores: float tensor, `(batch_size, ...)`.
        correct: bool tensor of the same shape. A subset of `mask` is used.
        mask: bool tensor of the same shape. Entries that may be chosen.
        axis: int or tuple of int. The entries. Defaults to `-1`.

    Returns:
        float tensor without `axis`, in nats, at least 0; exactly 0 where
        nothing is correct (the example teaches nothing).

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 5.
        Original code: google-research/language,
        language/orqa/models/orqa_model.py.
    """
    correct = ops.logical_and(correct, mask)
    any_correct = ops.any(correct, axis=axis)
    loss = masked_logsumexp(scores, mask, axis) - masked_logsumexp(
        scores, correct, axis
    )
    return ops.where(any_correct, loss, 0.0)


def _lowest(dtype):
    # Half the range, so that sums and differences of two stay finite. The
    # same value serves bfloat16; float16 is not a training type here.
    return -1.7e38 if dtype != "float16" else -3.2e4
