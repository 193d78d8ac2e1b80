"""Words to rows: first wordpieces, shapes, windows, batches; by hand."""

import numpy as np
import pytest

from realm_tf.tagging import sentence_batches
from realm_tf.tagging.sentence_batches import SHAPES
from realm_tf.tagging.sentence_batches import SentenceEncoder
from realm_tf.text.tokenizer import Tokenizer

_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the nile ##s flow u . - 19 ##96 paris"
VOCABULARY = f"{_PIECES} ' € ##5".split()
TOKENIZER = Tokenizer(VOCABULARY)


def _pieces(row):
    return " ".join(VOCABULARY[index] for index in row.token_ids)


def _shapes(row):
    return " ".join(SHAPES[index] for index in row.shape_ids)


@pytest.mark.parametrize(
    "word, shape",
    [
        ("3rd", "lower"),
        ("Saint-denis", "capitalized"),
        ("Al-Ain", "capitalized"),
        ("É", "capital"),
        ("U2", "capital"),
        ("U.S.", "upper"),
        ("McDonald", "mixed"),
        ("1996-08-30", "digits"),
        ("東京", "caseless"),
        ("", "symbol"),
    ],
)
def test_word_shapes(word, shape):
    assert sentence_batches.word_shape(word) == shape


def test_the_first_wordpiece_stands_for_the_word():
    encoder = SentenceEncoder(TOKENIZER, max_length=32)
    (row,) = encoder.encode_words([("The", "NILES", "U.", "Paris-1996")])
    assert _pieces(row) == "the nile ##s u . paris - 19 ##96"
    # After [CLS]: the, nile, u and paris.
    assert row.positions.tolist() == [1, 2, 4, 6]
    assert row.words.tolist() == [0, 1, 2, 3]
    assert _shapes(row) == (
        "capitalized upper upper capital symbol capitalized symbol digits digits"
    )


def test_words_without_a_wordpiece_of_their_own():
    encoder = SentenceEncoder(TOKENIZER, max_length=32)
    # BERT drops a zero-width space, and does not part "€5".
    text = "the \u200b €5 nile"
    rows = encoder.encode([text, "\u200b"], [[0, 4, 6, 7, 9], [0]])
    (row,) = rows
    assert row.sentence == 0
    assert _pieces(row) == "the € ##5 nile"
    assert row.words.tolist() == [0, 2, 3, 4]
    assert row.positions.tolist() == [1, 2, 3, 4]
    # Parted in one word only: the second is no word of its own.
    (row,) = encoder.encode(["[UNK]s"], [[0, 1]])
    assert row.words.tolist() == [0, 1]
    (row,) = encoder.encode(["xxxxx nile"], [[0, 2, 6]])
    assert _pieces(row) == "[UNK] nile"
    assert row.words.tolist() == [0, 2]
    assert row.positions.tolist() == [1, 2]


def test_a_text_and_its_words_give_the_same_row():
    encoder = SentenceEncoder(TOKENIZER, max_length=32)
    (by_words,) = encoder.encode_words([("the", "Nile", "'s", "flow", ".")])
    (by_text,) = encoder.encode(["the Nile's flow."], [[0, 4, 8, 11, 15]])
    for name in ("token_ids", "shape_ids", "words", "positions"):
        np.testing.assert_array_equal(
            getattr(by_words, name), getattr(by_text, name)
        )


@pytest.mark.parametrize("max_length", [8, 9, 16, 33])
def test_each_word_is_decided_once_whatever_the_window(max_length):
    random = np.random.default_rng(0)
    pool = ("the", "Niles", "flow", "1996", "nilesssssss", ".", "u.u.u.u")
    sentences = [
        tuple(random.choice(pool, size=size)) for size in (1, 5, 40, 90)
    ]
    whole = SentenceEncoder(TOKENIZER, max_length=10_000)
    rows = SentenceEncoder(TOKENIZER, max_length=max_length).encode_words(
        sentences
    )
    assert max(len(row.token_ids) for row in rows) <= max_length - 2
    for number, row in enumerate(whole.encode_words(sentences)):
        windows = [found for found in rows if found.sentence == number]
        words = np.concatenate([found.words for found in windows])
        np.testing.assert_array_equal(words, np.arange(len(words)))
        assert len(words) == len(sentences[number])
        firsts = [w.token_ids[w.positions - 1] for w in windows]
        np.testing.assert_array_equal(
            np.concatenate(firsts), row.token_ids[row.positions - 1]
        )


def _rows(lengths):
    encoder = SentenceEncoder(TOKENIZER, max_length=512)
    return encoder.encode_words([("the",) * length for length in lengths])


def test_rows_are_padded_to_few_lengths():
    encoder = SentenceEncoder(TOKENIZER, max_length=200)
    rows = _rows([1, 2, 3, 62, 63, 190])
    lengths = [encoder.padded_length(row) for row in rows]
    assert lengths == [4, 4, 8, 64, 96, 192]
    # Never beyond the positions there are.
    encoder = SentenceEncoder(TOKENIZER, max_length=100)
    assert encoder.padded_length(_rows([62 + 34])[0]) == 100


def test_batches_cost_about_the_same():
    encoder = SentenceEncoder(TOKENIZER, max_length=512)
    rows = _rows([30, 6, 62, 5, 6, 14, 190])
    batches = encoder.batches(rows, 2)
    assert [b.tolist() for b in batches] == [[1, 3, 4, 5], [0], [2], [6]]
    assert encoder.batches([], 2) == []
    random = np.random.default_rng(0)
    rows = _rows(random.integers(1, 120, size=500).tolist())
    lengths = np.array([encoder.padded_length(row) for row in rows])
    batches = encoder.batches(rows, 16)
    assert sorted(np.concatenate(batches)) == list(range(500))
    for batch, after in zip(batches, batches[1:], strict=False):
        assert len(batch) * lengths[batch].max() <= 512
        assert (len(batch) + 1) * lengths[after].min() > 512


def test_a_batch_by_hand():
    encoder = SentenceEncoder(TOKENIZER, max_length=32)
    rows = encoder.encode_words([("Nile",), ("the", "U", ".")])
    batch = encoder.stack(rows)
    ids = {piece: index for index, piece in enumerate(VOCABULARY)}
    expected = [
        "[CLS] nile [SEP] [PAD] [PAD] [PAD] [PAD] [PAD]",
        "[CLS] the u . [SEP] [PAD] [PAD] [PAD]",
    ]
    assert batch["token_ids"].tolist() == [
        [ids[piece] for piece in row.split()] for row in expected
    ]
    shapes = {name: index for index, name in enumerate(SHAPES)}
    assert batch["shape_ids"].tolist() == [
        [0, shapes["capitalized"], 0, 0, 0, 0, 0, 0],
        [0, shapes["lower"], shapes["capital"], shapes["symbol"], 0, 0, 0, 0],
    ]
    assert batch["padding_mask"].tolist() == [
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
    ]
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}
