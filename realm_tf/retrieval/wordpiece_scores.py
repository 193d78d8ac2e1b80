"""BM25 scores of blocks for their wordpieces; needs neither Keras nor TensorFlow."""

import numpy as np
import scipy.sparse

# Weight of BM25 beside f(x, z) without questions to fit it to (our choice).
LEXICAL_WEIGHT = 0.25
# The defaults of bm25s, as of `bm25.Bm25`.
K1 = 1.5
B = 0.75
# Wordpieces of more than this share of the blocks say nothing, and their lists
# are the longest: 35 of English ("the", ","), at no loss of recall (our choice).
MOST_BLOCKS = 0.2
# Blocks that are counted at once, so that memory stays small.
_SLICE = 200_000


def postings(
    title_ids, token_ids, lengths, vocabulary_size: int, *, unk_id: int
) -> scipy.sparse.csc_array:
    """The score of each block for each of its wordpieces.

    Args:
        title_ids: sequence of lists of int. Wordpieces of each block's title.
        token_ids: int array `(num_blocks, block_length)`. Of each body.
        lengths: int array `(num_blocks,)`. Wordpieces of each body.
        vocabulary_size: int.
        unk_id: int. Id of [UNK]: unknown words have nothing in common.

    Returns:
        `scipy.sparse.csc_array` `(num_blocks, vocabulary_size)`, float32;
        empty columns for [UNK] and for wordpieces of more than `MOST_BLOCKS`
        of the blocks.
    """
    num_blocks = len(lengths)
    slices = [
        _counts(
            title_ids[first : first + _SLICE],
            token_ids[first : first + _SLICE],
            lengths[first : first + _SLICE],
            vocabulary_size,
        )
        for first in range(0, num_blocks, _SLICE)
    ]
    counts = scipy.sparse.vstack(slices, format="csc")
    held_by = np.diff(counts.indptr)
    idf = np.log1p((num_blocks - held_by + 0.5) / (held_by + 0.5))
    # A corpus of few blocks has no word that says nothing.
    idf[held_by > max(MOST_BLOCKS * num_blocks, 10)] = 0
    idf[unk_id] = 0
    sizes = np.asarray(counts.sum(axis=1)).reshape(-1)
    norms = K1 * (1 - B + B * sizes / sizes.mean())
    found = counts.data
    found /= found + norms[counts.indices].astype("float32")
    found *= np.repeat(idf, held_by).astype("float32")
    counts.eliminate_zeros()
    return counts


def _counts(title_ids, token_ids, lengths, vocabulary_size):
    """Counts of each wordpiece in each block, float32 CSC."""
    is_piece = np.arange(token_ids.shape[1]) < lengths[:, None]
    title_lengths = np.fromiter(map(len, title_ids), int, len(title_ids))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    title_rows = np.repeat(np.arange(len(lengths)), title_lengths)
    columns = np.concatenate(
        [token_ids[is_piece], *(ids for ids in title_ids if len(ids))]
    )
    return scipy.sparse.coo_array(
        (
            np.ones(len(columns), "float32"),
            (np.concatenate([rows, title_rows]), columns.astype("int32")),
        ),
        shape=(len(lengths), vocabulary_size),
    ).tocsc()


def arrays(postings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `WordpieceBm25` holds: `limits`, `block_ids` and `scores`."""
    return (
        postings.indptr.astype("int32"),
        postings.indices.astype("int32"),
        # 11 bits are plenty beside what BM25 is unsure of.
        postings.data.astype("float16"),
    )
