"""BERT's wordpiece tokenizer inside a TensorFlow graph.

The ids equal those of `tokenizer.Tokenizer`, which decides: its character
classes are asked of it rather than taken from RE2, whose Unicode is newer.
TensorFlow's Unicode tables decide decompositions and lower cases. They differ
from the Python tokenizer's for some characters since Unicode 10, which BERT's
vocabularies do not hold, and lack two capitals of Unicode 16.
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
        if not self.lowercase:
            strings = tf_text.normalize_utf8(strings, "NFC")
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
        strings = tf_text.normalize_utf8(strings, "NFD")
        strings = _replace(strings, _character_classes()["mark"], "")
        # ICU would make a final sigma of the one and, where the locale is
        # Turkish, a dotless i of the other.
        strings = _replace(strings, "Σ", "σ")
        strings = tf.strings.lower(strings)
        return tf.strings.lower(strings, encoding="utf-8")


def _replace(strings, pattern, rewrite):
    return tf.strings.regex_replace(strings, pattern, rewrite)


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
