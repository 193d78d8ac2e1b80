"""The tagger of blocks: words, spans in characters, dates, windows."""

import pytest
from sentence_blocks import block_of

from realm_tf.tagging.conll import find_words
from realm_tf.tagging.taggers import BertTagger


@pytest.mark.parametrize(
    "sentence, words",
    [
        ("Ada (1815-1852) wrote.", "Ada ( 1815-1852 ) wrote ."),
        ("Mr. Lee of the U.S. Navy.", "Mr. Lee of the U.S. Navy ."),
        ("J. R. R. Tolkien", "J. R. R. Tolkien"),
        ("Vitamin C.", "Vitamin C ."),
        ("O'Brien's and Jones’ cats’s", "O'Brien 's and Jones ’ cats ’s"),
        ("AT&T paid $5.3bn, or 20,000.", "AT&T paid $ 5.3bn , or 20,000 ."),
        ("The Paris–Dakar—a race…", "The Paris – Dakar — a race …"),
        ("An all-rounder's “day”", "An all-rounder 's “ day ”"),
        ("naïve cafe\u0301 हिन्दी", "naïve cafe\u0301 हिन्दी"),
        ("a\u00a0b\u2009c", "a b c"),
        ("", ""),
    ],
)
def test_words_are_cut_as_conll_cuts_them(sentence, words):
    found = [sentence[start:limit] for start, limit in find_words(sentence)]
    assert found == words.split(" ") if words else found == []


def test_words_leave_nothing_out():
    sentence = (
        "«Ω» 5′ x² 東京—A.B., it's—'tis 100% of U.N.'s \u200b e.g., \u0301"
    )
    covered = "".join(sentence[s:e] for s, e in find_words(sentence))
    assert covered == "".join(sentence.split())


def test_blocks_are_marked_in_their_text(tagger_dir):
    tagger = BertTagger(tagger_dir)
    blocks = [
        block_of("Bach wrote music in Leipzig.", "Ada was in London."),
        block_of(),
        # Code points, not bytes, though BERT takes an accent off.
        block_of("Ádà Bach wrote.", "Rome is in Italy."),
        block_of("\u200b"),
    ]
    # A block without a sentence is no block of ours, but its text is one.
    blocks[1].sentence_starts = [0]
    found = [
        [(block.text[s:e], label) for s, e, label in spans]
        for block, spans in zip(blocks, tagger.tag(blocks), strict=True)
    ]
    assert found == [
        [
            ("Bach", "PER"),
            ("Leipzig", "LOC"),
            ("Ada", "PER"),
            ("London", "LOC"),
        ],
        [],
        [("Ádà Bach", "PER"), ("Rome", "LOC"), ("Italy", "LOC")],
        [],
    ]
    assert tagger.tag([]) == []
    # One by one as all together.
    assert tagger.tag(blocks) == [tagger.tag([block])[0] for block in blocks]


def test_bfloat16_marks_the_same(tagger_dir):
    tagger = BertTagger(tagger_dir, precision="bfloat16")
    layers = tagger._tagger.model._flatten_layers()
    assert "bfloat16" in {layer.compute_dtype for layer in layers}
    block = block_of("Bach wrote music in Leipzig.", "Ada was in London.")
    assert tagger.tag([block]) == BertTagger(tagger_dir).tag([block])


def test_dates_are_marked_where_no_name_is(tagger_dir):
    tagger = BertTagger(tagger_dir)
    block = block_of("Rome is in Italy.", "Ada wrote numbers in 1843.")
    assert tagger.tag([block]) == [
        [(0, 4, "LOC"), (11, 16, "LOC"), (18, 21, "PER"), (39, 43, "DATE")]
    ]


def test_a_long_sentence_is_read_to_its_end(tagger_dir):
    """Five windows of 32 wordpieces, by a tagger that calls all B-PER."""
    tagger = BertTagger(tagger_dir)
    kernel, bias = tagger._tagger.model.get_layer("labels").weights
    kernel.assign(0.0 * kernel)
    bias.assign([0.0, 0.0, 0.0, 1.0, 0.0])
    text = " ".join(["Ada was in London in 1843."] * 12)
    (spans,) = tagger.tag([block_of(text)])
    assert spans == [(*word, "PER") for word in find_words(text)]
