import itertools
import re

import numpy as np
import pytest
from example_epochs import examples_of

from realm_tf.artifacts.question_files import Question
from realm_tf.data.hard_negatives import NO_BLOCK
from realm_tf.data.hard_negatives import DprExamples
from realm_tf.data.hard_negatives import RetrievedQuestion
from realm_tf.data.hard_negatives import choose_blocks
from realm_tf.text.answers import AnswerFinder

EVIDENCE = {"evidence": {"title": "T", "sentence": "S."}}


def _has_answer(text, question):
    finder = AnswerFinder([text])
    return finder.contains(0, question.answers, question.answer_type)


# === choose_blocks ===

TEXTS = [
    "The Nile is long.",  # 0
    "Egypt has a river.",  # 1
    "Rivers are wet.",  # 2
    "In 1969 Egypt was hot.",  # 3
    "Nobody lives here.",  # 4
    "Egypt, again.",  # 5
]


@pytest.mark.parametrize(
    "question, found, named, blocks, counts",
    [
        (Question("w", ("Egypt",)), [2, 0, 3, 4, 1, 5], None, (3, (2, 0)), {}),
        # Negatives are looked for behind the positive, too.
        (Question("w", ("Egypt",)), [1, 5, 4, 3, 2, 0], None, (1, (4, 2)), {}),
        (
            Question("w", (r"19\d\d",), "regex"),
            [0, 3, 1],
            None,
            (3, (0, 1)),
            {},
        ),
        # The evidence is the positive whatever it holds, and no negative.
        (
            Question("w", ("Egypt",), line=EVIDENCE),
            *([4, 1, 2, 0], 5, (5, (4, 2)), {"positives_of_evidence": 1}),
        ),
        (
            Question("w", ("Egypt",), line=EVIDENCE),
            *([4, 1, 2, 0], 4, (4, (2, 0)), {"positives_of_evidence": 1}),
        ),
        (
            Question("w", ("Nile",)),
            *([0, NO_BLOCK], None, (0, ()), {"without_hard_negative": 1}),
        ),
        (
            Question("w", ("Etna",)),
            *([1, 2, 3], None, None, {"dropped_no_answer_retrieved": 1}),
        ),
        (
            Question("w", ("Nile",)),
            *([NO_BLOCK] * 3, None, None, {"dropped_no_answer_retrieved": 1}),
        ),
        (
            Question("w", ("Nile",), line=EVIDENCE),
            *([0], None, None, {"dropped_evidence_in_no_block": 1}),
        ),
    ],
)
def test_the_blocks_of_a_question(question, found, named, blocks, counts):
    chosen, counted = choose_blocks(
        [question],
        np.array([found]),
        [named],
        AnswerFinder(TEXTS),
        num_negatives=2,
    )
    assert chosen == ([RetrievedQuestion(question, *blocks)] if blocks else [])
    assert counted == {
        "questions": 1,
        "dropped_evidence_in_no_block": 0,
        "dropped_no_answer_retrieved": 0,
        "positives_of_evidence": 0,
        "without_hard_negative": 0,
        **counts,
    }


# === DprExamples ===


@pytest.fixture(scope="module")
def questions(packed_blocks):
    """23 questions, of one-word answers; some share blocks."""
    texts = packed_blocks.texts
    random = np.random.default_rng(1)
    found = []
    for number in range(23):
        # Some positives come often.
        positive = int(random.integers(0, 6 if number % 2 else len(texts)))
        words = re.findall(r"\w+", texts[positive])
        # An article alone would be no answer.
        words = [w for w in words if w.lower() not in ("a", "the")]
        question = Question(
            f"who {' '.join(random.choice(words, size=3))}?",
            (str(random.choice(words)),),
            "regex" if number % 5 == 0 else "string",
        )
        wrong = [
            b for b, text in enumerate(texts) if not _has_answer(text, question)
        ]
        negatives = random.permutation(wrong)[: number % 5].tolist()
        found.append(RetrievedQuestion(question, positive, tuple(negatives)))
    return found


@pytest.fixture
def make(packed_blocks, tokenizer):
    def make(questions, **arguments):
        arguments = {"batch_size": 6, "num_hard_negatives": 2, **arguments}
        return DprExamples(
            questions,
            packed_blocks,
            AnswerFinder(packed_blocks.texts),
            tokenizer,
            max_query_length=9,
            max_block_length=14,
            **arguments,
        )

    return make


def test_an_epoch_has_each_question_once_with_its_blocks(make, questions):
    examples = make(questions, drop_remainder=False)
    found = examples_of(examples, 0)
    assert sorted(number for number, _ in found) == list(range(23))
    for number, (positive, *negatives) in found:
        question = questions[number]
        assert positive == question.positive
        drawn = [b for b in negatives if b != NO_BLOCK]
        assert len(set(drawn)) == len(drawn) == min(2, len(question.negatives))
        assert set(drawn) <= set(question.negatives)
        # What is missing comes last.
        assert negatives[: len(drawn)] == drawn


def test_a_batch_is_its_examples_joined(
    make, questions, packed_blocks, tokenizer
):
    examples = make(questions)
    cls, sep, pad = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    batch = examples.batch(1, 2)
    assert {array.dtype.name for array in batch.values()} == {"int32"}
    assert batch["block_segment_ids"].shape == (6, 3, 14)

    def pieces(text):
        return tokenizer.tokenize(text).ids

    def check(found, ids):
        assert found.tolist() == [*ids, *[pad] * (len(found) - len(ids))]

    for row, (number, block_ids) in enumerate(examples.examples(1, 2)):
        text = questions[number].question.question
        check(batch["query_token_ids"][row], [cls, *pieces(text)[:7], sep])
        for slot, block_id in enumerate(block_ids):
            title = body = []
            if block_id != NO_BLOCK:
                title = pieces(packed_blocks.titles[block_id])
                body = pieces(packed_blocks.texts[block_id])[: 11 - len(title)]
            ids = [cls, *title, sep, *body, sep]
            check(batch["block_token_ids"][row, slot], ids)


@pytest.mark.parametrize("num_hard_negatives", [0, 2])
def test_the_candidates_against_a_loop(
    make, questions, packed_blocks, num_hard_negatives
):
    examples = make(questions, num_hard_negatives=num_hard_negatives)
    texts = packed_blocks.texts
    num_masked = {"answer": 0, "repeated": 0, "empty": 0}
    for epoch, step in itertools.product(range(3), range(3)):
        batch = examples.examples(epoch, step)
        mask = examples.batch(epoch, step)["candidate_mask"]
        slots = [
            (row, slot, block_id)
            for row, (_, block_ids) in enumerate(batch)
            for slot, block_id in enumerate(block_ids)
        ]
        for row, (number, _) in enumerate(batch):
            question = questions[number].question
            seen = set()
            for column, (owner, slot, block_id) in enumerate(slots):
                if block_id == NO_BLOCK:
                    allowed, reason = False, "empty"
                elif (owner, slot) == (row, 0):
                    allowed = True
                elif block_id in seen:
                    allowed, reason = False, "repeated"
                else:
                    # The own positive holds an answer here.
                    allowed = not _has_answer(texts[block_id], question)
                    reason = "answer"
                seen.add(block_id)
                assert mask[row, column] == allowed, (row, column)
                if not allowed:
                    num_masked[reason] += 1
    # No case of them is empty, but for negatives where there are none.
    assert num_masked["answer"] and num_masked["repeated"]
    assert bool(num_masked["empty"]) == bool(num_hard_negatives)


def test_evidence_without_the_answer_is_not_its_own_negative(
    make, packed_blocks
):
    texts = packed_blocks.texts
    river = next(b for b, text in enumerate(texts) if "flows" in text)
    named = RetrievedQuestion(Question("q", ("zebra",)), river, ())
    other = RetrievedQuestion(Question("r", ("Nile",)), river, ())
    examples = make([named, other], batch_size=2, num_hard_negatives=0)
    # Each knows the block as its own: the other's copy is no candidate.
    assert examples.batch(0, 0)["candidate_mask"].tolist() == [[1, 0], [0, 1]]


def test_a_last_batch_is_filled_with_rows_that_take_no_part(
    make, questions, tokenizer
):
    examples = make(questions[:8], drop_remainder=False)
    batch = examples.batch(0, 1)
    mask = batch["candidate_mask"]
    assert mask.shape == (6, 18)
    assert mask[0, 0] and mask[1, 3]
    assert not mask[2:].any() and not mask[:, 6:].any()
    empty = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]
    assert batch["query_token_ids"][5, :3].tolist() == empty
