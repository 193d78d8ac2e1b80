"""The graph tokenizer gives the ids of the Python one, whatever the text."""

import random
import unicodedata

import pytest
import tensorflow as tf

from realm_tf.text.graph_tokenizer import GraphTokenizer
from realm_tf.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FIRST_EMPTY_PLANE = 0x40000

# Capitals of Unicode 16 whose small letters are older: TensorFlow's tables lack
# them.
YOUNG = {0xA7CB, 0xA7DC}
# Every character that something may happen to, and a sample of the others.
CHARACTERS = [
    chr(code)
    for code in range(1, 0x110000)
    if not (0xD800 <= code < 0xE000 or code in YOUNG)
    and (code < 0x20000 or 0x2F800 <= code < 0x2FA20 or code % 97 == 0)
]
# Vocabularies hold no character that is younger than Unicode 9; these are of 3.2
# and some that cases name.
KNOWN = [
    character
    for character in CHARACTERS
    if unicodedata.ucd_3_2_0.category(character) != "Cn"
    or character in "👨👩👧👍🏽"
]

# Text; its wordpieces lower-cased; its wordpieces with lowercase=False.
CASES = [
    ("", "", ""),
    (" \t\r\n\u3000\u00a0", "", ""),
    ("aB", "a ##b", "a ##B"),
    ("éÉ", "e ##e", "é ##É"),
    ("e\u0301\u0323x", "e ##x", "\u1eb9 ##\u0301 ##x"),
    ("a京b都", "a 京 b 都", "a 京 b 都"),
    ("가", "ᄀ ##ᅡ", "가"),
    ("ガ", "カ", "ガ"),
    ("مَا", "م ##ا", "م ##َ ##ا"),
    ("कुत्ता", "क ##त ##त ##ा", "क ##ु ##त ##् ##त ##ा"),
    ("👨\u200d👩\u200d👧", "👨 ##👩 ##👧", "👨 ##👩 ##👧"),
    ("👍🏽", "👍 ##🏽", "👍 ##🏽"),
    ("a\x00\x07\x0bb\x7f\x85c", "a ##b ##c", "a ##b ##c"),
    ("a\ufffdb\u200bc\ue000d", "a ##b ##c ##d", "a ##b ##c ##d"),
    ("a\u2028b\u2003c\u1680d", "a b c d", "a b c d"),
    ("ＡＢ，", "ａ ##ｂ ，", "Ａ ##Ｂ ，"),
    ("ﬁß", "ﬁ ##ß", "ﬁ ##ß"),
    ("Iİ", "i ##i", "I ##İ"),
    ("ΟΣ", "ο ##σ", "Ο ##Σ"),
    ("ος", "ο ##ς", "ο ##ς"),
    ("ǅa", "ǆ ##a", "ǅ ##a"),
    ("don't...", "d ##o ##n ' t . . .", "d ##o ##n ' t . . ."),
    ("$5+`~", "$ 5 + ` ~", "$ 5 + ` ~"),
    ("[SEP]", "[ s ##e ##p ]", "[ S ##E ##P ]"),
    ("ab\U0004fffe c", "[UNK] c", "[UNK] c"),
    # Younger than the vocabulary, and partly than the tables of ICU.
    ("\u1c89 b", "[UNK] b", "[UNK] b"),
    ("a\u0898\u0899 b", "[UNK] b", "[UNK] b"),
]


@pytest.fixture(scope="module")
def vocabulary():
    return [*SPECIAL, *KNOWN, *(f"##{character}" for character in KNOWN)]


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def pair(request, vocabulary):
    """The same tokenizer twice: in Python and in the graph."""
    return (
        Tokenizer(vocabulary, lowercase=request.param),
        GraphTokenizer(vocabulary, lowercase=request.param),
    )


def _assert_same(pair, texts):
    python, graph = pair
    expected = [wordpieces.ids for wordpieces in python.tokenize_batch(texts)]
    got = graph(tf.constant([text.encode("utf-8") for text in texts]))
    assert got.dtype == tf.int32
    for text, ids, found in zip(texts, expected, got.to_list(), strict=True):
        # pytest would compare long lists for minutes.
        if found != ids:
            pytest.fail(f"{ascii(text)}: {found}, expected {ids}"[:500])


def _sweep(pattern, first, last):
    characters = [
        chr(code)
        for code in range(first, last)
        if not (0xD800 <= code < 0xE000 or code in YOUNG)
    ]
    return [
        " ".join(pattern.format(c) for c in characters[start : start + 64])
        for start in range(0, len(characters), 64)
    ]


def test_wordpieces(pair, vocabulary):
    python, graph = pair
    got = graph(tf.constant([text for text, _, _ in CASES]))
    for (text, lowered, cased), ids in zip(CASES, got.to_list(), strict=True):
        expected = (lowered if python.lowercase else cased).split(" ")
        assert [vocabulary[i] for i in ids] == [e for e in expected if e], text
        assert python.tokenize(text).ids == ids
    assert graph(tf.constant([], tf.string)).to_list() == []


def test_every_code_point_in_a_word(pair):
    _assert_same(pair, _sweep("a{0}b", 0, FIRST_EMPTY_PLANE))


def test_every_code_point_of_the_empty_and_private_planes():
    # Alone, which is faster: they are either dropped or unknown.
    pair = Tokenizer(SPECIAL), GraphTokenizer(SPECIAL)
    _assert_same(pair, _sweep("{0}", FIRST_EMPTY_PLANE, 0x110000))


def test_mixed_strings(pair):
    pick = random.Random(7)
    marks = [c for c in CHARACTERS if unicodedata.category(c)[0] == "M"]
    pools = [
        marks,
        # Marks that Hugging Face keeps or knows nothing of: their order.
        "\u08d4\u1baa\u302e\u1dfb\u0898\u0899\u1df9\ua82c\U0001e000\u034f",
        "\t\n\r \x00\x0b\x1f\x7f\x85\xa0\xad\u200b\u200d\ufeff\ufffd\ue000",
        "京\u3400\uf900\U0002b820\U0002b920\U0002f800가각カガ\u3099각",
        "AIİıΣςσßẞǅǄﬁＡKΩιÅĮ\u0307\u0345J",
        "aA,.[]#$~0",
        CHARACTERS[:0x3000],
        CHARACTERS,
    ]
    texts = [
        "".join(
            pick.choice(pick.choice(chosen)) for _ in range(pick.choice(sizes))
        )
        for sizes in [(0, 1, 3), (8, 20, 60)]
        for chosen in (pick.sample(pools, 3) for _ in range(4000))
    ]
    _assert_same(pair, texts)


def test_long_words(pair):
    texts = [
        before + c * (length - 1) + after
        for length in (99, 100, 101, 400, 401, 10000)
        for c in "aéжก京가😀𐐀\u0301\u0898"
        for before, after in (
            ("a ", f"{c}, b"),
            ("", "\u0301"),
            ("", "\u200db"),
        )
    ]
    _assert_same(pair, texts)


def test_invalid_utf8_counts_as_replacement_characters(pair):
    python, graph = pair
    pick = random.Random(11)
    texts = [b"a\xffb", b"a\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80a"]
    texts += [b"\xc0\x80", b"\x80 caf\xe9", "é京".encode()]
    for _ in range(2000):
        text = bytearray("aé, 京 e\u0301 😀 Σ\u0898".encode())
        for _ in range(pick.randint(1, 4)):
            text[pick.randrange(len(text))] = pick.randrange(256)
        texts.append(bytes(text))
    readable = [text.decode("utf-8", "replace") for text in texts]
    expected = [w.ids for w in python.tokenize_batch(readable)]
    assert graph(tf.constant(texts)).to_list() == expected
