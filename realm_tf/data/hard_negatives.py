"""Questions, a block that answers each, and blocks that only look like it."""

import dataclasses

import numpy as np

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.question_files import Question
from realm_tf.data.example_batches import QueryBlockBatches
from realm_tf.text.answers import AnswerFinder
from realm_tf.text.tokenizer import Tokenizer

NO_BLOCK = -1
_COUNTS = (
    *("questions", "dropped_evidence_in_no_block"),
    *("dropped_no_answer_retrieved", "positives_of_evidence"),
    "without_hard_negative",
)
# The number of what only fills a batch.
_FILLER = -1


@dataclasses.dataclass(frozen=True)
class RetrievedQuestion:
    """A question with the blocks that it is trained on.

    Args:
        question: `Question`.
        positive: int. The id of a block that answers it.
        negatives: tuple of int. Ids of blocks without an answer, best first.
    """

    question: Question
    positive: int
    negatives: tuple[int, ...]


def choose_blocks(
    questions: list[Question],
    retrieved: np.ndarray,
    evidence: list[int | None],
    finder: AnswerFinder,
    *,
    num_negatives: int,
) -> tuple[list[RetrievedQuestion], dict]:
    """The positive and the possible hard negatives of each question.

    The positive is the block that the question names as its evidence, else
    the best retrieved one that holds an answer. Negatives are the best
    retrieved ones that hold none. A question that names evidence which no
    block holds is dropped, as in DPR: another block with the same words may
    not answer it.

    Args:
        questions: list of `Question`.
        retrieved: int array `(num_questions, num_retrieved)`. Block ids, best
            first; `NO_BLOCK` where nothing more was found.
        evidence: list of int or `None`. The block that each question names
            (`answering.recall.gold_blocks`).
        finder: `AnswerFinder`. Over the texts of the blocks.
        num_negatives: int. Kept for each question, at most.

    Returns:
        `(chosen, counts)`: list of `RetrievedQuestion`; dict of int,
        `questions`, `dropped_evidence_in_no_block`,
        `dropped_no_answer_retrieved`, and of those that are left
        `positives_of_evidence` and `without_hard_negative`.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        4.2.
    """
    chosen = []
    counts = dict.fromkeys(_COUNTS, 0) | {"questions": len(questions)}
    for question, found, named in zip(
        questions, retrieved, evidence, strict=True
    ):
        if named is None and question.line.get("evidence"):
            counts["dropped_evidence_in_no_block"] += 1
            continue
        block_ids = found[found != NO_BLOCK].tolist()
        right = [b for b in block_ids if finder.contains(b, *question.accepted)]
        if named is None and not right:
            counts["dropped_no_answer_retrieved"] += 1
            continue
        positive = right[0] if named is None else named
        negatives = [b for b in block_ids if b not in (positive, *right)]
        negatives = negatives[:num_negatives]
        counts["positives_of_evidence"] += named is not None
        counts["without_hard_negative"] += not negatives
        chosen.append(RetrievedQuestion(question, positive, tuple(negatives)))
    return chosen, counts


class DprExamples(QueryBlockBatches):
    """Questions with a positive and hard negatives, each once an epoch.

    Hard negatives are drawn again for each question and epoch, without
    repetition; see `ExampleBatches` for what depends on the seed.

    A batch is as `QueryBlockBatches` says, with blocks of `(batch_size, 1 +
    num_hard_negatives, max_block_length)`, the positive first, and one more
    int32 array:

    - `candidate_mask` `(batch_size, batch_size * (1 + num_hard_negatives))`:
      1 where a block of the batch, these counted row by row, is a candidate
      of the question: its positive, and each other block once that holds no
      answer to it. (DPR takes all of them, and so calls some right blocks
      wrong.) The row of what only fills the last batch is 0.

    Args:
        questions: list of `RetrievedQuestion`.
        blocks: `BlockRecords`.
        finder: `AnswerFinder`. Over the texts of the same blocks.
        tokenizer: `Tokenizer`. The one that the blocks were cut with.
        num_hard_negatives: int. For each question. Defaults to `1`.
        **options: as `QueryBlockBatches`.

    Attributes:
        num_examples: int. Of each epoch.
        steps_per_epoch: int.

    Raises:
        InputError: if the questions do not fill one batch.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        3.2.
    """

    def __init__(
        self,
        questions: list[RetrievedQuestion],
        blocks: BlockRecords,
        finder: AnswerFinder,
        tokenizer: Tokenizer,
        *,
        num_hard_negatives: int = 1,
        **options,
    ):
        super().__init__(blocks, len(questions), **options)
        self._questions = questions
        self._finder = finder
        self._num_slots = 1 + num_hard_negatives
        self._query_ids = [
            wordpieces.ids
            for wordpieces in tokenizer.tokenize_batch(
                [each.question.question for each in questions]
            )
        ]
        # Of the filler.
        self._query_ids.append([])

    def example(self, epoch: int, number: int) -> tuple[int, list[int]]:
        """The example that an epoch makes of a question.

        Args:
            epoch: int.
            number: int. The question's place in the list.

        Returns:
            `(number, block_ids)`: the positive, then hard negatives,
            `NO_BLOCK` where there are fewer of them.
        """
        question = self._questions[number]
        size = min(self._num_slots - 1, len(question.negatives))
        drawn = self._generator(epoch, number).choice(
            len(question.negatives), size=size, replace=False
        )
        block_ids = [question.positive]
        block_ids += [question.negatives[place] for place in drawn]
        block_ids += [NO_BLOCK] * (self._num_slots - len(block_ids))
        return int(number), block_ids

    def _candidate_mask(self, examples):
        # (slots of the batch,)
        block_ids = np.ravel([block_ids for _, block_ids in examples])
        known, first = np.unique(block_ids, return_index=True)
        slots = dict(zip(known.tolist(), first.tolist(), strict=True))
        slots.pop(NO_BLOCK, None)
        mask = np.zeros((len(examples), len(block_ids)), "int32")
        for row, (number, _) in enumerate(examples):
            if number == _FILLER:
                continue
            chosen = self._questions[number]
            accepted = chosen.question.accepted
            for block_id, slot in slots.items():
                mask[row, slot] = (
                    block_id != chosen.positive
                    and not self._finder.contains(block_id, *accepted)
                )
            mask[row, row * self._num_slots] = 1
        return mask

    def _order(self, generator):
        return generator.permutation(self.num_examples)

    def _stack(self, examples):
        filler = _FILLER, [NO_BLOCK] * self._num_slots
        examples = examples + [filler] * (self.batch_size - len(examples))
        batch = self._pack(
            [self._query_ids[number] for number, _ in examples],
            [self._segments(each) for _, found in examples for each in found],
        )
        for name in ("token_ids", "segment_ids", "padding_mask"):
            blocks = batch[f"block_{name}"]
            shape = (self.batch_size, self._num_slots, -1)
            batch[f"block_{name}"] = blocks.reshape(shape)
        batch["candidate_mask"] = self._candidate_mask(examples)
        return batch

    def _segments(self, block_id):
        if block_id == NO_BLOCK:
            return (), ()
        block = self.blocks[block_id]
        return block.title_ids, block.token_ids
