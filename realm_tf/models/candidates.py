"""Which retrieved blocks a masked sentence may be predicted from."""

from keras import ops

# Guu et al., 2020, section 3.4, rule out the block that the sentence is from.
# Blocks that were cut differently are recognised by their text: half of the
# sentence's 8-grams (our choice), or, of a shorter sentence, the whole of it.
NGRAM_LENGTH = 8
MIN_SHARE = 0.5


def may_be_read(found, block_id, sentence_ids):
    """Which blocks are no trivial candidates of their sentences.

    Ruled out are the block that the sentence is from, one that holds the
    sentence or most of it, and one that says the same as one before it.

    Args:
        found: dict of int tensors `block_ids` and `lengths` `(batch_size,
            num_candidates)` and `token_ids` `(batch_size, num_candidates,
            block_length)`. Best first; a block id of -1 is no block.
        block_id: int tensor `(batch_size,)`. Where each sentence is from.
        sentence_ids: int tensor. As of `shares_text`.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    block_ids, token_ids = found["block_ids"], found["token_ids"]
    allowed = ops.logical_and(
        block_ids >= 0, ops.not_equal(block_ids, block_id[:, None])
    )
    for excluded in (
        shares_text(sentence_ids, token_ids),
        repeats(token_ids, found["lengths"]),
    ):
        allowed = ops.logical_and(allowed, ops.logical_not(excluded))
    return allowed


def shares_text(sentence_ids, token_ids):
    """Which blocks hold a sentence, or most of it: trivial retrieval.

    True where at least half of the sentence's 8-grams occur in the block;
    for a sentence of fewer wordpieces, where it occurs there as a whole.

    Args:
        sentence_ids: int tensor `(batch_size, sentence_length)`. Unmasked
            wordpieces, padded with -1.
        token_ids: int tensor `(batch_size, num_candidates, block_length)`.
            Padded with a number that is no wordpiece of a sentence, such as
            0.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    sentence_length = ops.shape(sentence_ids)[1]
    block_length = ops.shape(token_ids)[2]
    sentences = ops.pad(
        sentence_ids, [[0, 0], [0, NGRAM_LENGTH]], constant_values=-1
    )
    blocks = ops.pad(
        token_ids, [[0, 0], [0, 0], [0, NGRAM_LENGTH]], constant_values=-2
    )
    matches = True
    for offset in range(NGRAM_LENGTH):
        # (b, 1, 1, s) and (b, r, l, 1)
        piece = sentences[:, None, None, offset : offset + sentence_length]
        here = blocks[:, :, offset : offset + block_length, None]
        same = ops.logical_or(piece < 0, ops.equal(piece, here))
        matches = ops.logical_and(matches, same)
    # (b, r, s)
    found = ops.any(matches, axis=2)
    lengths = ops.sum(
        ops.cast(sentence_ids >= 0, "int32"), axis=1, keepdims=True
    )
    # (b, s): where an n-gram begins; a short sentence has one.
    begins = ops.arange(sentence_length, dtype="int32")[None] < ops.maximum(
        lengths - NGRAM_LENGTH + 1, ops.minimum(lengths, 1)
    )
    num_found = ops.sum(
        ops.cast(ops.logical_and(found, begins[:, None]), "float32"), axis=2
    )
    num_begins = ops.sum(ops.cast(begins, "float32"), axis=1, keepdims=True)
    return ops.logical_and(num_found >= MIN_SHARE * num_begins, num_begins > 0)


def repeats(token_ids, lengths):
    """Which blocks say the same as one before them.

    Args:
        token_ids: int tensor `(batch_size, num_candidates, block_length)`.
        lengths: int tensor `(batch_size, num_candidates)`.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    places = ops.arange(token_ids.shape[1])
    position = ops.arange(ops.shape(token_ids)[2], dtype="int32")
    bodies = ops.where(position < lengths[..., None], token_ids, -1)
    # (b, r, r)
    same = ops.all(ops.equal(bodies[:, :, None], bodies[:, None]), axis=3)
    is_earlier = places[None, :] < places[:, None]
    return ops.any(ops.logical_and(same, is_earlier), axis=2)


def choose(allowed, num_candidates):
    """The places of the first allowed blocks.

    Args:
        allowed: bool tensor `(batch_size, num_retrieved)`. Best first.
        num_candidates: int. How many, at most `num_retrieved`.

    Returns:
        int32 tensor `(batch_size, num_candidates)` of places, and a bool
        tensor of the same shape: `False` where too few blocks are allowed.
    """
    num_retrieved = ops.shape(allowed)[1]
    place = ops.broadcast_to(
        ops.arange(num_retrieved, dtype="int32")[None], ops.shape(allowed)
    )
    keys = ops.where(allowed, place, place + num_retrieved)
    places = ops.cast(ops.argsort(keys, axis=1)[:, :num_candidates], "int32")
    return places, ops.take_along_axis(allowed, places, axis=1)


def take(found, places):
    """Some of each question's blocks.

    Args:
        found: dict of tensors `(batch_size, num_retrieved, ...)`.
        places: int tensor `(batch_size, num_candidates)`, as of `choose`.

    Returns:
        dict of tensors `(batch_size, num_candidates, ...)`.
    """
    return {
        name: ops.take_along_axis(
            values,
            places[..., None] if len(values.shape) == 3 else places,
            axis=1,
        )
        for name, values in found.items()
    }
