import dataclasses

import numpy as np
import pytest

from beam_pipelines import annotate_spans
from realm_tf.data import own_block
from realm_tf.data.packed_blocks import PackedBlocks
from realm_tf.data.packed_blocks import pack_blocks
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.data.packed_passages import pack_passages
from realm_tf.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, blocks_dir, vocabulary_path):
    """The same blocks as passages and as blocks."""
    root = tmp_path_factory.mktemp("packed")
    annotated = str(root / "annotated")
    annotate_spans.annotate(annotated, "rules", blocks=blocks_dir)
    pack_blocks(blocks_dir, str(root / "blocks"))
    tokenizer = Tokenizer.from_file(vocabulary_path, lowercase=True)
    pack_passages(annotated, tokenizer, str(root / "passages"))
    return PackedPassages(root / "passages"), PackedBlocks(root / "blocks")


def _examples(corpus, own=1.0, other=0.0, window=12, **options):
    options = {
        "mode": "uniform",
        "max_query_length": 10,
        "max_masked": 8,
        **options,
    }
    return own_block.OwnBlockExamples(
        *corpus,
        own_share=own,
        other_share=other,
        window=window,
        batch_size=4,
        **options,
    )


def test_the_window_is_of_the_own_block_and_holds_the_query(corpus):
    firsts = set()
    for step in range(20):
        examples = _examples(corpus, mask_rate=0.5, keep_rate=0.3)
        batch = examples.batch(step, 0)
        assert batch["block_token_ids"].shape == (4, 12)
        for row in range(4):
            length = batch["block_lengths"][row]
            window = batch["block_token_ids"][row, :length].tolist()
            assert not batch["block_token_ids"][row, length:].any()
            body = corpus[1][int(batch["block_id"][row])].token_ids.tolist()
            assert length == min(12, len(body))
            assert _place(window, body) >= 0
            sentence = batch["sentence_ids"][row]
            place = _place(sentence[sentence >= 0].tolist(), window)
            assert place >= 0
            firsts.add(place)
    assert len(firsts) > 1


def _place(piece, whole):
    """Where a list stands in another, or -1."""
    for first in range(len(whole) - len(piece) + 1):
        if whole[first : first + len(piece)] == piece:
            return first
    return -1


def test_each_kind_has_its_share(corpus):
    kinds = []
    for epoch in range(100):
        batch = _examples(corpus, own=0.25, other=0.5).batch(epoch, 0)
        kinds += batch["block_kind"].tolist()
        has_block = batch["block_lengths"] > 0
        assert (has_block == (batch["block_kind"] != own_block.NULL)).all()
    shares = np.bincount(kinds) / len(kinds)
    # Three standard deviations of 400 draws.
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.075)


def test_another_block_is_not_the_querys_own(corpus):
    firsts = set()
    for epoch in range(20):
        batch = _examples(corpus, own=0.0, other=1.0).batch(epoch, 0)
        assert (batch["block_kind"] == own_block.OTHER).all()
        for row in range(4):
            length = batch["block_lengths"][row]
            window = batch["block_token_ids"][row, :length].tolist()
            places = {
                block_id: _place(window, corpus[1][block_id].token_ids.tolist())
                for block_id in range(len(corpus[1]))
            }
            found = [block_id for block_id, p in places.items() if p >= 0]
            assert found and batch["block_id"][row] not in found
            firsts.add(places[found[0]])
    assert len(firsts) > 1


def test_the_null_block_where_no_window_holds_the_query(corpus):
    batch = _examples(corpus, window=2).batch(0, 0)
    assert not batch["block_lengths"].any()
    assert not batch["block_token_ids"].any()


def test_passages_that_are_of_no_block_have_the_null_block(corpus):
    class Elsewhere(PackedPassages):
        def __getitem__(self, number):
            return dataclasses.replace(super().__getitem__(number), block_id=-1)

    passages = Elsewhere(corpus[0].directory)
    batch = _examples((passages, corpus[1])).batch(0, 0)
    assert not batch["block_lengths"].any()


def test_a_batch_is_the_same_whoever_makes_it(corpus):
    one = _examples(corpus, own=0.5, other=0.3).batch(3, 0)
    two = _examples(corpus, own=0.5, other=0.3).batch(3, 0)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"own": 0.7, "other": 0.4}, "together at most 1"),
        ({"own": -0.1}, "must not be negative"),
        ({"window": 0}, "`window` must be at least 1"),
    ],
)
def test_arguments_out_of_range(corpus, wrong, words):
    with pytest.raises(ValueError, match=words):
        _examples(corpus, **wrong)
