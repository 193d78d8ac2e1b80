import pickle
from collections import Counter

import numpy as np
import pytest
from annotated_passages import mark_passage
from annotated_passages import write_annotated

from realm_tf.artifacts import record_files
from realm_tf.artifacts.objects import Passages
from realm_tf.data.masked_queries import Masker
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.data.tokenized_passages import tokenize_passages

# Characters of one to four bytes before, inside and after the spans; an
# accent as a character of its own; a capital whose lower case is two.
HARD = (
    "<東京> was in the 👍🏽 <Café> of <São> İ.",
    "The cafe\u0301 <e\u0301te\u0301> was in <the 東京 city>, <👍>.",
    "Ünï <Ünïbara-Öb> the <river>.",
)


def _tokenize(passage, tokenizer):
    counts = Counter()
    (found,) = tokenize_passages([passage], tokenizer, counts)
    return found, counts


def _words(found, span, tokenizer):
    return [tokenizer.vocabulary[i] for i in found.token_ids[span[0] : span[1]]]


def test_byte_by_byte_the_same(letters):
    # The rule on bytes, over every wordpiece, as the original applies it.
    passage = mark_passage(*HARD)
    found, _ = _tokenize(passage, letters)
    expected, starts, ids = [], [], []
    for number, sentence in enumerate(passage.sentences()):
        pieces = letters.tokenize(sentence)
        begin = passage.sentence_byte_start[number]
        bounds = [
            (
                begin + len(sentence[:start].encode()),
                begin + len(sentence[:limit].encode()),
            )
            for start, limit in zip(pieces.starts, pieces.limits, strict=True)
        ]
        for start, limit in zip(
            passage.span_byte_start, passage.span_byte_limit, strict=True
        ):
            inside = [
                len(ids) + place
                for place, (a, b) in enumerate(bounds)
                if a >= start and b <= limit
            ]
            if inside:
                expected.append(inside)
        starts.append(len(ids))
        ids += pieces.ids
    assert found.token_ids.tolist() == ids
    assert found.sentence_starts.tolist() == starts
    assert [
        list(range(a, b)) for a, b, _ in found.spans.reshape(-1, 3)
    ] == expected


def test_pieces_that_stick_out_of_a_span_are_not_in_it(letters):
    # "cafe" is one wordpiece; "capy" and "##bara" are five.
    found, counts = _tokenize(
        mark_passage("the c<af>e of ca<pybar>a, ca<pybara>."), letters
    )
    assert [
        _words(found, span, letters) for span in found.spans.reshape(-1, 3)
    ] == [["##p", "##y"], ["##p", "##y", "##bara"]]
    assert counts["spans_without_wordpiece"] == 1
    assert counts["spans"] == 3


def test_what_is_left_out_is_counted(letters):
    passage = mark_passage("<\u200d>", "<The> river.", "The <city>.")
    found, counts = _tokenize(passage, letters)
    assert counts == {
        "passages": 1,
        "sentences": 3,
        "sentences_without_wordpiece": 1,
        "spans": 3,
        "spans_without_wordpiece": 1,
    }
    assert found.sentence_starts.tolist() == [0, 3]
    assert [_words(found, s, letters) for s in found.spans.reshape(-1, 3)] == [
        ["the"],
        ["city"],
    ]


# === TokenizedPassages ===


@pytest.fixture
def passages():
    found = [
        mark_passage(
            "<東京> was in the <Café> 👍.", "The river.", title="東京"
        ),
        mark_passage(title="Empty"),
        mark_passage("\u200d"),
        mark_passage("The <abcdefghijkl> of <cities>, <rivers>.", block_id=-1),
        mark_passage("No span.", block_id=12_345_678),
    ]
    # More than are tokenised at once.
    return found + [
        mark_passage(f"<City> {n}.", block_id=n) for n in range(600)
    ]


@pytest.fixture
def annotated(tmp_path, passages):
    return write_annotated(tmp_path / "annotated", passages)


@pytest.fixture
def tokenized(annotated, letters, tmp_path):
    path = str(tmp_path / "passages.arrow")
    TokenizedPassages.write(path, Passages(annotated), letters)
    return path


def _assert_same(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


def test_every_passage_comes_back(tokenized, passages, letters):
    found = TokenizedPassages(tokenized)
    assert len(found) == found.counts["passages"] == 605
    expected = tokenize_passages(passages, letters, Counter())
    for number, passage in enumerate(expected):
        _assert_same(vars(found[number]), vars(passage))
    assert found[4].block_id == 12_345_678
    assert found.wordpieces == letters.vocabulary
    with pytest.raises(IndexError):
        found[605]
    again = pickle.loads(pickle.dumps(found))
    _assert_same(vars(again[3]), vars(found[3]))


def test_spans_are_counted(annotated, letters, tmp_path, monkeypatch):
    # More batches than one.
    monkeypatch.setattr(record_files, "ROWS_PER_BATCH", 7)
    path = str(tmp_path / "more.arrow")
    TokenizedPassages.write(path, Passages(annotated), letters)
    found = TokenizedPassages(path)
    for max_masked, first in (
        (10, [2, 0, 0, 2, 0]),
        (12, [2, 0, 0, 3, 0]),
        (1, [1, 0, 0, 0, 0]),
    ):
        masker = Masker(letters.vocabulary, max_masked=max_masked)
        counts = found.count_spans(masker.eligible)
        assert counts.tolist() == first + [1] * 600


@pytest.mark.parametrize("texts", [[], ["\u200d"], ["The river."]])
def test_corpora_of_next_to_nothing(tmp_path, letters, texts):
    annotated = write_annotated(
        tmp_path / "annotated", [mark_passage(text) for text in texts]
    )
    path = str(tmp_path / "passages.arrow")
    TokenizedPassages.write(path, Passages(annotated), letters)
    found = TokenizedPassages(path)
    assert len(found) == len(texts)
    counts = found.count_spans(Masker(letters.vocabulary).eligible)
    assert counts.tolist() == [0] * len(texts)
