"""join_BERT on tensors; `text.packing` does the same in NumPy.

Everything here is integer arithmetic in keras.ops, so that it runs in a
training step on either backend, and in `tf.data` and an exported graph.
"""

import functools

import keras
from keras import ops

# [CLS] title [SEP] body [SEP]
_NUM_SPECIAL = 3


def pack_text(token_ids, lengths, *, cls_id, sep_id):
    """Packs `[CLS] x [SEP]`, the query tower's input.

    Args:
        token_ids: int tensor `(batch_size, length)`. Wordpieces and padding.
        lengths: int tensor `(batch_size,)`. Wordpieces of each text.
        cls_id: int. Id of [CLS].
        sep_id: int. Id of [SEP].

    Returns:
        dict of int32 tensors `(batch_size, length + 2)`: `token_ids`,
        `segment_ids` (all 0) and `padding_mask`.
    """
    token_ids = ops.cast(token_ids, "int32")
    lengths = ops.cast(lengths, "int32")[:, None]
    # (1, l)
    position = ops.arange(ops.shape(token_ids)[1] + 2, dtype="int32")[None]
    packed = ops.where(
        position <= lengths, ops.pad(token_ids, [[0, 0], [1, 1]]), sep_id
    )
    packed = ops.where(position == 0, cls_id, packed)
    mask = ops.cast(position < lengths + 2, "int32")
    return {
        "token_ids": packed * mask,
        "segment_ids": ops.zeros_like(mask),
        "padding_mask": mask,
    }


def query_inputs(inputs, prefix=""):
    """Inputs of a tower for packed queries, which have one segment.

    Args:
        inputs: dict of int tensors `(batch_size, query_length)`, among them
            `token_ids` and `padding_mask`.
        prefix: str. Before these two names. Defaults to `""`.

    Returns:
        dict of `token_ids`, `segment_ids` (all 0) and `padding_mask`.
    """
    # JAX's `fit` hands NumPy arrays in, which towers refuse beside tensors.
    token_ids = ops.convert_to_tensor(inputs[f"{prefix}token_ids"])
    return {
        "token_ids": token_ids,
        "segment_ids": ops.zeros_like(token_ids),
        "padding_mask": ops.convert_to_tensor(inputs[f"{prefix}padding_mask"]),
    }


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
        for the block and its [SEP]), `padding_mask`.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
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
    from_block = ops.where(in_block < lengths, from_block, sep_id)
    mask = ops.cast(in_block <= lengths, "int32")
    is_query = in_block < 0
    return {
        "token_ids": ops.where(is_query, from_query, from_block * mask),
        "segment_ids": ops.where(is_query, 0, mask),
        "padding_mask": mask,
    }


def block_positions(joined):
    """Where the body of the block is in the rows of `join_bert`.

    Args:
        joined: dict of int32 tensors `(batch_size, sequence_length)`, as
            `join_bert` returns it, trimmed or not.

    Returns:
        int32 tensor of the same shape: the number of the body's wordpiece,
        from 0, at each of its places; -1 elsewhere.
    """
    in_segment = joined["segment_ids"]
    # The last place of the segment is its [SEP].
    follows = ops.pad(in_segment[:, 1:], [[0, 0], [0, 1]])
    num_query = ops.sum(
        joined["padding_mask"] - in_segment, axis=1, keepdims=True
    )
    position = ops.arange(ops.shape(in_segment)[1], dtype="int32")[None]
    return ops.where(in_segment * follows > 0, position - num_query, -1)


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
        max_length: int. Bodies are cut to fit, then titles.
        segment_ids: tuple of int. Of title and body. Defaults to `(0, 1)`.

    Returns:
        dict of int32 tensors `(num_blocks, at most max_length)`: `token_ids`,
        `segment_ids`, `padding_mask`.
    """
    titles = pack_text(
        title_ids,
        ops.minimum(title_lengths, max_length - _NUM_SPECIAL),
        cls_id=cls_id,
        sep_id=sep_id,
    )
    joined = trim(
        join_bert(
            titles["token_ids"],
            titles["padding_mask"],
            token_ids,
            lengths,
            sep_id=sep_id,
            max_length=max_length,
        )
    )
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
    then of the second. A body of length 0 is the null block's. With
    `mask_positions`, `(batch_size, num_masks)`, the result holds these, too,
    a row for each candidate: it is what a `KnowledgeAugmentedEncoder` reads.
    `MarginalLikelihood` shows both in a model.

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

    def call(
        self,
        query_ids,
        query_mask,
        block_ids,
        block_lengths,
        mask_positions=None,
    ):
        num_candidates = ops.shape(block_ids)[1]

        def of_each(rows):
            return ops.repeat(rows, num_candidates, axis=0)

        joined = join_bert(
            of_each(query_ids),
            of_each(query_mask),
            ops.reshape(block_ids, (-1, ops.shape(block_ids)[2])),
            ops.reshape(block_lengths, (-1,)),
            sep_id=self.sep_id,
            max_length=self.max_length,
        )
        if mask_positions is not None:
            joined["mask_positions"] = of_each(mask_positions)
        return joined

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
    return {
        name: value if name == "mask_positions" else value[:, :longest]
        for name, value in joined.items()
    }


def stack(groups):
    """Packed batches as one, all rows padded to the longest.

    Args:
        groups: list of dicts of int tensors `(num_rows, sequence_length)`,
            the same names in each.

    Returns:
        dict of int32 tensors `(sum of num_rows, longest sequence_length)`.
    """
    lengths = [ops.shape(group["token_ids"])[1] for group in groups]
    longest = functools.reduce(ops.maximum, lengths)
    return {
        name: ops.concatenate(
            [
                ops.pad(
                    ops.cast(group[name], "int32"),
                    [[0, 0], [0, longest - length]],
                )
                for group, length in zip(groups, lengths, strict=True)
            ],
            axis=0,
        )
        for name in groups[0]
    }
