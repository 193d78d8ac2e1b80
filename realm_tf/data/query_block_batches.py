"""Batches of queries with blocks, packed for the two towers."""

from realm_tf.data.example_batches import ExampleBatches
from realm_tf.text import packing


class QueryBlockBatches(ExampleBatches):
    """Examples of a query and the blocks that are its candidates.

    A batch has these int32 arrays, and what a subclass adds:

    - `query_token_ids`, `query_padding_mask` `(batch_size,
      max_query_length)`: [CLS] query [SEP].
    - `block_token_ids`, `block_segment_ids`, `block_padding_mask`
      `(..., max_block_length)`: [CLS] title [SEP] body [SEP].

    What is too long is cut at its end.

    Args:
        special_ids: dict. `cls_id`, `sep_id` and `pad_id` to int.
        max_query_length: int. Wordpieces with [CLS] and [SEP]. Defaults to
            64.
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
            Defaults to 288.
        block_segment_ids: tuple of int. See `LoadedModel`. Defaults to
            `(0, 1)`.
        **options: as `ExampleBatches`. With `drop_remainder=False` the last
            batch is filled with empty rows.

    Raises:
        ValueError: if an argument is out of its range.
    """

    def __init__(
        self,
        special_ids: dict,
        *,
        max_query_length: int = 64,
        max_block_length: int = 288,
        block_segment_ids: tuple[int, int] = (0, 1),
        **options,
    ):
        super().__init__(**options)
        if max_query_length < 3 or max_block_length < 4:
            raise ValueError(
                "`max_query_length` must be at least 3 and `max_block_length` "
                "4, to hold one wordpiece. Received: max_query_length="
                f"{max_query_length}, max_block_length={max_block_length}"
            )
        self._special_ids = special_ids
        self._max_query_length = max_query_length
        self._max_block_length = max_block_length
        self._block_segment_ids = tuple(block_segment_ids)

    def _pack(self, queries, blocks):
        """The arrays of a batch.

        Args:
            queries: list of int arrays. Without special wordpieces.
            blocks: list of (title, body) int arrays: as many for each query.
        """
        queries = packing.join_bert(
            [(ids,) for ids in queries],
            max_length=self._max_query_length,
            **self._special_ids,
        )
        blocks = packing.join_bert(
            blocks,
            max_length=self._max_block_length,
            segment_ids=self._block_segment_ids,
            **self._special_ids,
        )
        return {
            "query_token_ids": queries["token_ids"],
            "query_padding_mask": queries["padding_mask"],
            **{f"block_{name}": array for name, array in blocks.items()},
        }
