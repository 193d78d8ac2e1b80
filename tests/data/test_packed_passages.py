import json
import os
from collections import Counter

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.data.masking import Masker
from realm_tf.data.packed_passages import PackedPassages
from realm_tf.data.packed_passages import pack_passages
from realm_tf.data.tokenized_passages import tokenize_passages
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer


@pytest.fixture
def passages(mark_passage):
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
def annotated(tmp_path, passages, write_annotated):
    return write_annotated(tmp_path / "annotated", passages)


@pytest.fixture
def packed(annotated, letters, tmp_path):
    pack_passages(annotated, letters, str(tmp_path / "packed"))
    return str(tmp_path / "packed")


def _assert_same(one, two):
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name], err_msg=name)


def test_every_passage_comes_back(packed, passages, letters):
    found = PackedPassages(packed)
    assert len(found) == 605
    expected = tokenize_passages(passages, letters, Counter())
    for number, passage in enumerate(expected):
        _assert_same(vars(found[number]), vars(passage))
    assert found[0].title == "東京"
    assert found[4].block_id == 12_345_678
    assert found.wordpieces == letters.vocabulary
    with pytest.raises(IndexError):
        found[605]


def test_metadata(packed, letters):
    metadata = artifact.read(packed, kind="packed_passages")
    assert metadata["num_passages"] == 605
    assert metadata["parents"] == {"annotated": "abc"}
    assert metadata["parameters"] == {"tokenizer": letters.fingerprint()}
    assert metadata["counts"] == {
        "passages": 605,
        "sentences": 605,
        "sentences_without_wordpiece": 1,
        "spans": 605,
        "spans_outside_sentences": 0,
        "spans_without_wordpiece": 0,
    }


def test_the_files_are_plain_npy(packed, letters):
    arrays = {
        name: np.load(os.path.join(packed, f"{name}.npy"))
        for name in ("passages", "token_ids", "sentences", "spans", "texts")
    }
    assert arrays["token_ids"].dtype == "uint16"
    assert arrays["passages"].shape == (606, 6)
    first = letters.tokenize("東京 was in the Café 👍.").ids
    assert arrays["token_ids"][: len(first)].tolist() == first
    text = "東京東京 was in the Café 👍. The river.".encode()
    assert arrays["texts"][: len(text)].tobytes() == text


def test_large_vocabularies_take_int32(annotated, letters, tmp_path):
    more = [f"##{number}x" for number in range(1 << 16)]
    large = Tokenizer([*letters.vocabulary, *more])
    pack_passages(annotated, large, str(tmp_path / "large"))
    found = PackedPassages(str(tmp_path / "large"))
    assert found[0].token_ids.dtype == "int32"
    assert (
        found[0].token_ids.tolist()
        == letters.tokenize("東京 was in the Café 👍. The river.").ids
    )


def test_spans_are_counted(packed, letters, monkeypatch):
    found = PackedPassages(packed)
    # More parts than one.
    monkeypatch.setattr("realm_tf.data.packed_passages._PART", 7)
    for max_masked, first in (
        (10, [2, 0, 0, 2, 0]),
        (12, [2, 0, 0, 3, 0]),
        (1, [1, 0, 0, 0, 0]),
    ):
        masker = Masker(letters.vocabulary, max_masked=max_masked)
        counts = found.count_spans(masker.eligible)
        assert counts.tolist() == first + [1] * 600


@pytest.mark.parametrize("texts", [[], ["\u200d"], ["The river."]])
def test_corpora_of_next_to_nothing(
    tmp_path, letters, mark_passage, write_annotated, texts
):
    annotated = write_annotated(
        tmp_path / "annotated", [mark_passage(text) for text in texts]
    )
    pack_passages(annotated, letters, str(tmp_path / "packed"))
    found = PackedPassages(str(tmp_path / "packed"))
    assert len(found) == len(texts)
    counts = found.count_spans(Masker(letters.vocabulary).eligible)
    assert counts.tolist() == [0] * len(texts)


def test_wrong_directories_are_refused(annotated, packed, letters, tmp_path):
    with pytest.raises(InputError, match="holds 'annotated', expected"):
        PackedPassages(annotated)
    with pytest.raises(InputError, match="expected 'annotated'"):
        pack_passages(packed, letters, str(tmp_path / "other"))
    with pytest.raises(InputError, match="exists already"):
        pack_passages(annotated, letters, packed)
    with pytest.raises(InputError, match="local directory"):
        pack_passages(annotated, letters, "gs://bucket/packed")


def test_a_missing_record_is_noticed(annotated, letters, tmp_path):
    path = os.path.join(annotated, artifact.METADATA)
    metadata = json.loads(Path(path).read_text())
    write_text(
        path,
        json.dumps({**metadata, "num_passages": 606, "shard_rows": [302, 304]}),
    )
    with pytest.raises(
        InputError, match="does not hold the passages 302 to 605"
    ):
        pack_passages(annotated, letters, str(tmp_path / "packed"))
