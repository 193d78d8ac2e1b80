"""The wordpieces of all blocks, on the device."""

import keras
import numpy as np
from keras import ops

from realm_tf.artifacts.array_files import smallest
from realm_tf.models import row_shards
from realm_tf.models.fixed_weight import fixed_weight


class BlockTable(keras.layers.Layer):
    """The wordpieces of every block's body, and of its title if given.

    Weights are of the smallest type that holds them, uint16 for BERT's
    vocabularies; a lookup gives int32. Made under a `keras.distribution` on the
    JAX backend, each device holds its part of the rows (`row_shards`).

    Args:
        token_ids: int array `(num_blocks, block_length)`. Bodies, padded
            with 0.
        lengths: int array `(num_blocks,)`. Wordpieces of each body.
        title_ids: int array `(num_blocks, title_length)`. Padded with 0.
            Defaults to `None`: no block can be embedded from this table.
        title_lengths: int array `(num_blocks,)`. Given with `title_ids`.
        article_numbers: int array `(num_blocks,)`. Blocks of one article
            share theirs. Defaults to `None`.
    """

    def __init__(
        self,
        token_ids,
        lengths,
        *,
        title_ids=None,
        title_lengths=None,
        article_numbers=None,
        **kwargs,
    ):
        super().__init__(trainable=False, **kwargs)
        self.num_blocks = len(token_ids)
        self._placed = row_shards.sharding()
        self.token_ids = self._constant(token_ids, "token_ids")
        self.lengths = self._constant(lengths, "lengths")
        self.title_ids = self._constant(title_ids, "title_ids")
        self.title_lengths = self._constant(title_lengths, "title_lengths")
        self.article_numbers = self._constant(
            article_numbers, "article_numbers"
        )
        self.built = True

    def _constant(self, array, name):
        if array is None:
            return None
        array = smallest(np.asarray(array))
        with keras.name_scope(self.name):
            if self._placed is not None:
                array = row_shards.place(array, self._placed)
            return fixed_weight(array, name, layout=self._placed)

    def check_index(self, index):
        """Raises `ValueError` if an index has another number of blocks."""
        if index.num_blocks != self.num_blocks:
            raise ValueError(
                "`index` and `block_table` must hold the same blocks. "
                f"Received: {index.num_blocks} and {self.num_blocks} rows"
            )

    def call(self, block_ids):
        """`(token_ids, lengths)` of the blocks asked for."""
        return self._rows("token_ids", block_ids), self._rows(
            "lengths", block_ids
        )

    def contents(self, block_ids, *, own_ids=None):
        """What is embedded and read of blocks.

        Args:
            block_ids: int tensor `(batch_size, num_blocks)`. -1, no block,
                gives any.
            own_ids: int tensor `(batch_size,)`. A block of each row, or a
                negative number. Defaults to `None`.

        Returns:
            dict of int tensors: `title_ids`, `title_lengths`, `token_ids`,
            `lengths`; where the articles are known and
            `own_ids` is given, `of_article` `(batch_size, num_blocks)`: 1
            for blocks of the article of the row's own block.
        """
        rows = ops.maximum(block_ids, 0)
        token_ids, lengths = self(rows)
        found = {
            "title_ids": self._rows("title_ids", rows),
            "title_lengths": self._rows("title_lengths", rows),
            "token_ids": token_ids,
            "lengths": lengths,
        }
        if own_ids is not None and self.article_numbers is not None:
            own = self._rows(
                "article_numbers", ops.maximum(own_ids, 0)[:, None]
            )
            found["of_article"] = ops.cast(
                ops.equal(self._rows("article_numbers", rows), own), "int32"
            )
        return found

    def _rows(self, name, rows):
        table = getattr(self, name)
        if self._placed is None:
            return ops.cast(ops.take(table, rows, axis=0), "int32")
        return row_shards.take(ops.convert_to_tensor(table), rows, self._placed)
