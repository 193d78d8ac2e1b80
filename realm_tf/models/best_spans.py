"""The best spans of all scores of a reader."""

from keras import ops

from realm_tf import losses


def best_spans(outputs, *, num_best):
    """What the scores say: the best span of each block, and of all.

    Args:
        outputs: dict. What `RetrieveAndRead` returns, arrays or tensors.
        num_best: int. Length of the n-best list, at most the number of spans.

    Returns:
        A dict of tensors. `candidate_starts`, `candidate_limits` and
        `candidate_scores`, `(batch_size, num_reader_blocks)`: the best span
        of each block, in wordpieces of its body (`[start, limit)`; start is
        -1 if the block has none). `candidate_log_probs`, the same shape: the
        log-softmax of the relevance over the blocks read. `nbest_positions`
        (place of the block among those read), `nbest_starts`,
        `nbest_limits`, `nbest_scores`, `(batch_size, num_best)`, best
        first. `log_total`, `(batch_size,)`: log sum exp over all spans read.
        `share`, the same shape: that of the best span in the softmax over
        them.
    """
    scores = ops.where(
        outputs["allowed"],
        ops.cast(outputs["span_scores"], "float32"),
        -1e30,
    )
    batch_size, num_read, length, width = ops.shape(scores)
    positions = outputs["block_positions"]
    # (b, r, l * w)
    of_block = ops.reshape(scores, (batch_size, num_read, length * width))
    best = ops.cast(ops.argmax(of_block, axis=-1), "int32")
    starts, limits = _limits(positions, best[..., None], width)
    # (b, r * l * w)
    of_all = ops.reshape(of_block, (batch_size, num_read * length * width))
    nbest_scores, nbest = ops.top_k(of_all, num_best)
    log_total = losses.masked_logsumexp(
        of_all, ops.reshape(outputs["allowed"], ops.shape(of_all)), axis=1
    )
    nbest = ops.cast(nbest, "int32")
    nbest_starts, nbest_limits = _limits(
        ops.reshape(positions, (batch_size, num_read * length)), nbest, width
    )
    return {
        "candidate_starts": starts[..., 0],
        "candidate_limits": limits[..., 0],
        "candidate_scores": ops.max(of_block, axis=-1),
        "candidate_log_probs": ops.log_softmax(
            ops.cast(outputs["read_scores"], "float32"), axis=-1
        ),
        "nbest_positions": nbest // (length * width),
        "nbest_starts": nbest_starts,
        "nbest_limits": nbest_limits,
        "nbest_scores": nbest_scores,
        "log_total": log_total,
        "share": ops.exp(ops.minimum(nbest_scores[:, 0] - log_total, 0.0)),
    }


def _limits(positions, spans, width):
    """Where spans, numbered by place and width, start and end in bodies."""
    starts = ops.take_along_axis(positions, spans // width, axis=-1)
    return starts, ops.where(starts < 0, -1, starts + spans % width + 1)
