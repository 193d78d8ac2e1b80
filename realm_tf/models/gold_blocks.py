"""Which candidates a question learns from, and what of them is right."""

from keras import ops


def gold_or(candidate_ids, gold_ids, has_answer):
    """Which candidate is the gold block; which ones answer, if none is.

    Args:
        candidate_ids: int tensor `(batch_size, num_candidates)`.
        gold_ids: int tensor `(batch_size,)`. -1 for none.
        has_answer: bool tensor `(batch_size, num_candidates)`.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    is_gold = ops.equal(candidate_ids, gold_ids[:, None])
    return ops.where(
        ops.any(is_gold, axis=1, keepdims=True), is_gold, has_answer
    )


def include(positions, wanted):
    """Puts the best wanted candidate last, if none is read.

    Args:
        positions: int32 tensor `(batch_size, num_read)`. The first candidates.
        wanted: bool tensor `(batch_size, num_candidates)`.

    Returns:
        int32 tensor `(batch_size, num_read)`.
    """
    num_read = positions.shape[1]
    first = ops.cast(ops.argmax(ops.cast(wanted, "int32"), axis=1), "int32")
    # Without any, argmax is 0, which is read anyway.
    last = ops.where(first < num_read, positions[:, -1], first)
    return ops.concatenate([positions[:, :-1], last[:, None]], axis=1)


def only_gold(outputs, gold_ids):
    """What is right and what counts, if only the gold block can be right.

    Args:
        outputs: dict of tensors, as of `RetrieveAndRead`: `read_ids`
            `(batch_size, num_read)`, `correct` and `allowed` `(batch_size,
            num_read, length, width)`.
        gold_ids: int tensor `(batch_size,)`. -1 for none.

    Returns:
        dict of the new `correct` and `allowed`: without the spans of other
        blocks that equal an answer, where the gold block is read.
    """
    # (b, r, 1, 1)
    is_gold = ops.equal(outputs["read_ids"], gold_ids[:, None])[..., None, None]
    elsewhere = ops.logical_and(
        outputs["correct"],
        ops.logical_and(
            ops.any(is_gold, axis=1, keepdims=True), ops.logical_not(is_gold)
        ),
    )
    counts = ops.logical_not(elsewhere)
    return {
        name: ops.logical_and(outputs[name], counts)
        for name in ("correct", "allowed")
    }
