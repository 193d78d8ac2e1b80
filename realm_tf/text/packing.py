"""join_BERT: segments of wordpieces to one dense batch, in TensorFlow."""

import tensorflow as tf
import tensorflow_text as tf_text


def join_bert(
    segments,
    *,
    cls_id: int,
    sep_id: int,
    max_length: int,
    segment_ids: tuple[int, ...] = (0, 1),
    pad_to: int | None = None,
):
    """Packs `[CLS] x [SEP]` or `[CLS] x1 [SEP] x2 [SEP]`.

    When the budget is short, earlier segments keep theirs and later ones are
    cut (the original's left-to-right budget).

    Args:
        segments: list of `tf.RaggedTensor`, int32, `(batch_size, None)`. One
            or two.
        cls_id: int. Id of [CLS].
        sep_id: int. Id of [SEP].
        max_length: int. Most wordpieces of a row, special ones included.
        segment_ids: tuple of int. Segment id of each segment and its [SEP].
            Defaults to `(0, 1)`; encoders trained on single texts take
            `(0, 0)`.
        pad_to: int. Length of the rows. Defaults to the longest row's.

    Returns:
        A dict of int32 tensors `(batch_size, length)`: `token_ids`,
        `segment_ids`, `padding_mask`.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
    """
    budget = max_length - 1 - len(segments)
    trimmed = tf_text.WaterfallTrimmer(max_seq_length=budget).trim(segments)
    packed, numbers = tf_text.combine_segments(
        trimmed, start_of_sequence_id=cls_id, end_of_segment_id=sep_id
    )
    mask = tf.ones_like(packed, dtype=tf.int32)
    if segment_ids[: len(segments)] == tuple(range(len(segments))):
        numbers = tf.cast(numbers, tf.int32)
    else:
        numbers = tf.ragged.map_flat_values(
            lambda n: tf.gather(tf.constant(segment_ids, tf.int32), n), numbers
        )
    if pad_to is None:
        # Not even a batch of no rows is of no columns: encoders look at the
        # first.
        pad_to = tf.maximum(packed.bounding_shape(axis=1), 1)
    shape = tf.stack([-1, tf.cast(pad_to, tf.int64)])
    return {
        name: values.to_tensor(shape=shape)
        for name, values in (
            ("token_ids", tf.cast(packed, tf.int32)),
            ("segment_ids", numbers),
            ("padding_mask", mask),
        )
    }
