"""Tests of the Python tokenizer: ids, offsets and vocabulary files."""

import json
import pathlib
import pickle
import random
import string

import pytest

from realm_tf.errors import InputError
from realm_tf.text import tokenizer as tokenizer_lib

GOLDEN = (
    pathlib.Path(__file__).parents[1] / "testdata" / "tokenizer_golden.json"
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "un ##aff ##able caf ##e 京 都 ｔ ##ｆ [ ] sep Caf !"
VOCABULARY = [*SPECIAL, *WORDS.split()]


def _slices(text, *, lowercase=True):
    tokenizer = tokenizer_lib.Tokenizer(VOCABULARY, lowercase=lowercase)
    wordpieces = tokenizer.tokenize(text)
    assert len(wordpieces) == len(wordpieces.starts) == len(wordpieces.limits)
    return [
        (VOCABULARY[index], text[start:limit])
        for index, start, limit in zip(
            wordpieces.ids, wordpieces.starts, wordpieces.limits, strict=True
        )
    ]


def _write(path, lines):
    path.write_bytes("\n".join(lines).encode("utf-8"))
    return str(path)


def test_golden_ids():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    tokenizer = tokenizer_lib.Tokenizer(golden["vocabulary"])
    texts = [case["text"] for case in golden["texts"]]
    expected = [case["ids"] for case in golden["texts"]]
    assert [tokenizer.tokenize(text).ids for text in texts] == expected
    assert [
        wordpieces.ids for wordpieces in tokenizer.tokenize_batch(texts)
    ] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[SEP]", [("[", "["), ("sep", "SEP"), ("]", "]")]),
        (
            "  Unaffable!",
            [("un", "Un"), ("##aff", "aff"), ("##able", "able"), ("!", "!")],
        ),
        # A composed accent is one code point of the text, a combining one
        # stands after its letter and belongs to no wordpiece.
        ("Café!", [("caf", "Caf"), ("##e", "é"), ("!", "!")]),
        ("Cafe\u0301!", [("caf", "Caf"), ("##e", "e"), ("!", "!")]),
        (
            "京都café",
            [("京", "京"), ("都", "都"), ("caf", "caf"), ("##e", "é")],
        ),
        ("x ＴＦ", [("[UNK]", "x"), ("ｔ", "Ｔ"), ("##ｆ", "Ｆ")]),
        ("🙂 un", [("[UNK]", "🙂"), ("un", "un")]),
        ("u\u200dn\x00", [("un", "u\u200dn")]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_offsets_slice_the_text(text, expected):
    assert _slices(text) == expected


@pytest.mark.parametrize(
    ("pieces", "lowercase"),
    [(["city", "[Unused1]", "[U]"], True), (["city", "##C"], False)],
)
def test_a_capital_letter_tells_a_cased_vocabulary(tmp_path, pieces, lowercase):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *pieces]))
    found = tokenizer_lib.Tokenizer.from_file(str(path))
    assert found.lowercase == lowercase


def test_cased_keeps_capitals_and_accents():
    assert _slices("Cafe café", lowercase=False) == [
        ("Caf", "Caf"),
        ("##e", "e"),
        ("[UNK]", "café"),
    ]
    # Whatever the form of its letters.
    tokenizer = tokenizer_lib.Tokenizer([*SPECIAL, "é", "##x"], lowercase=False)
    assert tokenizer.tokenize("e\u0301x").ids == [5, 6]


def test_words_over_100_characters_are_unknown():
    tokenizer = tokenizer_lib.Tokenizer([*SPECIAL, "é", "##é"], lowercase=False)
    assert tokenizer.tokenize("é" * 100).ids == [5] + [6] * 99
    assert tokenizer.tokenize("é" * 101).ids == [1]


def test_fingerprint_tells_vocabulary_and_case():
    fingerprints = {
        tokenizer_lib.Tokenizer(vocabulary, lowercase=lowercase).fingerprint()
        for vocabulary in (SPECIAL, VOCABULARY)
        for lowercase in (True, False)
    }
    assert len(fingerprints) == 4
    assert tokenizer_lib.Tokenizer(SPECIAL).fingerprint() in fingerprints


def test_reads_a_vocabulary_file(tmp_path):
    # U+2028 separates lines for Python, not in a vocabulary.
    lines = [*SPECIAL, "\u2028", "京"]
    path = _write(tmp_path / "vocab.txt", [*lines, ""])
    assert tokenizer_lib.read_vocabulary(path) == lines
    path = _write(tmp_path / "dos.txt", [f"{line}\r" for line in lines])
    assert tokenizer_lib.read_vocabulary(path) == lines
    tokenizer = tokenizer_lib.Tokenizer.from_file(path, lowercase=False)
    assert tokenizer.tokenize("京").ids == [6]
    assert not tokenizer.lowercase


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"caf\xe9\n", "not UTF-8"),
        (b"[PAD]\n[UNK]\n[CLS]", r"lacks \[MASK\], \[SEP\]"),
        ("\n".join([*SPECIAL, "a", "a"]).encode(), "twice"),
    ],
)
def test_refuses_bad_vocabulary_files(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        tokenizer_lib.read_vocabulary(str(path))


def _random_text(generator):
    """Letters of many scripts and what text is made of besides."""
    pools = (
        string.ascii_letters,
        " ",
        " \t\n\r\u00a0\u2009\u3000\u2028\u0085",
        string.punctuation,
        "„“”‘’«»—–…·¿¡。、！？\u3001\u30fb",
        "京都東大學한국어\u3400\uf900\U00020000\U0002f800ひカ",
        "\u0300\u0301\u0308\u0323\u05b0\u0651\u093c\u3099\u20dd",
        "\x00\x01\x1f\x7f\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd\u00ad",
        "éÉßſİıǄǆﬁﬀŉΣςσΐᾳÅÅ½²ªº①",
        "абвЁйקשابתहिन्दीไทยกำ",
        "🙂👩\u200d👩🏽🇦🇹\U0001f1e6\U000e0101",
        "0123456789٣५",
    )
    pieces = []
    for _ in range(generator.randint(1, 12)):
        pool = generator.choice(pools)
        kind = generator.random()
        if kind < 0.05:
            pieces.append(generator.choice(pool) * generator.randint(90, 120))
        elif kind < 0.15:
            # Any code point, but halves of surrogate pairs.
            number = generator.randrange(0x110000 - 0x800)
            pieces.append(chr(number + 0x800 * (number >= 0xD800)))
        else:
            size = generator.randint(1, 8)
            pieces.append("".join(generator.choices(pool, k=size)))
    return "".join(pieces)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("remembered", [30, 2_000_000])
def test_whole_texts_as_one_by_one(monkeypatch, lowercase, remembered):
    monkeypatch.setattr(tokenizer_lib, "MAX_REMEMBERED_CHARACTERS", remembered)
    letters = sorted({*string.ascii_letters, *"京都éßабישकก한0٣🙂İσ½"})
    tokenizer = tokenizer_lib.Tokenizer(
        [
            *(*SPECIAL, *letters, *string.punctuation, *"„“。…"),
            *(f"##{letter}" for letter in letters),
            *("##ab", "ca", "##\u0301", "\u0301", "i\u0307"),
        ],
        lowercase=lowercase,
    )
    generator = random.Random(lowercase)
    for number in range(2500):
        text = _random_text(generator)
        expected = tokenizer.tokenize(text)
        ids, starts, limits = tokenizer.tokenize_text(text)

        assert ids.tolist() == expected.ids, (number, text)
        assert starts.tolist() == expected.starts, (number, text)
        assert limits.tolist() == expected.limits, (number, text)


def test_a_copy_in_another_process_is_the_same():
    tokenizer = tokenizer_lib.Tokenizer(VOCABULARY, lowercase=False)
    tokenizer.tokenize_text("Caf un!")
    copy = pickle.loads(pickle.dumps(tokenizer))

    assert copy.tokenize("Caf unable").ids == (
        tokenizer.tokenize("Caf unable").ids
    )
    assert copy.fingerprint() == tokenizer.fingerprint()
