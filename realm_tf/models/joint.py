"""Joining a query with blocks, and finding answers in them, on tensors.

Everything here is integer arithmetic in keras.ops, so that it runs inside a
training step or an exported graph, on either backend.
"""

import keras
from keras import ops


def join_bert(
    query_ids,
    query_mask,
    block_ids,
    block_lengths,
    *,
    sep_id,
    max_length=None,
):
    """Packs `[CLS] query [SEP] block [SEP]`, without a gap in between.

        join_BERT(x, z) = [CLS] x [SEP] z_body [SEP]

    The query comes with its special wordpieces, as the query tower reads it;
    the block is the body without title (as in the original, language/realm).

    Args:
        query_ids: int tensor `(batch_size, query_length)`. `[CLS] x [SEP]`
            and padding.
        query_mask: int tensor of the same shape. 1 where a wordpiece is.
        block_ids: int tensor `(batch_size, block_length)`. Body wordpieces
            and padding (0).
        block_lengths: int tensor `(batch_size,)`. Wordpieces of each body.
        sep_id: int. Id of [SEP].
        max_length: int. Bodies are cut so that no row is longer. Defaults to
            `None`: none is cut.

    Returns:
        A dict of int32 tensors `(batch_size, query_length + block_length +
        1)`, or `max_length` if that is shorter: `token_ids`, `segment_ids` (1
        for the block and its [SEP]), `padding_mask`, and `block_positions`:
        the wordpiece of the body that stands there, -1 elsewhere.
    """
    query_ids = ops.cast(query_ids, "int32")
    block_ids = ops.cast(block_ids, "int32")
    query_length = ops.shape(query_ids)[1]
    block_length = ops.shape(block_ids)[1]
    # (b, 1)
    used = ops.sum(ops.cast(query_mask, "int32"), axis=1, keepdims=True)
    lengths = ops.cast(block_lengths, "int32")[:, None]
    # (1, l)
    position = ops.arange(query_length + block_length + 1, dtype="int32")[None]
    if max_length is not None:
        lengths = ops.maximum(ops.minimum(lengths, max_length - 1 - used), 0)
        position = position[:, :max_length]
    # (b, l)
    in_block = position - used
    is_query = in_block < 0
    is_block = ops.logical_and(in_block >= 0, in_block < lengths)
    is_sep = ops.equal(in_block, lengths)
    from_query = ops.take_along_axis(
        query_ids,
        ops.broadcast_to(
            ops.clip(position, 0, query_length - 1), ops.shape(in_block)
        ),
        axis=1,
    )
    from_block = ops.take_along_axis(
        block_ids, ops.clip(in_block, 0, block_length - 1), axis=1
    )
    token_ids = ops.where(
        is_query,
        from_query,
        ops.where(is_block, from_block, ops.where(is_sep, sep_id, 0)),
    )
    segment_ids = ops.cast(ops.logical_or(is_block, is_sep), "int32")
    return {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": ops.cast(in_block <= lengths, "int32"),
        "block_positions": ops.where(is_block, in_block, -1),
    }


def join_block(
    title_ids,
    title_lengths,
    token_ids,
    lengths,
    *,
    cls_id,
    sep_id,
    max_length,
    segment_ids=(0, 1),
):
    """Packs `[CLS] title [SEP] body [SEP]`, the block tower's input.

    Args:
        title_ids: int tensor `(num_blocks, title_length)`.
        title_lengths: int tensor `(num_blocks,)`.
        token_ids: int tensor `(num_blocks, block_length)`. Bodies.
        lengths: int tensor `(num_blocks,)`.
        cls_id: int. Id of [CLS].
        sep_id: int. Id of [SEP].
        max_length: int. Bodies are cut to fit.
        segment_ids: tuple of int. Of title and body. Defaults to `(0, 1)`.

    Returns:
        dict of int32 tensors `(num_blocks, at most max_length)`: `token_ids`,
        `segment_ids`, `padding_mask`.
    """
    title_length = title_ids.shape[1]
    position = ops.arange(title_length + 2, dtype="int32")[None]
    titles = ops.where(
        position == 0,
        cls_id,
        ops.where(
            position <= title_lengths[:, None],
            ops.pad(title_ids, [[0, 0], [1, 1]]),
            sep_id,
        ),
    )
    mask = ops.cast(position < title_lengths[:, None] + 2, "int32")
    joined = trim(
        join_bert(
            titles,
            mask,
            token_ids,
            lengths,
            sep_id=sep_id,
            max_length=max_length,
        )
    )
    joined.pop("block_positions")
    first, second = segment_ids
    joined["segment_ids"] = joined["padding_mask"] * (
        first + (second - first) * joined["segment_ids"]
    )
    return joined


@keras.saving.register_keras_serializable(package="realm_tf")
class JoinBert(keras.layers.Layer):
    """`join_bert` of each query with each of its candidates, as a layer.

    Call it with `query_ids` and `query_mask`, `(batch_size, query_length)`,
    `block_ids`, `(batch_size, num_candidates, block_length)`, and
    `block_lengths`, `(batch_size, num_candidates)`. The rows of the result
    are `batch_size * num_candidates`: all candidates of the first query,
    then of the second. A body of length 0 is the null block's.

    Args:
        sep_id: int. Id of [SEP].
        max_length: int. Bodies are cut so that no row is longer. Defaults to
            `None`: none is cut.
    """

    def __init__(self, sep_id, max_length=None, **kwargs):
        super().__init__(**kwargs)
        self.sep_id = sep_id
        self.max_length = max_length
        self.built = True

    def call(self, query_ids, query_mask, block_ids, block_lengths):
        num_candidates = ops.shape(block_ids)[1]
        return join_bert(
            ops.repeat(query_ids, num_candidates, axis=0),
            ops.repeat(query_mask, num_candidates, axis=0),
            ops.reshape(block_ids, (-1, ops.shape(block_ids)[2])),
            ops.reshape(block_lengths, (-1,)),
            sep_id=self.sep_id,
            max_length=self.max_length,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "sep_id": self.sep_id,
            "max_length": self.max_length,
        }


def trim(joined):
    """Cuts a packed batch to its longest row, where shapes may vary.

    On the TensorFlow backend; elsewhere a step is compiled for one shape and
    the batch is returned as it is.
    """
    if keras.backend.backend() != "tensorflow":
        return joined
    # Not even a batch of no rows is of no columns: encoders look at the first.
    longest = ops.max(ops.sum(joined["padding_mask"], axis=1), initial=1)
    return {name: value[:, :longest] for name, value in joined.items()}


def in_length_groups(function, joined, num_groups):
    """Calls a model on rows of like length together, each group trimmed.

    Among many rows one is long, and all are padded to it. Sorted by length
    and cut into groups, most of them are padded to less. On the TensorFlow
    backend; elsewhere shapes are fixed, and the rows are one group.

    Args:
        function: function of a dict like `joined`, of some rows, that gives a
            tensor `(num_rows, length, ...)`; no row depends on another.
        joined: dict of tensors `(batch_size, sequence_length)`, with
            `padding_mask`.
        num_groups: int. Where they do not divide the rows, the last groups
            overlap, and what is computed twice is thrown away.

    Returns:
        What `function(joined)` gives, but for values at padding.
    """
    if num_groups == 1 or keras.backend.backend() != "tensorflow":
        return function(joined)
    num_rows = ops.shape(joined["padding_mask"])[0]
    size = (num_rows + num_groups - 1) // num_groups
    order, compute = _by_length(function, joined, size)
    outputs = [compute(group) for group in range(num_groups)]
    return _in_order(ops.concatenate(outputs, axis=0), order, size)


def in_groups_of(function, joined, rows_per_group, *, shape, dtype):
    """As `in_length_groups`, with as many groups as the rows need.

    For rows that are not known when a graph is made: the groups are the steps
    of a loop, and one row or few are one group. On the TensorFlow backend;
    elsewhere shapes are fixed, and the rows are one group.

    Args:
        function: as of `in_length_groups`.
        joined: as of `in_length_groups`.
        rows_per_group: int. At most so many rows in a group.
        shape: tuple of int. Of what the function gives, without
            `(num_rows, length)`.
        dtype: str. Of what it gives.

    Returns:
        What `function(joined)` gives, but for values at padding.
    """
    if keras.backend.backend() != "tensorflow":
        return function(joined)
    import tensorflow as tf

    num_rows = ops.shape(joined["padding_mask"])[0]
    # One group even of no rows: a loop of no steps has no shape. Groups of
    # like size overlap least.
    num_groups = ops.maximum(
        (num_rows + rows_per_group - 1) // rows_per_group, 1
    )
    size = (num_rows + num_groups - 1) // num_groups
    order, compute = _by_length(function, joined, size)
    outputs = tf.map_fn(
        compute,
        tf.range(num_groups),
        fn_output_signature=tf.TensorSpec((None, None, *shape), dtype),
        # Each step uses all processors, and its memory is that of a group.
        parallel_iterations=1,
    )
    # (g, size, length, ...) -> (g * size, length, ...)
    outputs = tf.reshape(outputs, tf.concat([[-1], tf.shape(outputs)[2:]], 0))
    return _in_order(
        tf.ensure_shape(outputs, (None, None, *shape)), order, size
    )


def _by_length(function, joined, size):
    """Order of the rows by length, and what computes a group of them."""
    num_rows, length = ops.shape(joined["padding_mask"])
    order = ops.argsort(ops.sum(joined["padding_mask"], axis=1))

    def compute(group):
        first = ops.minimum(group * size, num_rows - size)
        rows = ops.slice(order, (first,), (size,))
        found = function(
            trim({k: ops.take(v, rows, axis=0) for k, v in joined.items()})
        )
        rest = [[0, 0]] * (len(found.shape) - 2)
        missing = length - ops.shape(found)[1]
        return ops.pad(found, [[0, 0], [0, missing], *rest])

    return order, compute


def _in_order(outputs, order, size):
    """Rows of all groups, as they were before they were ordered."""
    num_rows = ops.shape(order)[0]
    row = ops.arange(num_rows, dtype="int32")
    group = row // size
    first = ops.minimum(group * size, num_rows - size)
    place = group * size + row - first
    return ops.take(outputs, ops.take(place, ops.argsort(order)), axis=0)


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
    """Where an answer's wordpieces stand, as whole words.

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
        max_span_width: int. Longer answers are never found; at least the
            width of the shorter ones.

    Returns:
        bool tensor `(batch_size, sequence_length, max_span_width)`: entry
        `[i, w]` says that an answer of `w + 1` wordpieces begins at `i`.
    """
    length = ops.shape(token_ids)[1]
    answer_length = min(answer_ids.shape[2], max_span_width)
    tail = ops.pad(token_ids, [[0, 0], [0, max_span_width]], constant_values=-2)
    # (b, a): wordpieces of each answer; over-long ones match nothing.
    num_pieces = ops.sum(ops.cast(answer_ids >= 0, "int32"), axis=2)
    # (b, a, l)
    matched = ops.broadcast_to(
        ops.logical_and(num_pieces > 0, num_pieces <= answer_length)[
            :, :, None
        ],
        (*ops.shape(num_pieces), length),
    )
    for offset in range(answer_length):
        piece = answer_ids[:, :, offset, None]
        here = tail[:, None, offset : offset + length]
        matched = ops.logical_and(
            matched, ops.logical_or(piece < 0, ops.equal(piece, here))
        )
    continues = ops.logical_and(
        tail >= 0, ops.take(is_continuation, ops.maximum(tail, 0))
    )
    spans = []
    for width in range(1, max_span_width + 1):
        of_width = ops.any(
            ops.logical_and(matched, ops.equal(num_pieces, width)[:, :, None]),
            axis=1,
        )
        word_ends = ops.logical_not(continues[:, width : width + length])
        spans.append(ops.logical_and(of_width, word_ends))
    return ops.stack(spans, axis=-1)


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
    batch_size, num_blocks, length = ops.shape(token_ids)
    token_ids = ops.cast(token_ids, "int32")
    answer_ids = ops.cast(answer_ids, "int32")
    # Wordpieces that also say whether the next one continues their word are
    # equal only where the word ends with the answer.
    pieces = _with_what_follows(token_ids, is_continuation)
    answers = _with_what_follows(answer_ids, is_continuation)
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
            here = ops.slice(
                tail, (0, 0, offset), (batch_size, num_blocks, length)
            )
            return ops.logical_and(
                matched, ops.logical_or(ops.equal(here, piece), piece < 0)
            )

        matched = ops.fori_loop(
            0,
            ops.max(lengths),
            match_piece,
            ops.broadcast_to(
                (lengths > 0)[:, None, None], (batch_size, num_blocks, length)
            ),
        )
        return ops.logical_or(found, ops.any(matched, axis=2))

    return ops.fori_loop(
        0,
        ops.shape(answer_ids)[1],
        match_answer,
        ops.zeros((batch_size, num_blocks), "bool"),
    )


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
