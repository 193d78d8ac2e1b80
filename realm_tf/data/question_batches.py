"""Batches of questions with answers, for fine-tuning."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from realm_tf.artifacts import question_files
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.text.answers import compile_pattern
from realm_tf.text.packing import pad

# Wordpieces of the longest answer that is looked for in blocks; a span is
# shorter still (the reader's max_span_width).
MAX_ANSWER_LENGTH = 24
# Upper limits of answers a question, in a batch: few shapes are compiled.
NUM_ANSWERS = (1, 4, 16, 64)
# Strings of the patterns of one question; the most frequent are kept.
_MAX_STRINGS = 16
# A pattern such as `.*` matches whole blocks, which are no answer.
_MAX_CHARACTERS = 100


@dataclasses.dataclass(frozen=True)
class _Example:
    query_ids: list[int]
    answer_ids: list[list[int]]
    # Of the candidates.
    row: int
    gold_id: int


class QuestionBatches:
    """Batches of questions for `model.fit`, bucketed by length.

    Each epoch is shuffled again, from the seed; a batch holds questions of one
    bucket and is padded to that bucket's length, so that little is computed
    on padding and few shapes are compiled. A batch is a dict of arrays:
    int32 `token_ids` and `padding_mask` `(batch_size, query_length)`,
    `answer_ids` `(batch_size, num_answers, max_answer_length)`, padded with
    -1, and, if given, `candidate_ids` and float32 `candidate_scores`
    `(batch_size, num_candidates)`, and `gold_ids` `(batch_size,)`, -1 for
    none, and bool `is_near_miss` `(batch_size,)`.

    Args:
        questions: list of `Question`. One without an answer of at most
            `MAX_ANSWER_LENGTH` wordpieces teaches nothing and is left out,
            and so is one whose answers are patterns: `pattern_strings`
            makes strings of these. For one that has no answer at all see
            `keep_unanswerable`.
        tokenizer: `Tokenizer`.
        batch_size: int.
        seed: int. Defaults to `0`.
        candidates: `(scores, block_ids)`, arrays `(num_questions,
            num_candidates)` of another retriever. Defaults to `None`.
        gold_ids: list of int or `None`. The block that each question is
            about, `None` where it is not known. Defaults to `None`.
        near_miss_share: float. Share of the questions that are near misses,
            others in each epoch. Defaults to `0.0`: batches do not say.
        keep_unanswerable: bool. Keep questions without answers, whose rows of
            `answer_ids` are padding. Defaults to `False`.
        few_shapes: bool. Two buckets and two numbers of answers alone, more of
            which is padding: for a backend that compiles each shape. Defaults
            to `False`.

    Attributes:
        steps_per_epoch: int. Batches of one epoch.
        counts: dict of int. `questions`; those that are left out,
            `patterns` (no string that they match is known) and
            `without_answer` (no answer is short enough).

    Raises:
        InputError: if no question is left.
    """

    def __init__(
        self,
        questions,
        tokenizer,
        *,
        batch_size: int,
        seed: int = 0,
        candidates=None,
        gold_ids=None,
        near_miss_share=0.0,
        keep_unanswerable=False,
        few_shapes=False,
    ):
        self._limits, self._num_answers = question_files.BUCKETS, NUM_ANSWERS
        if few_shapes:
            self._limits = self._limits[-2:]
            self._num_answers = self._num_answers[-2:]
        self._batch_size = batch_size
        self._seed = seed
        self._pad_id = tokenizer.pad_id
        self._candidates = candidates
        self._has_gold = gold_ids is not None
        self._near_miss_share = near_miss_share
        self._examples = []
        counts = collections.Counter(questions=len(questions))
        gold_ids = gold_ids or [None] * len(questions)
        for row, question in enumerate(questions):
            is_string = question.answer_type == "string"
            strings = question.answers * is_string
            answers = question_files.answer_wordpieces(
                strings, tokenizer, max_length=MAX_ANSWER_LENGTH
            )[: NUM_ANSWERS[-1]]
            is_unanswerable = keep_unanswerable and not question.answers
            if not answers and not is_unanswerable:
                counts["without_answer" if is_string else "patterns"] += 1
                continue
            query_ids = question_files.query_wordpieces(
                question.question, tokenizer
            )
            gold_id = -1 if gold_ids[row] is None else gold_ids[row]
            self._examples.append(_Example(query_ids, answers, row, gold_id))
        self.counts = {
            name: counts[name]
            for name in ("questions", "patterns", "without_answer")
        }
        if not self._examples:
            raise InputError(
                "None of the questions can be trained on: every answer is a "
                "pattern that matches nothing or longer than "
                f"{MAX_ANSWER_LENGTH} wordpieces."
            )

        # Rows of the examples of each bucket.
        self._buckets = [
            [
                row
                for row, example in enumerate(self._examples)
                if lower < len(example.query_ids) <= upper
            ]
            for lower, upper in itertools.pairwise([0, *self._limits])
        ]
        self.steps_per_epoch = sum(
            -(-len(rows) // batch_size) for rows in self._buckets
        )

    def epoch(self, number: int, first: int = 0) -> Iterator[dict]:
        """The batches of one epoch, always the same for the same number.

        Args:
            number: int. Of the epoch.
            first: int. Batches to pass over. Defaults to `0`.
        """
        random = np.random.default_rng([self._seed, number])
        batches = []
        for rows in self._buckets:
            rows = random.permutation(rows).astype(int)
            for start in range(0, len(rows), self._batch_size):
                batches.append(rows[start : start + self._batch_size])
        order = random.permutation(len(batches))
        draws = random.random(len(self._examples))
        is_near_miss = draws < self._near_miss_share
        for position in order[first:]:
            rows = batches[position]
            batch = self._batch(rows)
            if self._near_miss_share:
                batch["is_near_miss"] = is_near_miss[rows]
            yield batch

    def _batch(self, rows):
        examples = [self._examples[row] for row in rows]
        inputs = question_files.pack_queries(
            [example.query_ids for example in examples],
            self._pad_id,
            self._limits,
        )
        most = max(len(example.answer_ids) for example in examples)
        num_answers = next(
            limit for limit in self._num_answers if most <= limit
        )
        empty = [[]] * num_answers
        answer_ids = [
            pad((e.answer_ids + empty)[:num_answers], MAX_ANSWER_LENGTH, -1)
            for e in examples
        ]
        batch = {**inputs, "answer_ids": np.stack(answer_ids)}
        if self._candidates is not None:
            scores, block_ids = self._candidates
            places = [example.row for example in examples]
            batch["candidate_ids"] = block_ids[places]
            batch["candidate_scores"] = scores[places]
        if self._has_gold:
            batch["gold_ids"] = np.array(
                [example.gold_id for example in examples], "int32"
            )
        return batch


class Curriculum:
    """Several files of questions, one after the other, some epochs each.

    Args:
        files: list of `QuestionBatches`.
        num_epochs: int. Passes over each file.
    """

    def __init__(self, files: list[QuestionBatches], num_epochs: int):
        self._epochs = [file for file in files for _ in range(num_epochs)]

    @property
    def epoch_ends(self) -> list[int]:
        """Steps after which each epoch of the run ends."""
        return list(
            itertools.accumulate(file.steps_per_epoch for file in self._epochs)
        )

    def batches(self, first: int) -> Iterator[dict]:
        """Batches from a step to the end of the run.

        Args:
            first: int. Step of the run.
        """
        for number, file in enumerate(self._epochs):
            if first < file.steps_per_epoch:
                yield from file.epoch(number, first)
            first = max(0, first - file.steps_per_epoch)


def pattern_strings(question: Question, texts: Sequence[str]) -> Question:
    """A question whose patterns are replaced by the strings they match.

    CuratedTREC's answers are regular expressions. A graph cannot search for
    them, and the original leaves the set out of its training; a graph can look
    for the strings that a pattern matches in the retrieved blocks.

    Args:
        question: `Question` of type `"regex"`.
        texts: sequence of str. Blocks in which to search, such as those that
            a retriever finds for the question.

    Returns:
        `Question` of type `"string"`; without answers if nothing matches. Of
        equally frequent strings, those found first are kept. An invalid
        pattern matches nothing, as in evaluation.
    """
    counts = collections.Counter()
    for pattern in map(compile_pattern, question.answers):
        if pattern is None:
            continue
        for text in texts:
            for match in pattern.finditer(text):
                found = " ".join(match.group().split())
                if 0 < len(found) <= _MAX_CHARACTERS:
                    counts[found] += 1
    strings = tuple(text for text, _ in counts.most_common(_MAX_STRINGS))
    return dataclasses.replace(question, answers=strings, answer_type="string")
