"""Batches of masked queries for pre-training with `model.fit`."""

from collections.abc import Iterator

import numpy as np

from realm_tf.data import masking
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.errors import InputError


class PretrainingExamples:
    """Masked queries of packed passages, in batches, one a passage and epoch.

    Each epoch visits every eligible passage once, in an order of its own, and
    masks it anew. Both follow from the seed: what is masked in a passage from
    (seed, epoch, number of the passage), its place from (seed, epoch). So a
    batch is a function of (epoch, step) alone: it is the same whoever makes
    it, any number of readers share the work without talking to each other,
    and training resumes anywhere at no cost. Memory: 8 bytes a passage; the
    passages stay on the disk.

    A batch is a dict of int32 arrays whose shapes never change, so that a
    step is compiled once:

    - `token_ids`, `padding_mask` `(batch_size, max_query_length)`: the masked
      query, [CLS] and [SEP] included, padded with [PAD].
    - `mask_positions`, `mask_ids`, `mask_weights`
      `(batch_size, max_masked)`: places in `token_ids`, what stood there, and
      1; all 0 where fewer are masked.
    - `sentence_ids` `(batch_size, max_query_length - 2)`: the query unmasked,
      without [CLS] and [SEP], padded with -1, which no block holds.
    - `block_id` `(batch_size,)`: the block that the query is from, or -1.

    Args:
        passages: `PackedPassages`.
        batch_size: int. Of all readers together.
        seed: int. Not negative. Defaults to `0`.
        drop_remainder: bool. Leave the last passages of an epoch's order out
            if they do not fill a batch; `False` makes a smaller batch of
            them. Defaults to `True`.
        **masking_options: as `masking.Masker`: `mode`, `max_query_length`,
            `max_masked`, `mask_rate`, `bert_80_10_10`.

    Attributes:
        num_examples: int. Eligible passages.
        steps_per_epoch: int.
        counts: dict of int. As `tokenize_passages` counts, and
            `spans_too_long`, `passages_without_span` (mode `"salient"`) or
            `passages_without_wordpiece` (the others): passages left out.

    Raises:
        InputError: if the eligible passages do not fill one batch.
        ValueError: if an argument is out of its range.

    Example:

    ```python
    examples = PretrainingExamples(passages, batch_size=512)
    epoch, step = divmod(steps_done, examples.steps_per_epoch)
    model.fit(
        # Keras wants tuples of a generator.
        ((batch,) for batch in examples.batches(epoch, step)),
        steps_per_epoch=examples.steps_per_epoch,
        shuffle=False,  # They come shuffled.
    )
    ```
    """

    def __init__(
        self,
        passages: PackedPassages,
        *,
        batch_size: int,
        seed: int = 0,
        drop_remainder: bool = True,
        **masking_options,
    ):
        if batch_size < 1 or seed < 0:
            raise ValueError(
                "`batch_size` must be at least 1 and `seed` not negative. "
                f"Received: batch_size={batch_size}, seed={seed}"
            )
        self.passages = passages
        self.batch_size = batch_size
        self.masker = masking.Masker(passages.wordpieces, **masking_options)
        self._pad_id = passages.wordpieces.index("[PAD]")
        self._seed = seed
        self._kept, self.counts = self._eligible()
        self._order = (None, None)
        self.num_examples = len(self._kept)
        full, rest = divmod(self.num_examples, batch_size)
        self.steps_per_epoch = full + bool(rest and not drop_remainder)
        if not self.steps_per_epoch:
            raise InputError(
                f"{passages.directory} holds {self.num_examples} passages "
                f"that mode {self.masker.mode!r} can mask, of "
                f"{len(passages)}: fewer than one batch of {batch_size}. "
                "Annotate more text or choose a smaller batch."
            )

    def _eligible(self):
        counts = dict(self.passages.metadata["counts"])
        if self.masker.mode == "salient":
            found, too_long = self.passages.count_spans(self.masker.max_masked)
            counts["spans_too_long"] = too_long
            reason = "passages_without_span"
        else:
            found = self.passages.count_sentences()
            reason = "passages_without_wordpiece"
        kept = np.flatnonzero(found).astype("int32")
        counts[reason] = len(found) - len(kept)
        return kept, counts

    def batches(
        self,
        epoch: int = 0,
        step: int = 0,
        *,
        reader: int = 0,
        num_readers: int = 1,
    ) -> Iterator[dict]:
        """Batches from (epoch, step) on, epoch after epoch, without end.

        Args:
            epoch: int. Defaults to `0`.
            step: int. Of that epoch. Defaults to `0`.
            reader: int. Which of the readers asks. Defaults to `0`.
            num_readers: int. See `batch`. Defaults to `1`.
        """
        while True:
            for number in range(step, self.steps_per_epoch):
                yield self.batch(
                    epoch, number, reader=reader, num_readers=num_readers
                )
            epoch, step = epoch + 1, 0

    def batch(
        self, epoch: int, step: int, *, reader: int = 0, num_readers: int = 1
    ) -> dict:
        """One batch, or one reader's part of it.

        Args:
            epoch: int.
            step: int. Below `steps_per_epoch`.
            reader: int. Which of the readers asks. Defaults to `0`.
            num_readers: int. Readers, such as hosts, that share each batch:
                the parts of readers 0, 1, ... put together are the batch.
                Must divide `batch_size`. Defaults to `1`.

        Returns:
            dict of int32 arrays; see the class.

        Raises:
            ValueError: if an argument is out of its range.
        """
        if not 0 <= reader < num_readers or self.batch_size % num_readers:
            raise ValueError(
                "`num_readers` must divide `batch_size` and `reader` be below "
                f"it. Received: reader={reader}, num_readers={num_readers}, "
                f"batch_size={self.batch_size}"
            )
        numbers = self._numbers(epoch, step)
        part = self.batch_size // num_readers
        numbers = numbers[reader * part : (reader + 1) * part]
        return self._pad([self.example(epoch, number) for number in numbers])

    def examples(self, epoch: int, step: int) -> list[masking.MaskedExample]:
        """The examples of a batch, with their texts."""
        return [
            self.example(epoch, number) for number in self._numbers(epoch, step)
        ]

    def example(self, epoch: int, number: int) -> masking.MaskedExample | None:
        """What an epoch masks in a passage; `None` if it is not eligible.

        Args:
            epoch: int.
            number: int. Of the passage in `passages`.
        """
        # The 1 keeps these apart from the generator of the order: seeds are
        # padded with 0.
        generator = np.random.default_rng([self._seed, epoch, 1, int(number)])
        return self.masker.mask(self.passages[number], generator)

    def _numbers(self, epoch, step):
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ValueError(
                "`epoch` must not be negative, `step` must be below "
                f"{self.steps_per_epoch}. Received: epoch={epoch}, step={step}"
            )
        known, order = self._order
        if known != epoch:
            generator = np.random.default_rng([self._seed, epoch])
            order = generator.permutation(self._kept)
            self._order = (epoch, order)
        return order[step * self.batch_size : (step + 1) * self.batch_size]

    def _pad(self, examples):
        rows = len(examples)
        query_length = self.masker.max_query_length
        queries = (rows, query_length)
        masks = (rows, self.masker.max_masked)
        batch = {
            "token_ids": np.full(queries, self._pad_id, "int32"),
            "padding_mask": np.zeros(queries, "int32"),
            "mask_positions": np.zeros(masks, "int32"),
            "mask_ids": np.zeros(masks, "int32"),
            "mask_weights": np.zeros(masks, "int32"),
            "sentence_ids": np.full((rows, query_length - 2), -1, "int32"),
            "block_id": np.array([e.block_id for e in examples], "int32"),
        }
        for row, example in enumerate(examples):
            length = len(example.token_ids)
            batch["token_ids"][row, :length] = example.token_ids
            batch["padding_mask"][row, :length] = 1
            batch["sentence_ids"][row, : length - 2] = example.sentence_ids
            num_masked = len(example.mask_ids)
            batch["mask_positions"][row, :num_masked] = example.mask_positions
            batch["mask_ids"][row, :num_masked] = example.mask_ids
            batch["mask_weights"][row, :num_masked] = 1
        return batch
