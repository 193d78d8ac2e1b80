"""Batches of questions: every question once, in its bucket, reproducibly."""

import numpy as np
import pytest

from realm_tf.artifacts import question_files
from realm_tf.artifacts.question_files import Question
from realm_tf.data import question_batches
from realm_tf.data.question_batches import Curriculum
from realm_tf.data.question_batches import QuestionBatches
from realm_tf.errors import InputError


def _ids(tokenizer, text):
    return [tokenizer.vocabulary.index(piece) for piece in text.split()]


def _questions(num_questions):
    """Questions of all lengths, told apart by the words they repeat."""
    words = ["nile", "rome", "etna", "ada", "bach", "moon", "city", "fire"]
    random = np.random.default_rng(0)
    return [
        Question(
            " ".join(
                words[digit]
                for digit in [
                    *divmod(number, 8),
                    *random.integers(0, 8, random.integers(0, 50)),
                ]
            ),
            # A different number of answers of different lengths.
            tuple(["London", "cold Italy", "grey fire"][: 1 + number % 3]),
        )
        for number in range(num_questions)
    ]


def _batches(tokenizer, *, questions=None, **arguments):
    return QuestionBatches(
        questions or _questions(60),
        tokenizer,
        **{"batch_size": 8, "seed": 5, **arguments},
    )


def _rows(batches):
    """The queries of some batches, each as a tuple without padding."""
    return [
        tuple(ids[mask == 1].tolist())
        for batch in batches
        for ids, mask in zip(
            batch["token_ids"], batch["padding_mask"], strict=True
        )
    ]


def _equal(first, second):
    return len(first) == len(second) and all(
        np.array_equal(one[name], two[name])
        for one, two in zip(first, second, strict=True)
        for name in ("token_ids", "padding_mask", "answer_ids")
    )


def test_an_epoch_holds_every_question_once(tokenizer):
    questions = _questions(60)
    expected = sorted(
        tuple(question_files.query_wordpieces(question.question, tokenizer))
        for question in questions
    )
    assert len(set(expected)) == 60
    batches = _batches(tokenizer, questions=questions)
    for number in range(3):
        assert sorted(_rows(batches.epoch(number))) == expected


def test_an_epoch_follows_from_seed_and_number(tokenizer):
    batches = _batches(tokenizer)
    first = list(batches.epoch(1))
    assert _equal(first, list(_batches(tokenizer).epoch(1)))
    assert _equal(first[2:], list(batches.epoch(1, 2)))
    orders = [
        _rows(first),
        _rows(batches.epoch(0)),
        _rows(_batches(tokenizer, seed=6).epoch(1)),
    ]
    assert len(set(map(tuple, orders))) == 3


def test_a_batch_holds_one_bucket(tokenizer):
    batches = list(_batches(tokenizer).epoch(0))
    assert len(batches) == _batches(tokenizer).steps_per_epoch
    widths = [batch["token_ids"].shape[1] for batch in batches]
    # All buckets, and not the short ones first.
    assert set(widths) == set(question_files.BUCKETS)
    assert widths != sorted(widths)
    for batch, width in zip(batches, widths, strict=True):
        assert 1 <= len(batch["token_ids"]) <= 8
        lower = max([0, *(b for b in question_files.BUCKETS if b < width)])
        lengths = batch["padding_mask"].sum(axis=1)
        assert (lengths > lower).all()
        assert (lengths <= width).all()
        assert (batch["token_ids"][batch["padding_mask"] == 0] == 0).all()
    # At most one batch a bucket is not full.
    assert len(batches) <= 60 // 8 + len(question_files.BUCKETS)


def test_few_shapes_are_those_of_the_longest(tokenizer):
    batches = list(_batches(tokenizer, few_shapes=True).epoch(0))
    assert sorted(_rows(batches)) == sorted(_rows(_batches(tokenizer).epoch(0)))
    widths = {batch["token_ids"].shape[1] for batch in batches}
    assert widths == set(question_files.BUCKETS[-2:])
    assert {batch["answer_ids"].shape[1] for batch in batches} == {16}


def test_answers_stay_with_their_questions(tokenizer):
    questions = _questions(60)
    expected = {
        tuple(question_files.query_wordpieces(q.question, tokenizer)): q.answers
        for q in questions
    }
    for batch in _batches(tokenizer, questions=questions).epoch(0):
        assert batch["answer_ids"].dtype == "int32"
        for query, answer_ids in zip(
            _rows([batch]), batch["answer_ids"].tolist(), strict=True
        ):
            rows = [_ids(tokenizer, a.lower()) for a in expected[query]]
            # Next of 1, 4, 16, 64 to the most of the batch.
            rows += [[]] * (len(answer_ids) - len(rows))
            assert len(answer_ids) in (1, 4)
            assert answer_ids == [row + [-1] * (24 - len(row)) for row in rows]


def test_what_cannot_be_trained_on_is_left_out(tokenizer):
    long = "the city " * 12 + "city"
    questions = [
        Question("who?", ("Ada",)),
        Question("when?", ("18..",), "regex"),
        Question("what?", (long + " city",)),
        Question("where?", (long + " of city", "Rome")),
    ]
    batches = _batches(tokenizer, questions=questions)
    assert batches.counts == {
        "questions": 4,
        "patterns": 1,
        "without_answer": 1,
    }
    (batch,) = batches.epoch(0)
    assert sorted(batch["answer_ids"][:, 0, 0].tolist()) == sorted(
        _ids(tokenizer, "ada rome")
    )
    with pytest.raises(InputError, match="longer than 24 wordpieces"):
        _batches(tokenizer, questions=questions[1:3])


def test_candidates_and_gold_blocks_go_with_their_questions(tokenizer):
    questions = [Question("Who wrote?", ("Ada",)), Question("what?", ("fire",))]
    candidates = (
        np.array([[0.5, 0.25], [1, 2]], "float32"),
        np.array([[4, 5], [6, 7]], "int32"),
    )
    (batch,) = _batches(
        tokenizer,
        questions=questions,
        candidates=candidates,
        gold_ids=[7, None],
    ).epoch(0)
    row = _rows([batch]).index(
        tuple(_ids(tokenizer, "[CLS] who wrote ? [SEP]"))
    )
    assert batch["candidate_ids"][row].tolist() == [4, 5]
    assert batch["candidate_scores"][row].tolist() == [0.5, 0.25]
    assert batch["candidate_scores"].dtype == "float32"
    assert batch["gold_ids"][[row, 1 - row]].tolist() == [7, -1]
    assert "gold_ids" not in next(_batches(tokenizer).epoch(0))


def test_near_misses_are_others_in_each_epoch(tokenizer):
    plain, batches = (
        _batches(tokenizer, near_miss_share=share) for share in (0.0, 0.25)
    )
    drawn = []
    for number in range(8):
        epoch = list(batches.epoch(number))
        # The order is the same as without, and so is what goes on.
        assert _equal(epoch, list(plain.epoch(number)))
        for one, two in zip(epoch[3:], batches.epoch(number, 3), strict=True):
            np.testing.assert_array_equal(
                one["is_near_miss"], two["is_near_miss"]
            )
        flags = np.concatenate([each["is_near_miss"] for each in epoch])
        drawn.append({q for q, f in zip(_rows(epoch), flags, strict=True) if f})
    assert len(set(map(frozenset, drawn))) == 8
    # Of 480, 120 on average, with a deviation of 9.5.
    assert 85 < sum(map(len, drawn)) < 155
    assert "is_near_miss" not in next(plain.epoch(0))


def test_what_nothing_answers_is_kept_if_it_is_said(tokenizer):
    questions = [
        Question("who wrote?", ("Ada",)),
        Question("what?", ()),
        # A pattern that nothing matches is not known to be unanswerable.
        Question("when?", ("18..",), "regex"),
    ]
    batches = _batches(tokenizer, questions=questions, keep_unanswerable=True)
    (batch,) = batches.epoch(0)
    answers = dict(
        zip(_rows([batch]), batch["answer_ids"].tolist(), strict=True)
    )
    what = tuple(_ids(tokenizer, "[CLS] what ? [SEP]"))
    assert len(answers) == 2
    assert answers[what] == [[-1] * question_batches.MAX_ANSWER_LENGTH]
    assert batches.counts["patterns"] == 1
    left = _batches(tokenizer, questions=questions)
    assert left.counts == {"questions": 3, "patterns": 1, "without_answer": 1}


def test_a_curriculum_goes_on_anywhere(tokenizer):
    files = [_batches(tokenizer), _batches(tokenizer, questions=_questions(20))]
    curriculum = Curriculum(files, 2)
    steps = [file.steps_per_epoch for file in files for _ in range(2)]
    assert curriculum.epoch_ends == np.cumsum(steps).tolist()
    everything = list(curriculum.batches(0))
    assert len(everything) == sum(steps)
    expected = [
        batch
        for number, file in enumerate((files[0], files[0], *files[1:] * 2))
        for batch in file.epoch(number)
    ]
    assert _equal(everything, expected)
    done = steps[0] + 3
    assert _equal(everything[done:], list(curriculum.batches(done)))
    assert not list(curriculum.batches(sum(steps)))


TEXTS_OF_PATTERNS = [
    "It is 300 feet high, or 91 m.",
    "Others say 300  Feet; in 1912, 310 feet.",
    "Nothing here.",
]


def _strings(*answers, texts=TEXTS_OF_PATTERNS):
    return question_batches.pattern_strings(
        Question("how high?", answers, "regex"), texts
    )


def test_what_matches_most_often_comes_first():
    found = _strings(r"\d+\s+feet", r"\d+ m\b")
    # Case is not told apart in matching, but in what is kept.
    assert found.answers == ("300 feet", "300 Feet", "310 feet", "91 m")
    assert found.answer_type == "string"
    assert found.question == "how high?"
    many = " ".join(map(str, range(20)))
    assert _strings(r"\d+", texts=[f"{many} 19"]).answers == (
        "19",
        *map(str, range(15)),
    )


def test_what_is_no_answer_is_left_out():
    # Empty matches, and whole blocks.
    assert _strings(r"x*", r".*", texts=["y" * 101]).answers == ()
    assert _strings(r".*", texts=["y" * 100]).answers == ("y" * 100,)
