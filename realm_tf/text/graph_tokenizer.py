"""BERT's wordpiece tokenizer inside a TensorFlow graph.

The ids equal those of `tokenizer.Tokenizer`, whatever the text. That one
decides, so its character classes are asked of it rather than taken from RE2,
whose Unicode is newer; TensorFlow's own Unicode tables decide nothing but
the decompositions and lower cases on which both agree.
"""

import functools
import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text
from tokenizers import normalizers
from tokenizers import pre_tokenizers

from realm_tf.text.tokenizer import MAX_CHARACTERS_PER_WORD
from realm_tf.text.tokenizer import UNK

_MAX_BYTES_PER_WORD = 4 * MAX_CHARACTERS_PER_WORD

# Chinese characters of Hugging Face: BERT's ranges, of which its code has
# 2B920 where BERT (google-research/bert, tokenization.py) has 2B820.
_CHINESE = [
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
]

# BERT drops them.
_PRIVATE_USE = [(0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]

# Where ICU and Hugging Face (tokenizers 0.23) differ: the combining marks
# and composites since Unicode 10, which Hugging Face neither reorders nor
# decomposes while tensorflow_text 2.20 does, and the capitals since Unicode
# 14, which TensorFlow 2.20 does not lower. Found by comparing all code
# points; a few others between them are in the ranges because that is shorter
# and harmless. The tests compare all code points again.
_DIFFERENT = """
    7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1C89 1DF6-1DFA
    2C2F A7C0 A7CB-A7DC A82C 10570-10595 105C9 105E4 10D24-10D27 10D50-10D6D
    10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11383-11385
    1138E-11391 113C5-113D0 1145E 11839-1183A 11938-11943 119E0 11A34 11A47
    11A99 11D42-11D45 11D97 11F41-11F42 16121-1612F 16D68-16D6A 16EA0-16EB8
    16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF
"""

# Stand for the characters of _DIFFERENT while ICU is at work: no text still
# has private use characters then, and ICU leaves them alone.
_FIRST_STAND_IN = 0xE000


class GraphTokenizer(tf.Module):
    """Strings to wordpiece ids, with TensorFlow's ops only.

    Works eagerly, in a `tf.data` pipeline and in an exported SavedModel,
    where it needs nothing but the ops of TensorFlow and tensorflow_text.
    Special wordpieces are neither added nor read out of a text. Bytes that
    are not UTF-8 count as U+FFFD, which BERT drops.

    Calling it takes a string tensor `(batch_size,)` and returns a
    `tf.RaggedTensor` of int32 `(batch_size, None)`.

    Args:
        vocabulary: list of str. Wordpieces in the order of their ids.
        lowercase: bool. Lower-case and strip accents, as uncased BERT.
            Defaults to `True`.

    Example:

    >>> vocabulary = ["[UNK]", "caf", "##e", "!"]
    >>> GraphTokenizer(vocabulary)(tf.constant(["Café!", ""])).to_list()
    [[1, 2, 3], []]
    """

    def __init__(self, vocabulary: list[str], *, lowercase: bool = True):
        super().__init__()
        self.lowercase = lowercase
        # On a GPU's machine every call would fetch the tables from the GPU.
        with tf.device("CPU:0"):
            self._wordpiece = tf_text.FastWordpieceTokenizer(
                list(vocabulary),
                max_bytes_per_word=_MAX_BYTES_PER_WORD,
                token_out_type=tf.int32,
                unknown_token=UNK,
                no_pretokenization=True,
            )

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
    def __call__(self, strings):
        with tf.device("CPU:0"):
            words = tf.strings.split(self._separate(strings))
            # (batch_size, num_words, num_wordpieces)
            wordpieces = self._wordpiece.tokenize(words)
            return wordpieces.merge_dims(1, 2)

    def _separate(self, strings):
        """Normalised text with one space or more between any two words."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
        strings = _replace(strings, _character_classes()["dropped"], "")
        strings = _replace(strings, _character_classes()["space"], " ")
        if self.lowercase:
            strings = self._lower_without_accents(strings)
        strings = _replace(strings, _character_classes()["word"], r" \0 ")
        # A word of more bytes than the wordpiece op takes becomes [UNK].
        return _replace(
            strings,
            f"[^ ]{{{MAX_CHARACTERS_PER_WORD + 1},}}",
            "x" * (_MAX_BYTES_PER_WORD + 1),
        )

    def _lower_without_accents(self, strings):
        different = _different()
        some_differ = tf.reduce_any(
            tf.strings.regex_full_match(
                strings, f"(?s).*{_regex_class(different)}.*"
            )
        )
        stand_ins = [_FIRST_STAND_IN + rank for rank in range(len(different))]
        lower = normalizers.BertNormalizer(lowercase=True).normalize_str
        lowered = [ord(lower(chr(code))) for code in different]

        def by_stand_ins():
            hidden = _translate(strings, different, stand_ins)
            return _translate(self._by_icu(hidden), stand_ins, lowered)

        return tf.cond(some_differ, by_stand_ins, lambda: self._by_icu(strings))

    def _by_icu(self, strings):
        strings = tf_text.normalize_utf8(strings, "NFD")
        strings = _replace(strings, _character_classes()["mark"], "")
        # ICU would make a final sigma of the one and, where the locale is
        # Turkish, a dotless i of the other.
        strings = _replace(strings, "Σ", "σ")
        strings = tf.strings.lower(strings)
        return tf.strings.lower(strings, encoding="utf-8")


def _replace(strings, pattern, rewrite):
    return tf.strings.regex_replace(strings, pattern, rewrite)


def _translate(strings, source, target):
    """Replaces the code points of a sorted list by those of another."""
    codes = tf.strings.unicode_decode(strings, "UTF-8")
    places = tf.searchsorted(source, codes.flat_values)
    rank = tf.minimum(places, len(source) - 1)
    found = tf.where(
        tf.gather(source, rank) == codes.flat_values,
        tf.gather(target, rank),
        codes.flat_values,
    )
    return tf.strings.unicode_encode(codes.with_flat_values(found), "UTF-8")


@functools.cache
def _different() -> list[int]:
    """The code points of `_DIFFERENT`, in order."""
    codes = []
    for item in _DIFFERENT.split():
        first, _, last = item.partition("-")
        codes.extend(range(int(first, 16), int(last or first, 16) + 1))
    return codes


@functools.cache
def _character_classes() -> dict[str, str]:
    """Hugging Face's treatment of characters, as regular expressions.

    Returns:
        dict of str. "dropped" and "space": characters that its cleaning drops
        or turns into a space. "mark": accents. "word": punctuation and
        Chinese characters, each a word by itself.
    """
    clean = normalizers.BertNormalizer(lowercase=False).normalize_str
    strip = normalizers.BertNormalizer(lowercase=True).normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    dropped, space, mark, word = [], [], [], []
    # Hugging Face's categories are those of an older Unicode than Python's:
    # it does nothing of this to letters, digits or what Python leaves
    # unassigned. Private use and Chinese characters are too many to ask for.
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category[0] in "LN" or category in ("Cn", "Co", "Cs"):
            continue
        cleaned = clean(character)
        if not cleaned:
            dropped.append(code)
        elif cleaned == " ":
            space.append(code)
        else:
            if not strip(character):
                mark.append(code)
            if len(split(f"a{character}a")) == 3:
                word.append(code)
    return {
        "dropped": _regex_class(dropped, _PRIVATE_USE),
        "space": _regex_class(space),
        "mark": _regex_class(mark),
        "word": _regex_class(word, _CHINESE),
    }


def _regex_class(codes: list[int], ranges=()) -> str:
    """A regular expression for one of some code points."""
    ranges = list(ranges)
    first = previous = codes[0]
    for code in [*codes[1:], None]:
        if code != previous + 1:
            ranges.append((first, previous))
            first = code
        previous = code
    items = "".join(rf"\x{{{a:X}}}-\x{{{b:X}}}" for a, b in ranges)
    return f"[{items}]"
