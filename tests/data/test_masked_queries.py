import itertools

import numpy as np
import pytest
from annotated_passages import mark_passage
from annotated_passages import write_annotated
from example_epochs import examples_of

from realm_tf.artifacts.objects import Passages
from realm_tf.data import masked_queries
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages

SUBJECTS = ("Café", "東京", "São", "Ünïbara", "👍", "Öb", "river")
SUBJECTS += ("City", "Capybara", "abcdefghijk")


@pytest.fixture
def passages(tmp_path, letters):
    rows = [
        mark_passage(
            f"<{SUBJECTS[n % 10]}> was in the <city> of <{n}>.",
            f"The river of {n} was, in <{chr(97 + n % 26)}bara>, the river.",
            block_id=100 + n,
        )
        for n in range(40)
    ]
    rows += [
        mark_passage("The river."),
        mark_passage("<abcdefghijk> was."),
        mark_passage("\u200d"),
    ]
    write_annotated(tmp_path / "annotated", rows)
    path = str(tmp_path / "passages.arrow")
    annotated = Passages(tmp_path / "annotated")
    TokenizedPassages.write(path, annotated, letters)
    return TokenizedPassages(path)


def _assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize("mode", masked_queries.MODES)
def test_a_batch_is_its_examples_padded(passages, letters, mode):
    examples = PretrainingExamples(
        passages, batch_size=8, mode=mode, max_query_length=24, max_masked=5
    )
    for step in range(examples.steps_per_epoch):
        batch = examples.batch(1, step)
        assert {array.dtype.name for array in batch.values()} == {"int32"}
        for row, example in enumerate(examples.examples(1, step)):
            ids = example.sentence_ids.tolist()
            size = int(batch["padding_mask"][row].sum())
            num_masked = int(batch["mask_weights"][row].sum())
            tokens = batch["token_ids"][row].copy()
            assert (tokens[size:] == letters.pad_id).all()
            assert (batch["padding_mask"][row, :size] == 1).all()
            assert (batch["mask_weights"][row, :num_masked] == 1).all()
            positions = batch["mask_positions"][row]
            assert (positions[num_masked:] == 0).all()
            assert (batch["mask_ids"][row, num_masked:] == 0).all()
            where = np.flatnonzero(tokens == letters.mask_id)
            assert where.tolist() == positions[:num_masked].tolist()
            tokens[where] = batch["mask_ids"][row, :num_masked]
            expected = [letters.cls_id, *ids, letters.sep_id]
            assert tokens[:size].tolist() == expected
            assert batch["sentence_ids"][row].tolist() == ids + [-1] * (
                22 - len(ids)
            )
            assert batch["block_id"][row] == example.block_id


def test_counts_and_sizes(passages):
    examples = PretrainingExamples(passages, batch_size=8)
    assert examples.num_examples == 40
    assert examples.steps_per_epoch == 5
    assert examples.counts == {
        "passages": 43,
        "sentences": 83,
        "sentences_without_wordpiece": 1,
        "spans": 161,
        "spans_without_wordpiece": 0,
        "passages_left_out": 3,
    }
    examples = PretrainingExamples(passages, batch_size=8, mode="uniform")
    assert examples.num_examples == 42
    assert examples.counts["passages_left_out"] == 1
    # 42 = 5 * 8 + 2
    assert examples.steps_per_epoch == 5


def test_an_epoch_visits_every_passage_once_and_masks_anew(passages):
    examples = PretrainingExamples(passages, batch_size=8)
    orders, answers = [], []
    for epoch in range(2):
        rows = examples_of(examples, epoch)
        orders.append([example.block_id for example in rows])
        answers.append({e.block_id: tuple(e.mask_ids) for e in rows})
        assert sorted(orders[-1]) == list(range(100, 140))
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])
    # Of four spans another is drawn three times of four.
    changed = sum(answers[0][n] != answers[1][n] for n in answers[0])
    assert 20 <= changed <= 38


def test_an_example_depends_on_seed_epoch_and_passage_alone(passages):
    one = PretrainingExamples(passages, batch_size=8)
    two = PretrainingExamples(passages, batch_size=20)
    assert two.steps_per_epoch == 2
    rows = [
        {e.block_id: e for e in examples_of(examples, 3)}
        for examples in (one, two)
    ]
    assert rows[0].keys() == rows[1].keys()
    for block_id, example in rows[0].items():
        _assert_same(vars(example), vars(rows[1][block_id]))
    other = PretrainingExamples(passages, batch_size=8, seed=1)
    assert (
        other.batch(3, 0)["block_id"].tolist()
        != one.batch(3, 0)["block_id"].tolist()
    )


def test_resumed_anywhere_the_batches_go_on(passages):
    examples = PretrainingExamples(passages, batch_size=8, seed=5)
    straight = list(itertools.islice(examples.batches(), 17))
    for done in (0, 1, 4, 5, 13):
        fresh = PretrainingExamples(passages, batch_size=8, seed=5)
        resumed = itertools.islice(fresh.batches(done), 17 - done)
        for one, two in zip(straight[done:], resumed, strict=True):
            _assert_same(one, two)


def test_passages_that_are_held_out_are_in_no_epoch(passages):
    def seen(**options):
        examples = PretrainingExamples(passages, batch_size=1, **options)
        visited = (
            batch["block_id"].item()
            for batch in itertools.islice(
                examples.batches(), 3 * examples.steps_per_epoch
            )
        )
        return set(visited), examples.num_examples

    everything, num = seen()
    learned, num_learned = seen(num_held_out=5)
    held_out, num_held_out = seen(num_held_out=5, of_held_out=True)
    assert (num_learned, num_held_out) == (num - 5, 5)
    assert learned | held_out == everything and len(held_out) == 5
    assert not learned & held_out
    # Spread over the corpus.
    assert max(held_out) - min(held_out) > 25
