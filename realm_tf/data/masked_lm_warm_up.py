"""Examples of the masked-LM warm-up: masked queries with a given block."""

import numpy as np

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.data.masked_queries import Masker
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.text.packing import pad

# Which block a query is given: none, the one it is from, another that holds
# what is masked, any other.
NULL, OWN, ANSWER, OTHER = range(4)
KINDS = ("null_block", "own_block", "answer_block", "other_block")
# Of a query that sees its own block: what is predicted, and what of that is
# visible. Ours: with 15 % and none, as BERT, copying is learnt far later.
OWN_MASK_RATE = 0.5
OWN_KEEP_RATE = 0.3
# Blocks that are searched for what is masked; about 400 bytes each.
_MAX_SEARCHED = 100_000
# Blocks with its rarest wordpiece that are looked at.
_MAX_TRIED = 32
_NOTHING = np.empty(0, "int32")


class MaskedLmExamples(PretrainingExamples):
    """As `PretrainingExamples`, each query with a block that is given.

    No block helps an encoder that cannot read, so no block is better than
    another and the retriever learns nothing. Here the encoder learns it
    without a retriever, in three steps at once:

    - `OWN`: a window of the passage that the query is from, be it a block or
      of another corpus, in which it occurs unmasked. REALM never reads that,
      since it is trivial; so it is the first to be learnt. Half of the
      wordpieces are predicted, uniformly drawn, some of them visible.
    - `ANSWER`: a window of another block, that holds what is masked: names
      in a block are likely answers.
    - `OTHER`: a window of any other block: most do not help.

    The first two are of all widths, from what is looked for to the whole
    window: random weights first find what is where they expect it, and from
    there what is elsewhere.

    The rest has the null block. All but the first are masked as the options
    say.

    A batch has three more int32 arrays: `block_token_ids` `(batch_size,
    window)`, padded with 0; `block_lengths` `(batch_size,)`, 0 for the null
    block; `block_kind` `(batch_size,)`. Queries have the null block where
    there is no such block, or the window is too narrow.

    Args:
        passages: `TokenizedPassages`.
        blocks: `BlockRecords`. Of more than 100,000, so many are drawn to be
            searched for answers.
        own_share: float. Of the queries that are given their own block.
        answer_share: float. Of those that are given one with the answer.
        other_share: float. Of those that are given any other.
        window: int. Wordpieces at most, at least `max_query_length - 2` for
            all queries to fit.
        **options: as `PretrainingExamples`.

    Raises:
        InputError: if the eligible passages do not fill one batch.
    """

    def __init__(
        self,
        passages: TokenizedPassages,
        blocks: BlockRecords,
        *,
        own_share: float = 0.0,
        answer_share: float = 0.0,
        other_share: float = 0.0,
        window: int,
        **options,
    ):
        super().__init__(passages, **options)
        self._blocks = blocks
        # In the order of `KINDS`.
        given = [own_share, answer_share, other_share]
        self._shares = [max(0.0, 1 - sum(given)), *given]
        self._window = window
        length = self.masker.max_query_length
        self._own_masker = Masker(
            passages.wordpieces,
            mode="uniform",
            max_query_length=length,
            max_masked=max(1, round((length - 2) * OWN_MASK_RATE)),
            mask_rate=OWN_MASK_RATE,
            keep_rate=OWN_KEEP_RATE,
        )
        if own_share:
            self._max_masked = max(
                self._max_masked, self._own_masker.max_masked
            )
        if answer_share:
            self._search = _WordpieceSearch(blocks)

    def example(self, epoch: int, number: int) -> tuple:
        """The query that an epoch makes of a passage, and its block.

        Args:
            epoch: int.
            number: int. Of an eligible passage in `passages`.

        Returns:
            `(masked, block_ids, kind)`: `MaskedExample`; int array of the
            wordpieces of the window, empty for the null block; one of `NULL`,
            `OWN`, `ANSWER` and `OTHER`.
        """
        generator = self._generator(epoch, number)
        kind = int(generator.choice(len(KINDS), p=self._shares))
        masker = self._own_masker if kind == OWN else self.masker
        passage = self.passages[number]
        masked = masker.mask(passage, generator)
        if kind == OWN:
            block_ids = self._cut(
                passage.token_ids, masked.sentence_ids, generator
            )
        elif kind == ANSWER:
            block_ids = self._answer(masked, generator)
        elif kind == OTHER:
            block_ids = self._other(masked, generator)
        else:
            block_ids = _NOTHING
        return masked, block_ids, kind if len(block_ids) else NULL

    def _answer(self, masked, generator):
        block_id = self._search.find(
            masked.mask_ids, but=masked.block_id, generator=generator
        )
        if block_id is None:
            return _NOTHING
        body = self._blocks[block_id].token_ids
        return self._cut(body, masked.mask_ids, generator)

    def _other(self, masked, generator):
        has_own = masked.block_id >= 0
        others = len(self._blocks) - has_own
        if not others:
            return _NOTHING
        other = int(generator.integers(others))
        other += has_own and other >= masked.block_id
        body = self._blocks[other].token_ids
        start = generator.integers(max(1, len(body) - self._window + 1))
        return body[start : start + self._window]

    def _cut(self, body, ids, generator):
        """A window of any width in which wordpieces occur, or nothing."""
        places = _places(body, ids)
        if len(ids) > self._window or not len(places):
            return _NOTHING
        place = int(generator.choice(places))
        width = int(generator.integers(len(ids), self._window + 1))
        low = max(0, place + len(ids) - width)
        high = max(low, min(place, len(body) - width))
        first = int(generator.integers(low, high + 1))
        return body[first : first + width]

    def _stack(self, examples):
        masked, block_ids, kinds = zip(*examples, strict=True)
        return {
            **super()._stack(masked),
            "block_token_ids": pad(block_ids, self._window),
            "block_lengths": np.array(list(map(len, block_ids)), "int32"),
            "block_kind": np.array(kinds, "int32"),
        }


class _WordpieceSearch:
    """Which blocks hold some wordpieces next to each other.

    Args:
        blocks: `BlockRecords`. Of more than `_MAX_SEARCHED`, so many are drawn,
            always the same.
    """

    def __init__(self, blocks):
        self._blocks = blocks
        order = np.random.default_rng(0).permutation(len(blocks))
        block_ids = order[:_MAX_SEARCHED]
        pairs = [
            np.unique(blocks[int(block_id)].token_ids).astype("int64")
            * len(blocks)
            + block_id
            for block_id in block_ids
        ]
        # By wordpiece, then by block.
        pairs = np.sort(np.concatenate(pairs))
        pieces, self._holders = np.divmod(pairs, len(blocks))
        self._holders = self._holders.astype("int32")
        self._limits = np.searchsorted(
            pieces, np.arange(len(blocks.wordpieces) + 1)
        )

    def find(self, ids, *, but, generator):
        """A block that holds `ids`, not `but`; `None` if none is found."""
        limits = self._limits
        rarest = min(ids, key=lambda piece: limits[piece + 1] - limits[piece])
        holders = self._holders[limits[rarest] : limits[rarest + 1]]
        holders = holders[holders != but]
        drawn = generator.permutation(len(holders))[:_MAX_TRIED]
        for block_id in holders[drawn].tolist():
            if len(_places(self._blocks[block_id].token_ids, ids)):
                return block_id
        return None


def _places(body, ids):
    """Where wordpieces occur in a body."""
    if len(ids) > len(body):
        return _NOTHING
    views = np.lib.stride_tricks.sliding_window_view(body, len(ids))
    return np.flatnonzero((views == ids).all(axis=1))
