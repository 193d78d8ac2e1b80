"""Batches as a function of (seed, epoch, step), for `model.fit`."""

import itertools
from collections.abc import Iterator

import numpy as np

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.errors import InputError
from realm_tf.text import packing


class ExampleBatches:
    """Examples of a corpus in batches, each once an epoch.

    Each epoch visits its examples once, in an order of its own, and draws
    each again. Both follow from the seed: an example from (seed, epoch, its
    number in the corpus), its place from (seed, epoch). So a batch is a
    function of (epoch, step) alone, and training resumes anywhere at no cost.

    A subclass defines `example(epoch, number)`, what an epoch makes of the
    entry of that number in the corpus; `_order(generator)`, the numbers of an
    epoch's examples in their order; and `_stack(examples)`, a dict of int32
    arrays from at most `batch_size` examples.

    Args:
        num_examples: int. Of each epoch.
        batch_size: int. Examples of a batch.
        seed: int. Not negative. Defaults to `0`.
        drop_remainder: bool. Leave the last examples of an epoch's order out
            if they do not fill a batch. Defaults to `True`.
        share: tuple of int. `(number, count)`: of each batch, the part of this
            number of so many equal ones, for processes that train together.
            Defaults to `(0, 1)`: all.

    Attributes:
        num_examples: int. Of each epoch.
        steps_per_epoch: int.

    Raises:
        InputError: if the examples do not fill one batch.

    Example:

    ```python
    model.fit(
        # Keras wants tuples of a generator.
        ((batch,) for batch in examples.batches(steps_done)),
        steps_per_epoch=examples.steps_per_epoch,
        shuffle=False,  # They come shuffled.
    )
    ```
    """

    def __init__(
        self,
        num_examples: int,
        *,
        batch_size: int,
        seed: int = 0,
        drop_remainder: bool = True,
        share: tuple[int, int] = (0, 1),
    ):
        full, rest = divmod(num_examples, batch_size)
        self.num_examples = num_examples
        self.steps_per_epoch = full + bool(rest and not drop_remainder)
        if not self.steps_per_epoch:
            raise InputError(
                f"{num_examples:,} examples an epoch: fewer than one batch of "
                f"{batch_size}. Give more, or choose a smaller batch."
            )
        self.batch_size = batch_size
        self._seed = seed
        self._share = share
        self._known_order = (None, None)

    def epoch_ends(self, num_steps: int) -> list[int]:
        """Steps after which the epochs of a run end; its last may be short.

        Args:
            num_steps: int. Of the run.
        """
        size = self.steps_per_epoch
        return [*range(size, num_steps, size), num_steps]

    def batches(self, first: int = 0) -> Iterator[dict]:
        """Batches from a step on, epoch after epoch, without end.

        Args:
            first: int. Step of the run. Defaults to `0`.
        """
        for step in itertools.count(first):
            yield self.batch(*divmod(step, self.steps_per_epoch))

    def batch(self, epoch: int, step: int) -> dict:
        """One batch, a dict of int32 arrays; see the class."""
        return self._stack(self.examples(epoch, step))

    def examples(self, epoch: int, step: int) -> list:
        """The examples of a batch, or of this one's share of it."""
        known, order = self._known_order
        if known != epoch:
            order = self._order(np.random.default_rng([self._seed, epoch]))
            self._known_order = (epoch, order)
        first = step * self.batch_size
        numbers = order[first : first + self.batch_size]
        number, count = self._share
        size = len(numbers) // count
        numbers = numbers[number * size : (number + 1) * size]
        return [self.example(epoch, number) for number in numbers]

    def _generator(self, epoch, number):
        # The 1 keeps these apart from the generator of the order: seeds are
        # padded with 0.
        return np.random.default_rng([self._seed, epoch, 1, int(number)])


class QueryBlockBatches(ExampleBatches):
    """Examples of a query and the blocks that are its candidates.

    A batch has these int32 arrays, and what a subclass adds:

    - `query_token_ids`, `query_padding_mask` `(batch_size,
      max_query_length)`: [CLS] query [SEP].
    - `block_token_ids`, `block_segment_ids`, `block_padding_mask`
      `(..., max_block_length)`: [CLS] title [SEP] body [SEP].

    What is too long is cut at its end.

    Args:
        blocks: `BlockRecords`.
        num_examples: int. As `ExampleBatches`.
        max_query_length: int. Wordpieces with [CLS] and [SEP]. Defaults to
            64.
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
            Defaults to 288.
        block_segment_ids: tuple of int. See `LoadedModel`. Defaults to
            `(0, 1)`.
        **options: as `ExampleBatches`.
    """

    def __init__(
        self,
        blocks: BlockRecords,
        num_examples: int,
        *,
        max_query_length: int = 64,
        max_block_length: int = 288,
        block_segment_ids: tuple[int, int] = (0, 1),
        **options,
    ):
        super().__init__(num_examples, **options)
        self.blocks = blocks
        self._special_ids = {
            f"{name.lower()}_id": blocks.wordpieces.index(f"[{name}]")
            for name in ("CLS", "SEP", "PAD")
        }
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
