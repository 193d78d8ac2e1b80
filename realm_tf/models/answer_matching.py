"""Answers and spans in packed wordpieces, on tensors."""

from keras import ops


def allowed_spans(block_positions, max_span_width):
    """Which spans lie inside the block.

    Args:
        block_positions: int tensor `(batch_size, sequence_length)` of
            `join_bert`.
        max_span_width: int. Longest span, in wordpieces.

    Returns:
        bool tensor `(batch_size, sequence_length, max_span_width)`; entry
        `[i, w]` is the span of `w + 1` wordpieces from `i`.
    """
    inside = block_positions >= 0
    length = ops.shape(inside)[1]
    padded = ops.pad(inside, [[0, 0], [0, max_span_width - 1]])
    # A block is contiguous: a span is inside if both of its ends are.
    return ops.stack(
        [
            ops.logical_and(inside, padded[:, width : width + length])
            for width in range(max_span_width)
        ],
        axis=-1,
    )


def match_answers(token_ids, answer_ids, is_continuation, *, max_span_width):
    """Where an answer's wordpieces occur as whole words.

    A match must not be followed by a continuation (`##...`): "us" is not
    found in "us ##a". Wordpieces of uncased vocabularies make it insensitive
    to case and accents. The original's raw substring test finds "US" in
    "USA"; ours is the default of the method's description here.

    Args:
        token_ids: int tensor `(batch_size, sequence_length)`.
        answer_ids: int tensor `(batch_size, num_answers, answer_length)`.
            Wordpieces of each accepted answer, padded with -1; a row of
            padding is no answer.
        is_continuation: bool tensor `(vocabulary_size,)`. Whether a
            wordpiece continues a word.
        max_span_width: int. Longer answers are never found.

    Returns:
        bool tensor `(batch_size, sequence_length, max_span_width)`: entry
        `[i, w]` says that an answer of `w + 1` wordpieces begins at `i`.
    """
    widths = ops.arange(1, max_span_width + 1, dtype="int32")

    def add_spans(found, begins, lengths):
        # (b, 1, w)
        of_width = ops.equal(lengths[:, None, None], widths)
        return ops.logical_or(
            found, ops.logical_and(begins[:, 0, :, None], of_width)
        )

    return _match(
        token_ids[:, None],
        answer_ids,
        is_continuation,
        add_spans,
        ops.zeros((*ops.shape(token_ids), max_span_width), "bool"),
    )


def contains_answer(token_ids, answer_ids, is_continuation=None):
    """Which blocks hold an answer anywhere: `match_answers` without places.

    One pass over the wordpieces for each wordpiece of an answer, however many
    answers there are: for thousands of candidates of a question.

    Args:
        token_ids: int tensor `(batch_size, num_blocks, block_length)`,
            padded with negative numbers.
        answer_ids: int tensor `(batch_size, num_answers, answer_length)`,
            padded with -1; a row of padding is no answer.
        is_continuation: bool tensor `(vocabulary_size,)`. Whether a
            wordpiece continues a word. Defaults to `None`: an answer may end
            inside a word ("us" is in "us ##a"), which is as near as
            wordpieces come to the original's test for a raw substring.

    Returns:
        bool tensor `(batch_size, num_blocks)`.
    """
    return _match(
        token_ids,
        answer_ids,
        is_continuation,
        lambda found, begins, lengths: ops.logical_or(
            found, ops.any(begins, axis=2)
        ),
        ops.zeros(ops.shape(token_ids)[:2], "bool"),
    )


def _match(token_ids, answer_ids, is_continuation, add, found):
    """Adds up where each answer begins.

    Args:
        token_ids, answer_ids, is_continuation: as of `contains_answer`.
        add: function of what has been found, where the next answer begins,
            bool `(batch_size, num_blocks, block_length)`, and its number of
            wordpieces, int32 `(batch_size,)`; gives what has been found.
        found: tensor. The result without any answer.
    """
    shape = ops.shape(token_ids)
    # Wordpieces that also say whether the next one continues their word are
    # equal only where the word ends with the answer.
    pieces = _with_what_follows(ops.cast(token_ids, "int32"), is_continuation)
    answers = _with_what_follows(ops.cast(answer_ids, "int32"), is_continuation)
    # (b, a)
    num_pieces = ops.sum(ops.cast(answers >= 0, "int32"), axis=2)
    tail = ops.pad(
        pieces,
        [[0, 0], [0, 0], [0, answer_ids.shape[2]]],
        constant_values=-2,
    )

    def match_answer(number, found):
        answer = ops.take(answers, number, axis=1)
        lengths = ops.take(num_pieces, number, axis=1)

        def match_piece(offset, matched):
            # (b, 1, 1)
            piece = ops.take(answer, offset, axis=1)[:, None, None]
            # (b, n, l)
            here = ops.slice(tail, (0, 0, offset), shape)
            return ops.logical_and(
                matched, ops.logical_or(ops.equal(here, piece), piece < 0)
            )

        begins = ops.fori_loop(
            0,
            ops.max(lengths),
            match_piece,
            ops.broadcast_to((lengths > 0)[:, None, None], shape),
        )
        return add(found, begins, lengths)

    return ops.fori_loop(0, ops.shape(answer_ids)[1], match_answer, found)


def _with_what_follows(token_ids, is_continuation):
    """Twice each id, plus 1 if the next one continues its word."""
    if is_continuation is None:
        return token_ids
    continues = ops.logical_and(
        token_ids >= 0, ops.take(is_continuation, ops.maximum(token_ids, 0))
    )
    follows = ops.concatenate(
        [continues[..., 1:], ops.zeros_like(continues[..., :1])], axis=-1
    )
    return ops.where(
        token_ids < 0, token_ids, 2 * token_ids + ops.cast(follows, "int32")
    )
