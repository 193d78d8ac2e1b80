import itertools

import numpy as np
import pytest
from example_epochs import examples_of

from realm_tf.artifacts.block_records import BlockWordpieces
from realm_tf.data.inverse_cloze import IctExamples
from realm_tf.errors import InputError

WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
CLS, SEP, PAD = 2, 3, 0


class Blocks(list):
    """`BlockRecords` of titles and sentences, as ids."""

    wordpieces = WORDPIECES
    directory = "packed"

    def __init__(self, rows):
        for number, (title, sentences) in enumerate(rows):
            lengths = [len(each) for each in sentences if each]
            self.append(
                BlockWordpieces(
                    number,
                    np.array(title, "int32"),
                    np.array(sum(sentences, []), "int32"),
                    np.cumsum([0, *lengths])[:-1],
                )
            )

    def count_sentences(self):
        return np.array([len(block.sentence_starts) for block in self])


@pytest.fixture
def rows():
    """40 blocks of 2 to 6 sentences, 20 of one, 2 of none; all differ."""
    random = np.random.default_rng(0)
    ids = itertools.count(10)

    def sentence():
        first = next(ids)
        return [first] * int(random.integers(1, 5))

    found = [
        ([4, 5], [sentence() for _ in range(2 + number % 5)])
        for number in range(40)
    ]
    found += [([6], [sentence()]) for _ in range(20)]
    return found + [([7], [[]]), ([], [[]])]


@pytest.fixture
def blocks(rows):
    return Blocks(rows)


def test_a_query_is_a_sentence_and_the_body_goes_with_or_without(blocks, rows):
    examples = IctExamples(blocks, batch_size=7, seed=1)
    for example in examples_of(examples, 0):
        title, sentences = rows[example["block_id"]]
        assert example["title_ids"].tolist() == title
        query = example["query_ids"].tolist()
        assert query in sentences
        kept = [s for s in sentences if s != query or not example["removed"]]
        assert example["body_ids"].tolist() == [i for s in kept for i in s]
        assert len(kept) >= 1


# The second cuts what is too long at its end.
@pytest.mark.parametrize("lengths", [(9, 30), (4, 8)])
@pytest.mark.parametrize("segment", [0, 1])
def test_a_batch_is_its_examples_joined(blocks, lengths, segment):
    max_query, max_block = lengths
    examples = IctExamples(
        blocks,
        batch_size=6,
        max_query_length=max_query,
        max_block_length=max_block,
        block_segment_ids=(0, segment),
    )
    batch = examples.batch(2, 3)
    assert {array.dtype.name for array in batch.values()} == {"int32"}
    for row, example in enumerate(examples.examples(2, 3)):
        query = [CLS, *example["query_ids"][: max_query - 2], SEP]
        title = [CLS, *example["title_ids"], SEP]
        body = [*example["body_ids"][: max_block - 1 - len(title)], SEP]
        expected = {
            "query_token_ids": (query, max_query),
            "query_padding_mask": ([1] * len(query), max_query),
            "block_token_ids": (title + body, max_block),
            "block_padding_mask": ([1] * len(title + body), max_block),
            "block_segment_ids": (
                [0] * len(title) + [segment] * len(body),
                max_block,
            ),
        }
        for name, (ids, length) in expected.items():
            padded = ids + [PAD] * (length - len(ids))
            assert batch[name][row].tolist() == padded, name
        assert batch["removed"][row] == example["removed"]
        assert batch["block_id"][row] == example["block_id"]


def test_an_epoch_visits_every_block_once(blocks):
    examples = IctExamples(blocks, batch_size=7)
    assert examples.counts == {
        "blocks": 62,
        "blocks_without_sentence": 2,
        "blocks_of_one_sentence": 20,
        "dropped_an_epoch": 18,
    }
    assert (examples.num_examples, examples.steps_per_epoch) == (42, 6)
    single = []
    for epoch in range(60):
        ids = [example["block_id"] for example in examples_of(examples, epoch)]
        assert len(set(ids)) == 42
        assert sorted(ids)[:40] == list(range(40))
        single.append(sorted(ids)[40:])
    counts = np.bincount(np.ravel(single), minlength=62)[40:]
    # 2 of 20 an epoch: 6 times each in 60 epochs, variance 60 * 0.1 * 0.9.
    assert counts.sum() == 120 and counts.shape == (22,)
    assert not counts[20:].any()
    assert np.sum((counts[:20] - 6) ** 2 / 6) < 43.8


def test_sentences_are_drawn_evenly_and_removed_nine_times_of_ten(blocks, rows):
    examples = IctExamples(blocks, batch_size=7)
    # Block 3 has five sentences.
    drawn = [examples.example(epoch, 3) for epoch in range(2000)]
    sentences = rows[3][1]
    counts = np.bincount(
        [sentences.index(example["query_ids"].tolist()) for example in drawn],
        minlength=5,
    )
    # Chi-square at 0.001, 4 degrees of freedom.
    assert np.sum((counts - 400) ** 2 / 400) < 18.5
    removed = np.array([example["removed"] for example in drawn])
    assert abs(removed.mean() - 0.9) < 0.025
    # One does not tell the other.
    first = [e["query_ids"].tolist() == sentences[0] for e in drawn]
    assert abs(removed[first].mean() - 0.9) < 0.06


@pytest.mark.parametrize(
    ("probability", "num_examples", "removed"), [(0, 60, 0), (1, 40, 40)]
)
def test_the_extreme_probabilities(blocks, probability, num_examples, removed):
    examples = IctExamples(blocks, batch_size=4, remove_probability=probability)
    assert examples.num_examples == num_examples
    found = examples_of(examples, 0)
    assert sum(example["removed"] for example in found) == removed
    assert len(found) == num_examples


def test_fewer_examples_than_a_batch_are_refused(blocks):
    with pytest.raises(InputError, match="42 examples an epoch: fewer"):
        IctExamples(blocks, batch_size=43)
