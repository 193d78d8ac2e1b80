"""What models look up of blocks, as layers over their records."""

import numpy as np

# Wordpieces of a title that a reader reads (our choice).
MAX_TITLE_LENGTH = 24


def title_ids(records, tokenizer) -> list[list[int]]:
    """Wordpieces of each block's title; many blocks have the same.

    Args:
        records: `BlockRecords`.
        tokenizer: `Tokenizer`.
    """
    titles = dict.fromkeys(records.titles)
    pieces = tokenizer.tokenize_batch(list(titles))
    ids = dict(zip(titles, (each.ids for each in pieces), strict=True))
    return [ids[title] for title in records.titles]


def block_table(records, title_ids=None):
    """`BlockTable` of bodies, and of titles where they are read.

    Args:
        records: `BlockRecords`.
        title_ids: list of lists of int. Wordpieces of the titles. Defaults to
            `None`: they are not read.
    """
    from realm_tf.models.block_table import BlockTable

    titles = {}
    if title_ids is not None:
        rows = [ids[:MAX_TITLE_LENGTH] for ids in title_ids]
        lengths = np.fromiter(map(len, rows), "int32", len(rows))
        is_piece = np.arange(MAX_TITLE_LENGTH) < lengths[:, None]
        padded = np.zeros(is_piece.shape, "int32")
        padded[is_piece] = np.concatenate(rows)
        titles = {"title_ids": padded, "title_lengths": lengths}
    return BlockTable(records.token_ids(), records.lengths, **titles)


def postings(records, title_ids, tokenizer):
    """BM25 scores of titles and bodies; see `wordpiece_bm25.postings`.

    Args:
        records: `BlockRecords`. Empty blocks at the end count for nothing.
        title_ids: list of lists of int. Wordpieces of the titles.
        tokenizer: `Tokenizer`.
    """
    from realm_tf.retrieval import wordpiece_bm25

    num_blocks = records.num_blocks
    found = wordpiece_bm25.postings(
        title_ids[:num_blocks],
        records.token_ids()[:num_blocks],
        records.lengths[:num_blocks],
        tokenizer.vocabulary_size,
        unk_id=tokenizer.unk_id,
    )
    found.resize(len(records), tokenizer.vocabulary_size)
    return found


def lexical(postings, *, capacity=None):
    """`WordpieceBm25` of what `postings` gave; see there for `capacity`."""
    from realm_tf.retrieval.wordpiece_bm25 import WordpieceBm25

    return WordpieceBm25(postings, capacity=capacity, name="lexical")
