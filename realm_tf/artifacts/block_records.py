"""Block records in memory: texts, titles, wordpieces and their offsets."""

import numpy as np

from realm_tf.errors import InputError
from realm_tf.text.integer_types import smallest_dtype


class BlockRecords:
    """All blocks of a directory, by block id.

    Args:
        blocks: `Blocks`.

    Attributes:
        titles, texts, urls: lists of str.
        token_ids: uint16 or int32 array `(num_blocks, block_length)`, padded
            with 0; `block_length` is the longest body.
        lengths: int32 array `(num_blocks,)`. Wordpieces of each body.
        token_starts, token_limits: as `token_ids`. Code points of the text.
        title_ids: list of lists of int.
        metadata: dict. Of the directory.

    Raises:
        InputError: if the directory is not a complete blocks directory, or
            holds no block.
    """

    def __init__(self, blocks):
        self.metadata = blocks.metadata
        self.titles, self.texts, self.urls = [], [], []
        self.title_ids, self.sentence_starts = [], []
        rows = []
        for block in blocks.read():
            self.titles.append(block.title)
            self.texts.append(block.text)
            self.urls.append(block.url)
            self.title_ids.append(block.title_ids)
            self.sentence_starts.append(block.sentence_starts)
            row = np.array(
                [block.token_ids, block.token_starts, block.token_limits],
                dtype="int32",
            ).reshape(3, -1)
            # These are most of a corpus in memory.
            rows.append(row.astype(smallest_dtype(int(row.max(initial=0)))))
        if not rows:
            raise InputError(f"{blocks} holds no block.")
        self.lengths = np.array([row.shape[1] for row in rows], "int32")
        # A body longer than the budget (one over-long sentence) is cut when
        # it is encoded; the table need not be wider than the others.
        longest = min(
            int(self.lengths.max()), self.metadata["max_block_length"]
        )
        self.lengths = np.minimum(self.lengths, longest)
        dtype = np.result_type(*{row.dtype for row in rows})
        table = np.zeros((3, len(rows), longest), dtype)
        for number, row in enumerate(rows):
            length = self.lengths[number]
            table[:, number, :length] = row[:, :length]
        self.token_ids, self.token_starts, self.token_limits = table

    def __len__(self):
        return len(self.texts)

    def span_text(self, block_id: int, start: int, limit: int) -> str:
        """The text of some wordpieces, sliced from the block's own text.

        Args:
            block_id: int.
            start: int. First wordpiece.
            limit: int. The one after the last.
        """
        first, last = self.span_offsets(block_id, start, limit)
        return self.texts[block_id][first:last]

    def span_offsets(self, block_id: int, start: int, limit: int):
        """Code points `(start, limit)` of some wordpieces in the text."""
        return (
            int(self.token_starts[block_id, start]),
            int(self.token_limits[block_id, limit - 1]),
        )
