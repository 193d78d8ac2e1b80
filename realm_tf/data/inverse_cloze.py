"""Examples of the Inverse Cloze Task: a sentence looks for its block."""

import numpy as np

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.data.example_batches import QueryBlockBatches

# Lee et al., 2019, section 4.
REMOVE_PROBABILITY = 0.9


class IctExamples(QueryBlockBatches):
    """Sentences of blocks with their blocks, one a block and epoch.

    The query is one sentence of the block, drawn uniformly; with probability
    `remove_probability` the block goes without it, so that more than shared
    words must be learned. Where a block has this sentence alone, it cannot go
    without: such an example is dropped. Which ones is drawn for the epoch as
    a whole, so that all epochs have as many steps: of the blocks of one
    sentence an epoch takes the share 1 - `remove_probability`, rounded and
    chosen again, and leaves the sentence in. See `ExampleBatches` for what
    depends on the seed; as a block comes once an epoch, no batch holds two
    queries of one block.

    A batch is as `QueryBlockBatches` says, with one block for each query, and
    two more int32 arrays:

    - `removed` `(batch_size,)`: 1 where the body goes without the sentence.
    - `block_id` `(batch_size,)`.

    A sentence is drawn from the whole block, also from what is cut then.

    Args:
        blocks: `BlockRecords`.
        remove_probability: float. Defaults to 0.9.
        **options: as `QueryBlockBatches`.

    Attributes:
        num_examples: int. Of each epoch.
        steps_per_epoch: int.
        counts: dict of int. `blocks`, `blocks_without_sentence`,
            `blocks_of_one_sentence`, `dropped_an_epoch`.

    Raises:
        InputError: if the blocks do not fill one batch.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
        Original code: google-research/language, language/orqa.
    """

    def __init__(
        self,
        blocks: BlockRecords,
        *,
        remove_probability: float = REMOVE_PROBABILITY,
        **options,
    ):
        found = blocks.count_sentences()
        self._remove_probability = remove_probability
        self._several = np.flatnonzero(found > 1).astype("int32")
        self._single = np.flatnonzero(found == 1).astype("int32")
        self._num_single = round((1 - remove_probability) * len(self._single))
        self.counts = {
            "blocks": len(found),
            "blocks_without_sentence": int(np.sum(found == 0)),
            "blocks_of_one_sentence": len(self._single),
            "dropped_an_epoch": len(self._single) - self._num_single,
        }
        num_examples = len(self._several) + self._num_single
        super().__init__(blocks, num_examples, **options)

    def example(self, epoch: int, number: int) -> dict:
        """The example that an epoch makes of a block.

        Args:
            epoch: int.
            number: int. The id of a block with a sentence.

        Returns:
            dict: `block_id`; int arrays of wordpieces, `query_ids` (the
            sentence), `title_ids` and `body_ids` (the block's other sentences,
            or all of them); `removed`, whether the sentence is left out.
        """
        block = self.blocks[number]
        num_sentences = len(block.sentence_starts)
        generator = self._generator(epoch, number)
        start, limit = block.sentence(int(generator.integers(num_sentences)))
        removed = (
            num_sentences > 1 and generator.random() < self._remove_probability
        )
        body = block.token_ids
        if removed:
            body = np.concatenate([body[:start], body[limit:]])
        return {
            "block_id": block.block_id,
            "query_ids": block.token_ids[start:limit],
            "title_ids": block.title_ids,
            "body_ids": body,
            "removed": bool(removed),
        }

    def _order(self, generator):
        single = generator.permutation(self._single)[: self._num_single]
        return generator.permutation(np.concatenate([self._several, single]))

    def _stack(self, examples):
        return {
            **self._pack(
                [e["query_ids"] for e in examples],
                [(e["title_ids"], e["body_ids"]) for e in examples],
            ),
            **{
                name: np.array([e[name] for e in examples], "int32")
                for name in ("removed", "block_id")
            },
        }
