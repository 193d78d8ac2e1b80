"""Batches of masked queries for pre-training with `model.fit`."""

import numpy as np

from realm_tf.data import masking
from realm_tf.data.example_batches import ExampleBatches
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.text.packing import pad


class PretrainingExamples(ExampleBatches):
    """Masked queries of passages, in batches, one a passage and epoch.

    Each epoch visits every eligible passage once and masks it again; see
    `ExampleBatches`. Memory: 8 bytes a passage; the passages stay on the disk.

    A batch is a dict of int32 arrays whose shapes never change, so that a
    step is compiled once:

    - `token_ids`, `padding_mask` `(batch_size, max_query_length)`: the masked
      query, [CLS] and [SEP] included, padded with [PAD].
    - `mask_positions`, `mask_ids`, `mask_weights`
      `(batch_size, max_masked)`: places in `token_ids`, what was there, and
      1; all 0 where fewer are masked.
    - `sentence_ids` `(batch_size, max_query_length - 2)`: the query unmasked,
      without [CLS] and [SEP], padded with -1, which no block holds.
    - `block_id` `(batch_size,)`: the block that the query is from, or -1.

    Args:
        passages: `TokenizedPassages`.
        batch_size: int. As `ExampleBatches`.
        seed: int. See there. Defaults to `0`.
        share: tuple of int. See there. Defaults to `(0, 1)`.
        num_held_out: int. Passages, spread over the eligible ones, that are left
            out. Defaults to `0`.
        of_held_out: bool. These alone. Defaults to `False`.
        **masking_options: as `masking.Masker`: `mode`, `max_query_length`,
            `max_masked`, `mask_numbers`.

    Attributes:
        num_examples: int. Eligible passages, or those of them.
        steps_per_epoch: int.
        counts: dict of int. As `tokenize_passages` counts, and
            `spans_not_eligible`, `passages_without_span` (mode `"salient"`)
            or `passages_without_wordpiece` (the others): left out.

    Raises:
        InputError: if the passages do not fill one batch.
    """

    def __init__(
        self,
        passages: TokenizedPassages,
        *,
        batch_size: int,
        seed: int = 0,
        share: tuple[int, int] = (0, 1),
        num_held_out: int = 0,
        of_held_out: bool = False,
        **masking_options,
    ):
        self.passages = passages
        self.masker = masking.Masker(passages.wordpieces, **masking_options)
        # Width of what is masked in a batch.
        self._max_masked = self.masker.max_masked
        self._pad_id = passages.wordpieces.index("[PAD]")
        eligible, self.counts = self._eligible()
        num = min(num_held_out, len(eligible))
        held_out = eligible[np.arange(num) * len(eligible) // max(num, 1)]
        self._kept = (
            held_out if of_held_out else np.setdiff1d(eligible, held_out)
        )
        super().__init__(
            len(self._kept), batch_size=batch_size, seed=seed, share=share
        )

    def _eligible(self):
        counts = dict(self.passages.counts)
        if self.masker.mode == "salient":
            found = self.passages.count_spans(self.masker.eligible)
            num_spans = self.passages.num_spans
            counts["spans_not_eligible"] = num_spans - int(found.sum())
            reason = "passages_without_span"
        else:
            found = self.passages.count_sentences()
            reason = "passages_without_wordpiece"
        kept = np.flatnonzero(found).astype("int32")
        counts[reason] = len(found) - len(kept)
        return kept, counts

    def example(self, epoch: int, number: int) -> masking.MaskedExample:
        """What an epoch masks in a passage.

        Args:
            epoch: int.
            number: int. Of an eligible passage in `passages`.
        """
        return self.masker.mask(
            self.passages[number], self._generator(epoch, number)
        )

    def _order(self, generator):
        return generator.permutation(self._kept)

    def _stack(self, examples):
        token_ids = [e.token_ids for e in examples]
        mask_ids = [e.mask_ids for e in examples]
        length = self.masker.max_query_length
        return {
            "token_ids": pad(token_ids, length, self._pad_id),
            "padding_mask": pad(list(map(np.ones_like, token_ids)), length),
            "mask_positions": pad(
                [e.mask_positions for e in examples], self._max_masked
            ),
            "mask_ids": pad(mask_ids, self._max_masked),
            "mask_weights": pad(
                list(map(np.ones_like, mask_ids)), self._max_masked
            ),
            "sentence_ids": pad(
                [e.sentence_ids for e in examples], length - 2, -1
            ),
            "block_id": np.array([e.block_id for e in examples], "int32"),
        }
