"""Masked queries with a block that is given: to learn to look things up."""

import dataclasses

import numpy as np

from realm_tf.data import masking
from realm_tf.data.packed_blocks import PackedBlocks
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.data.pretraining import PretrainingExamples

# Which block a query is given: none, the one it is from, any other.
NULL, OWN, OTHER = range(3)


@dataclasses.dataclass(frozen=True)
class OwnBlockExample:
    """A masked query and what it may be looked up in.

    Args:
        masked: `MaskedExample`.
        block_ids: int array `(num_wordpieces,)`. Of the body of a block;
            empty for the null block.
        kind: int. One of `NULL`, `OWN`, `OTHER`.
    """

    masked: masking.MaskedExample
    block_ids: np.ndarray
    kind: int


class OwnBlockExamples(PretrainingExamples):
    """As `PretrainingExamples`, each query with a block that is given.

    For some a window of the block they are from, in which they stand
    unmasked; for some a window of any other block; for the rest the null
    block. REALM never reads a query's own block, since that is trivial. But
    no block helps an encoder that cannot copy, so no block is better than
    another and the retriever learns nothing: here the encoder learns to copy,
    and when not to.

    A batch has three more int32 arrays: `block_token_ids` `(batch_size,
    window)`, padded with 0; `block_lengths` `(batch_size,)`, 0 for the null
    block; `block_kind` `(batch_size,)`: `NULL`, `OWN` or `OTHER`. Queries
    whose block is unknown, or that do not fit into the window, have the null
    block instead of their own.

    Args:
        passages: `PackedPassages`.
        blocks: `PackedBlocks`. That the passages were annotated from.
        own_share: float. Of the queries that see their own block.
        other_share: float. Of those that see another; both at most 1.
        window: int. Wordpieces, at least `max_query_length - 2` for all
            queries to fit. Where in it the query stands is drawn.
        **options: as `PretrainingExamples`.

    Raises:
        InputError: if the eligible passages do not fill one batch.
        ValueError: if an argument is out of its range.
    """

    def __init__(
        self,
        passages: PackedPassages,
        blocks: PackedBlocks,
        *,
        own_share: float,
        other_share: float,
        window: int,
        **options,
    ):
        super().__init__(passages, **options)
        if min(own_share, other_share) < 0 or own_share + other_share > 1:
            raise ValueError(
                "`own_share` and `other_share` must not be negative and "
                f"together at most 1. Received: own_share={own_share}, "
                f"other_share={other_share}"
            )
        if window < 1:
            raise ValueError(
                f"`window` must be at least 1. Received: window={window}"
            )
        self._blocks = blocks
        self._own_share = own_share
        self._other_share = other_share
        self._window = window

    def example(self, epoch: int, number: int) -> OwnBlockExample | None:
        """As `PretrainingExamples.example`, with the block."""
        generator = self._generator(epoch, number)
        masked = self.masker.mask(self.passages[number], generator)
        if masked is None:
            return None
        draw = generator.random()
        kind, block_ids = NULL, np.empty(0, "int32")
        if draw < self._own_share:
            if masked.block_id >= 0:
                body = self._blocks[masked.block_id].token_ids
                block_ids = self._cut(body, masked.sentence_ids, generator)
            kind = OWN if len(block_ids) else NULL
        elif draw < self._own_share + self._other_share:
            body = self._blocks[self._draw(masked, generator)].token_ids
            first = generator.integers(max(1, len(body) - self._window + 1))
            kind, block_ids = OTHER, body[first : first + self._window]
        return OwnBlockExample(masked, block_ids, kind)

    def _draw(self, masked, generator):
        """Any block but the query's own, if there is another."""
        block_id = int(generator.integers(len(self._blocks)))
        if block_id == masked.block_id:
            block_id = (block_id + 1) % len(self._blocks)
        return block_id

    def _cut(self, body, sentence_ids, generator):
        """A window that holds the sentence; empty if there is none."""
        width = len(sentence_ids)
        if width > min(self._window, len(body)):
            return body[:0]
        views = np.lib.stride_tricks.sliding_window_view(body, width)
        places = np.flatnonzero((views == sentence_ids).all(axis=1))
        if not len(places):
            return body[:0]
        place = int(places[0])
        low = max(0, place + width - self._window)
        high = max(low, min(place, len(body) - self._window))
        first = int(generator.integers(low, high + 1))
        return body[first : first + self._window]

    def _stack(self, examples, size):
        batch = super()._stack([e.masked for e in examples], size)
        rows = len(examples)
        batch["block_token_ids"] = np.zeros((rows, self._window), "int32")
        batch["block_lengths"] = np.zeros(rows, "int32")
        batch["block_kind"] = np.array([e.kind for e in examples], "int32")
        for row, example in enumerate(examples):
            length = len(example.block_ids)
            batch["block_token_ids"][row, :length] = example.block_ids
            batch["block_lengths"][row] = length
        return batch
