"""REALM's losses: pure functions on tensors, not reduced over the batch.

Only `mean_over_masked` reduces. Masks are boolean and separate from scores. A
row in which nothing is allowed, or nothing is correct, gives 0 with a
gradient of 0, never NaN. From `relevance_scores` on, all is computed in
float32, whatever comes in.
"""

import contextlib
import math

import keras
from keras import ops

# How wordpieces and blocks are summed out; see `marginal_log_likelihood`.
MARGINALIZATIONS = ("token", "span")


def masked_logsumexp(scores, mask, axis=-1):
    """log sum exp over the allowed entries.

        log sum_{i: mask_i} exp(scores_i)

    Args:
        scores: float tensor. Finite; entries outside the mask are not read.
        mask: bool tensor of the same shape. Entries that take part.
        axis: int or tuple of int. The axes of the sum. Defaults to `-1`.

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


def with_none(values, none=0):
    """Values of spans, and that of "none" as the last one.

    Args:
        values: tensor `(..., num_spans)`.
        none: tensor `(...)`, or a number for all. Defaults to `0`, its score.

    Returns:
        tensor `(..., num_spans + 1)`.
    """
    none = ops.broadcast_to(
        ops.cast(none, values.dtype), ops.shape(values[..., 0])
    )
    return ops.concatenate([values, none[..., None]], axis=-1)


def none_span_loss(scores, correct, mask, none_is_right):
    """Negative log-probability that a correct span, or "none", is chosen.

        p(none) = 1 / (1 + sum_{i in mask} exp(s_i))
        p(i)    = exp(s_i) p(none)

    `marginal_span_loss` with one entry more, "none", whose score is 0.

    Args:
        scores: float tensor `(..., num_spans)`. Log-odds against "none".
        correct: bool tensor of the same shape. A subset of `mask` is used.
        mask: bool tensor of the same shape. Spans that may be chosen.
        none_is_right: bool tensor `(...)`.

    Returns:
        float tensor `(...)`, in nats, at least 0; exactly 0 where neither a
        span nor "none" is correct.

    References:
        [Clark and Gardner, 2018](https://arxiv.org/abs/1710.10723), section 3,
        the no-answer option.
    """
    return marginal_span_loss(
        with_none(ops.convert_to_tensor(scores)),
        with_none(ops.logical_and(correct, mask), none_is_right),
        with_none(ops.convert_to_tensor(mask), True),
    )


def teacher_loss(scores, teacher_scores, mask, temperature=1.0):
    """Distance of a choice from that of teachers.

        q_i  = mean_t softmax(s^t / T)_i
        loss = T^2 sum_{i in mask} q_i (log q_i - log softmax(s / T)_i)

    The Kullback-Leibler divergence from the mean distribution of the teachers,
    which has the gradient of the cross-entropy. A high temperature T shows more
    of what they think of unlikely entries; T^2 keeps the size of the gradient.

    Args:
        scores: float tensor `(batch_size, num)`.
        teacher_scores: float tensor `(batch_size, num_teachers, num)`.
        mask: bool tensor `(batch_size, num)`. Entries that may be chosen.
        temperature: float. T. Defaults to `1.0`.

    Returns:
        float32 tensor `(batch_size,)`, in nats, at least 0.

    References:
        [Hinton et al., 2015](https://arxiv.org/abs/1503.02531), sections 2
        and 4.
    """
    scores, teacher_scores = (
        ops.convert_to_tensor(each) / temperature
        for each in (scores, teacher_scores)
    )
    num_teachers = teacher_scores.shape[1]
    of_each = masked_log_softmax(
        teacher_scores,
        ops.broadcast_to(mask[:, None], ops.shape(teacher_scores)),
    )
    wanted = ops.logsumexp(of_each, axis=1) - math.log(num_teachers)
    wanted = ops.stop_gradient(wanted)
    further = wanted - masked_log_softmax(scores, mask)
    distance = ops.sum(ops.where(mask, ops.exp(wanted) * further, 0.0), axis=-1)
    return temperature**2 * distance


def float32_products():
    """A context whose products of float32 are not rounded by accelerators.

    JAX would multiply bfloat16 on TPUs and TF32 on GPUs, TensorFlow TF32 on GPUs;
    at scores of some hundreds this is a whole nat. TensorFlow has one switch for
    the process: TF32 stays off.
    """
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_matmul_precision("highest")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)
    return contextlib.nullcontext()


def relevance_scores(query_embeddings, block_embeddings):
    """Inner products of each query with its own candidates.

        f(x, z) = Embed_input(x) . Embed_doc(z)

    Without a temperature: a model's `score_scale` is in the query embeddings
    already (`OpenQa.embed_queries`).

    Args:
        query_embeddings: float tensor `(batch_size, embedding_dim)`.
        block_embeddings: float tensor `(batch_size, num_candidates,
            embedding_dim)`.

    Returns:
        float32 tensor `(batch_size, num_candidates)`.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
    """
    queries = ops.cast(query_embeddings, "float32")
    blocks = ops.cast(block_embeddings, "float32")
    # Not a matmul: accelerators round its operands (`float32_products`), and
    # these few products cost nothing.
    return ops.sum(queries[:, None, :] * blocks, axis=-1)


def masked_log_softmax(scores, mask):
    """Log-softmax over the allowed entries of the last axis.

        log p_i = s_i - log sum_{j: mask_j} exp(s_j)

    Args:
        scores: float tensor `(..., num)`. Entries outside the mask are not
            read.
        mask: bool tensor of the same shape.

    Returns:
        float32 tensor of the same shape, in nats. Outside the mask it is the
        most negative number that can be added to itself, with a gradient of
        0; its exponential is 0.
    """
    scores = ops.cast(scores, "float32")
    total = ops.expand_dims(masked_logsumexp(scores, mask), axis=-1)
    return ops.where(mask, scores - total, _lowest("float32"))


def retrieval_log_probs(query_embeddings, block_embeddings, mask):
    """Log-probability with which the retriever chooses each candidate.

        log p(z | x) = f(x, z) - log sum_{z'} exp f(x, z')

    Args:
        query_embeddings: float tensor `(batch_size, embedding_dim)`.
        block_embeddings: float tensor `(batch_size, num_candidates,
            embedding_dim)`.
        mask: bool tensor `(batch_size, num_candidates)`. Candidates that
            take part.

    Returns:
        float32 tensor `(batch_size, num_candidates)`, in nats; see
        `masked_log_softmax` for candidates that are not allowed.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
    """
    return masked_log_softmax(
        relevance_scores(query_embeddings, block_embeddings), mask
    )


def masked_lm_log_probs(logits, mask_ids):
    """Log-probability of the wordpieces that were masked.

        log p(y_m | .) = logits[m, y_m] - log sum_v exp(logits[m, v])

    No log-softmax of the whole vocabulary is kept beside the logits.

    Args:
        logits: float tensor `(..., num_masks, vocabulary_size)`.
        mask_ids: int tensor `(..., num_masks)`. Ids of the vocabulary, where
            there is padding too.

    Returns:
        float32 tensor `(..., num_masks)`, in nats.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1.
    """
    return -ops.sparse_categorical_crossentropy(
        mask_ids, ops.cast(logits, "float32"), from_logits=True
    )


def marginal_log_likelihood(
    log_probs,
    retrieval_log_probs,
    mask_weights,
    mask,
    *,
    marginalization="token",
):
    """Log-likelihood of the masked wordpieces, over candidate blocks.

        "token":  L[m] = log sum_z p(z | x) p(y_m | z, x)
        "span":   L    = log sum_z p(z | x) prod_m p(y_m | z, x)

    The paper has the span form; the original code, and the default here, the
    token form, in which another block may explain each wordpiece. With one
    candidate, and with one masked wordpiece, they are equal. A row that
    masks nothing, or has no allowed candidate, gives 0 and a gradient of 0.

    Args:
        log_probs: float tensor `(batch_size, num_candidates, num_masks)`.
            log p(y_m | z, x), in nats.
        retrieval_log_probs: float tensor `(batch_size, num_candidates)`.
            log p(z | x), in nats. Candidate 0 is the null block.
        mask_weights: tensor `(batch_size, num_masks)`. Above 0 where a
            wordpiece is masked, 0 where there is padding.
        mask: bool tensor `(batch_size, num_candidates)`. Candidates that
            take part.
        marginalization: str. `"token"` or `"span"`. Defaults to `"token"`.

    Returns:
        float32 tensor, in nats: `(batch_size, num_masks)` for `"token"`,
        `(batch_size,)` for `"span"`.

    Raises:
        ValueError: if `marginalization` is neither of the two.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.1.
        Original code: google-research/language, language/realm/model.py.
    """
    if marginalization not in MARGINALIZATIONS:
        raise ValueError(
            f"`marginalization` must be one of {MARGINALIZATIONS}. "
            f"Received: marginalization={marginalization!r}"
        )
    # (b, k, m)
    joint = ops.cast(log_probs, "float32")
    is_masked = ops.greater(mask_weights, 0)[:, None, :]
    joint_mask = ops.logical_and(mask[:, :, None], is_masked)
    priors = ops.cast(retrieval_log_probs, "float32")
    if marginalization == "token":
        joint = joint + priors[:, :, None]
    else:
        # (b, k)
        joint = ops.sum(ops.where(is_masked, joint, 0.0), axis=-1) + priors
        joint_mask = ops.any(joint_mask, axis=-1)
    total = masked_logsumexp(joint, joint_mask, axis=1)
    return ops.where(ops.any(joint_mask, axis=1), total, 0.0)


def mean_over_masked(values, mask_weights):
    """Sum of values, divided by the number of masked wordpieces.

    Of a likelihood it makes nats per masked wordpiece of the whole batch, in
    both forms: the form does not change the unit, and rows of padding do not
    count. REALM's loss is minus that of `marginal_log_likelihood`. The original
    code divides its token form so. The paper's span form has no denominator;
    this one is the same for all examples.

    Args:
        values: float tensor `(batch_size, num_masks)` or `(batch_size,)`; 0
            where there is padding.
        mask_weights: tensor `(batch_size, num_masks)`. Above 0 where a
            wordpiece is masked.

    Returns:
        float32 scalar; 0 if nothing is masked.
    """
    num_masked = ops.sum(ops.cast(ops.greater(mask_weights, 0), "float32"))
    return ops.sum(ops.cast(values, "float32")) / ops.maximum(num_masked, 1.0)


def in_batch_softmax(query_embeddings, block_embeddings, targets, mask):
    """The Inverse Cloze Task's loss: find the own block in the batch.

        loss_i = log sum_j exp(q_i . z_j) - q_i . z_{t_i}

    Args:
        query_embeddings: float tensor `(batch_size, embedding_dim)`.
        block_embeddings: float tensor `(num_blocks, embedding_dim)`. All
            blocks of the global batch.
        targets: int tensor `(batch_size,)`. The row of each query's block.
        mask: bool tensor `(num_blocks,)` or `(batch_size, num_blocks)`.
            Blocks that are candidates: not padding, and not a second copy of
            the own block.

    Returns:
        `(loss, ranks)`, both `(batch_size,)`: float32, in nats, and int32,
        from 1: one more than the candidates with a higher score, or the same
        further to the front. A query whose own block is not a candidate has a
        loss of 0 and a gradient of 0.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), on the Inverse
        Cloze Task.
    """
    # (b, n)
    with float32_products():
        scores = ops.matmul(
            ops.cast(query_embeddings, "float32"),
            ops.transpose(ops.cast(block_embeddings, "float32")),
        )
    mask = ops.broadcast_to(mask, ops.shape(scores))
    columns = ops.arange(ops.shape(scores)[1], dtype="int32")[None]
    # (b, 1)
    targets = ops.cast(targets, "int32")[:, None]
    loss = marginal_span_loss(scores, ops.equal(columns, targets), mask)
    own = ops.take_along_axis(scores, targets, axis=1)
    before = ops.logical_or(
        ops.greater(scores, own),
        ops.logical_and(ops.equal(scores, own), ops.less(columns, targets)),
    )
    before = ops.cast(ops.logical_and(before, mask), "int32")
    return loss, 1 + ops.sum(before, axis=-1)


def _lowest(dtype):
    # Half the range, so that sums and differences of two stay finite. The
    # same value serves bfloat16; float16 is not a training type here.
    return -1.7e38 if dtype != "float16" else -3.2e4
