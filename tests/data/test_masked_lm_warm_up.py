import dataclasses

import numpy as np
import pytest

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.data import masked_lm_warm_up
from realm_tf.data.tokenized_passages import TokenizedPassages


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, blocks_dir, annotated_dir, tokenizer):
    """The same blocks as passages and as blocks."""
    path = str(tmp_path_factory.mktemp("packed") / "passages.arrow")
    TokenizedPassages.write(path, Passages(annotated_dir), tokenizer)
    return TokenizedPassages(path), Blocks(blocks_dir).records


def _examples(corpus, own=1.0, answer=0.0, other=0.0, window=12, **options):
    options = {"max_query_length": 10, "max_masked": 3, **options}
    return masked_lm_warm_up.MaskedLmExamples(
        *corpus,
        own_share=own,
        answer_share=answer,
        other_share=other,
        window=window,
        batch_size=4,
        **options,
    )


def test_the_window_is_of_the_own_block_and_holds_the_query(corpus):
    firsts, lengths = set(), set()
    for step in range(20):
        batch = _examples(corpus).batch(step, 0)
        assert batch["block_token_ids"].shape == (4, 12)
        for row in range(4):
            length = batch["block_lengths"][row]
            window = batch["block_token_ids"][row, :length].tolist()
            assert not batch["block_token_ids"][row, length:].any()
            body = corpus[1][int(batch["block_id"][row])].token_ids.tolist()
            assert length <= min(12, len(body))
            assert _place(window, body) >= 0
            sentence = batch["sentence_ids"][row]
            place = _place(sentence[sentence >= 0].tolist(), window)
            assert place >= 0
            firsts.add(place)
            lengths.add(int(length))
    assert len(firsts) > 1
    # Of all widths.
    assert len(lengths) > 4


def _place(piece, whole):
    """Where a list occurs in another, or -1."""
    for first in range(len(whole) - len(piece) + 1):
        if whole[first : first + len(piece)] == piece:
            return first
    return -1


def test_half_of_a_query_with_its_own_block_is_predicted(corpus, tokenizer):
    num_masked = num_kept = num = 0
    for epoch in range(100):
        batch = _examples(corpus).batch(epoch, 0)
        weights = batch["mask_weights"] > 0
        put = np.take_along_axis(
            batch["token_ids"], batch["mask_positions"], axis=1
        )
        is_masked = put == tokenizer.mask_id
        assert (is_masked | (put == batch["mask_ids"]))[weights].all()
        num_masked += is_masked[weights].sum()
        num_kept += (~is_masked)[weights].sum()
        num += (batch["sentence_ids"] >= 0).sum()
    assert (num_masked + num_kept) / num == pytest.approx(0.5, abs=0.05)
    assert num_kept / (num_masked + num_kept) == pytest.approx(0.3, abs=0.05)


def test_each_kind_has_its_share(corpus):
    kinds = []
    for epoch in range(100):
        examples = _examples(corpus, own=0.2, answer=0.3, other=0.4)
        batch = examples.batch(epoch, 0)
        has_block = batch["block_lengths"] > 0
        assert (
            has_block == (batch["block_kind"] != masked_lm_warm_up.NULL)
        ).all()
        kinds += batch["block_kind"].tolist()
    shares = np.bincount(kinds, minlength=4) / len(kinds)
    # Three standard deviations of 400 draws; not every answer is found.
    assert shares[masked_lm_warm_up.OWN] == pytest.approx(0.2, abs=0.06)
    assert shares[masked_lm_warm_up.OTHER] == pytest.approx(0.4, abs=0.075)
    assert 0.05 < shares[masked_lm_warm_up.ANSWER] < 0.375


def test_the_block_with_the_answer(corpus):
    """It is found where there is one, and never is the query's own."""
    blocks = corpus[1]
    bodies = [blocks[n].token_ids.tolist() for n in range(len(blocks))]
    num_found = num_missed = 0
    for epoch in range(20):
        batch = _examples(corpus, own=0.0, answer=1.0).batch(epoch, 0)
        for row in range(4):
            own = batch["block_id"][row]
            num_masked = batch["mask_weights"][row].sum()
            answer = batch["mask_ids"][row, :num_masked].tolist()
            holders = [
                n
                for n, body in enumerate(bodies)
                if n != own and _place(answer, body) >= 0
            ]
            length = batch["block_lengths"][row]
            window = batch["block_token_ids"][row, :length].tolist()
            assert bool(length) == bool(holders)
            if not holders:
                num_missed += 1
                continue
            assert _place(answer, window) >= 0
            assert any(_place(window, bodies[n]) >= 0 for n in holders)
            num_found += 1
    assert num_found > 5 and num_missed > 5


def test_another_block_is_not_the_querys_own(corpus):
    blocks = corpus[1]
    firsts = set()
    for epoch in range(20):
        batch = _examples(corpus, own=0.0, other=1.0).batch(epoch, 0)
        assert (batch["block_kind"] == masked_lm_warm_up.OTHER).all()
        for row in range(4):
            length = batch["block_lengths"][row]
            window = batch["block_token_ids"][row, :length].tolist()
            places = {
                block_id: _place(window, blocks[block_id].token_ids.tolist())
                for block_id in range(len(blocks))
            }
            found = [block_id for block_id, p in places.items() if p >= 0]
            assert found and batch["block_id"][row] not in found
            firsts.add(places[found[0]])
    assert len(firsts) > 1


def test_the_null_block_where_no_window_holds_the_query(corpus):
    batch = _examples(corpus, window=2).batch(0, 0)
    assert not batch["block_lengths"].any()
    assert not batch["block_token_ids"].any()


def test_passages_of_another_corpus_are_read_too(corpus):
    class Elsewhere(TokenizedPassages):
        def __getitem__(self, number):
            return dataclasses.replace(super().__getitem__(number), block_id=-1)

    elsewhere = Elsewhere(corpus[0].path)
    found = _examples((elsewhere, corpus[1])).batch(0, 0)
    expected = _examples(corpus).batch(0, 0)
    assert (found.pop("block_id") == -1).all()
    assert (expected.pop("block_id") >= 0).all()
    assert (found["block_kind"] == masked_lm_warm_up.OWN).all()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
