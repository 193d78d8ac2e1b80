import itertools
import pickle

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.artifacts.paths import write_text
from realm_tf.data.inverse_cloze import IctExamples
from realm_tf.errors import InputError

WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
CLS, SEP, PAD = 2, 3, 0


def _write_blocks(directory, rows):
    """A blocks directory; each row is a title and sentences, as ids."""
    import tensorflow as tf

    with artifact.write(str(directory), kind=schema.BLOCKS) as stage:
        path = stage.path("blocks-00000.tfrecord.gz")
        with tf.io.TFRecordWriter(path, options="GZIP") as writer:
            for number, (title, sentences) in enumerate(rows):
                # A wordpiece is one character of the text here.
                token_ids = [i for sentence in sentences for i in sentence]
                block = schema.Block(
                    number,
                    str(number),
                    "title",
                    "x" * len(token_ids),
                    title_ids=title,
                    token_ids=token_ids,
                    token_starts=list(range(len(token_ids))),
                    token_limits=list(range(1, len(token_ids) + 1)),
                    sentence_starts=np.cumsum(
                        [0, *map(len, sentences[:-1])]
                    ).tolist(),
                )
                writer.write(schema.block_to_example(block))
        write_text(
            stage.path("vocab.txt"),
            "".join(f"{piece}\n" for piece in WORDPIECES)
            + "".join(f"w{n}\n" for n in range(1000)),
        )
        stage.metadata.update(
            num_blocks=len(rows),
            shard_rows=[len(rows)],
            fingerprint="abc",
            tokenizer="def",
        )
    return str(directory)


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
def blocks(tmp_path, rows):
    directory = _write_blocks(tmp_path / "blocks", rows)
    pack_blocks(directory, str(tmp_path / "packed"))
    return PackedBlocks(str(tmp_path / "packed"))


def _epoch(examples, epoch):
    return [
        example
        for step in range(examples.steps_per_epoch)
        for example in examples.examples(epoch, step)
    ]


def test_a_query_is_a_sentence_and_the_body_goes_with_or_without(blocks, rows):
    examples = IctExamples(blocks, batch_size=7, seed=1)
    for example in _epoch(examples, 0):
        title, sentences = rows[example.block_id]
        assert example.title_ids.tolist() == title
        query = example.query_ids.tolist()
        assert query in sentences
        kept = [s for s in sentences if s != query or not example.removed]
        assert example.body_ids.tolist() == [i for s in kept for i in s]
        assert len(kept) >= 1


def test_a_batch_is_its_examples_joined(blocks):
    examples = IctExamples(
        blocks, batch_size=6, max_query_length=9, max_block_length=30
    )
    batch = examples.batch(2, 3)
    assert {name: array.shape for name, array in batch.items()} == {
        "query_token_ids": (6, 9),
        "query_padding_mask": (6, 9),
        "block_token_ids": (6, 30),
        "block_segment_ids": (6, 30),
        "block_padding_mask": (6, 30),
        "removed": (6,),
        "block_id": (6,),
    }
    assert {array.dtype.name for array in batch.values()} == {"int32"}
    for row, example in enumerate(examples.examples(2, 3)):
        query = [CLS, *example.query_ids, SEP]
        title = [CLS, *example.title_ids, SEP]
        block = [*title, *example.body_ids, SEP]
        for name, ids, length in (("query", query, 9), ("block", block, 30)):
            padding = length - len(ids)
            assert batch[f"{name}_token_ids"][row].tolist() == [
                *ids,
                *[PAD] * padding,
            ]
            assert (
                batch[f"{name}_padding_mask"][row].tolist()
                == [1] * len(ids) + [0] * padding
            )
        assert batch["block_segment_ids"][row].tolist() == [0] * len(title) + [
            1
        ] * (len(block) - len(title)) + [0] * (30 - len(block))
        assert batch["removed"][row] == example.removed
        assert batch["block_id"][row] == example.block_id


def test_other_segment_ids(blocks):
    examples = IctExamples(blocks, batch_size=6, block_segment_ids=(0, 0))
    assert not examples.batch(0, 0)["block_segment_ids"].any()


def test_what_is_too_long_is_cut_at_its_end(blocks, rows):
    examples = IctExamples(
        blocks, batch_size=40, max_query_length=4, max_block_length=8
    )
    batch = examples.batch(0, 0)
    for row, example in enumerate(examples.examples(0, 0)):
        query = [CLS, *example.query_ids[:2], SEP]
        body = example.body_ids[: 8 - 3 - len(example.title_ids)]
        block = [CLS, *example.title_ids, SEP, *body, SEP]
        for name, ids in (("query", query), ("block", block)):
            size = batch[f"{name}_padding_mask"][row].sum()
            assert batch[f"{name}_token_ids"][row, :size].tolist() == ids


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
        ids = [example.block_id for example in _epoch(examples, epoch)]
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
        [sentences.index(example.query_ids.tolist()) for example in drawn],
        minlength=5,
    )
    # Chi-square at 0.001, 4 degrees of freedom.
    assert np.sum((counts - 400) ** 2 / 400) < 18.5
    removed = np.array([example.removed for example in drawn])
    assert abs(removed.mean() - 0.9) < 0.025
    # One does not tell the other.
    first = [e.query_ids.tolist() == sentences[0] for e in drawn]
    assert abs(removed[first].mean() - 0.9) < 0.06


def test_a_blocks_only_sentence_is_never_removed(blocks):
    examples = IctExamples(blocks, batch_size=7)
    for epoch in range(50):
        example = examples.example(epoch, 45)
        assert not example.removed
        assert example.body_ids.tolist() == example.query_ids.tolist()
    assert examples.example(0, 60) is None


@pytest.mark.parametrize(
    ("probability", "num_examples", "removed"), [(0, 60, 0), (1, 40, 40)]
)
def test_the_extreme_probabilities(blocks, probability, num_examples, removed):
    examples = IctExamples(blocks, batch_size=4, remove_probability=probability)
    assert examples.num_examples == num_examples
    found = _epoch(examples, 0)
    assert sum(example.removed for example in found) == removed
    assert len(found) == num_examples


def test_a_batch_depends_on_seed_epoch_and_step_alone(blocks):
    examples = IctExamples(blocks, batch_size=8, seed=5)
    straight = list(itertools.islice(examples.batches(), 17))
    again = pickle.loads(pickle.dumps(examples))
    for done in (0, 4, 5, 13):
        place = divmod(done, again.steps_per_epoch)
        resumed = itertools.islice(again.batches(*place), 17 - done)
        for one, two in zip(straight[done:], resumed, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])
    other = IctExamples(blocks, batch_size=8, seed=6).batch(0, 0)
    assert other["block_id"].tolist() != straight[0]["block_id"].tolist()
    orders = [[e.block_id for e in _epoch(examples, n)] for n in range(2)]
    assert orders[0] != orders[1] and orders[0] != sorted(orders[0])


def test_a_last_batch_is_filled_with_empty_rows(blocks):
    examples = IctExamples(blocks, batch_size=8, drop_remainder=False)
    assert examples.steps_per_epoch == 6
    batch = examples.batch(0, 5)
    assert (batch["block_id"] >= 0).tolist() == [True] * 2 + [False] * 6
    assert batch["query_token_ids"].shape == (8, 64)
    assert batch["query_token_ids"][7, :3].tolist() == [CLS, SEP, PAD]
    assert batch["block_token_ids"][7, :4].tolist() == [CLS, SEP, SEP, PAD]
    assert not batch["removed"][2:].any()


def test_bad_arguments_are_refused(blocks):
    with pytest.raises(InputError, match="gives 42 examples an epoch: fewer"):
        IctExamples(blocks, batch_size=43)
    for arguments, reason in (
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"seed": -1}, "`seed` not negative"),
        ({"max_query_length": 2}, "`max_query_length` must be at least 3"),
        ({"remove_probability": 1.5}, "`remove_probability` must be between"),
    ):
        with pytest.raises(ValueError, match=reason):
            IctExamples(blocks, **{"batch_size": 4, **arguments})
    examples = IctExamples(blocks, batch_size=8)
    with pytest.raises(ValueError, match="must be below 5"):
        examples.batch(0, 5)
