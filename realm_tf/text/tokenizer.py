"""BERT's wordpiece tokenizer in Python, with character offsets.

Hugging Face's `tokenizers` does the work and decides what an id is;
`graph_tokenizer` gives the same ids inside a TensorFlow graph.
"""

import array
import dataclasses
import hashlib
import string

import numpy as np
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

PAD = "[PAD]"
UNK = "[UNK]"
CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"

# Longer words become one [UNK]
# (google-research/bert, tokenization.py, max_input_chars_per_word is 200
# there; Hugging Face's BertTokenizerFast, which decides here, has 100).
MAX_CHARACTERS_PER_WORD = 100

# Characters of the different words that `tokenize_text` remembers before it
# starts anew: about 250,000 words of English, 60 MB (our choice).
MAX_REMEMBERED_CHARACTERS = 2_000_000

# What the tokenizer never reads across: a space, ASCII punctuation, a Chinese
# character. A word takes the space before it along, so that words cover a text.
_IS_PUNCTUATION = np.isin(np.arange(256), [*map(ord, string.punctuation)])
_SPACE = ord(" ")
# UTF-8 of U+4E00 to U+9FFF begins with E4 B8 at least, or with E5 to E9.
_CHINESE = 0xE4B8, 0xEA00

# `_Words` has so many places for words of fewer than 16 bytes: 20 MB, four for
# each word that it remembers (our choice).
_SLOT_BITS = 20
_SHORT = 16
# Of the first and of the last eight bytes of a word those that are its own.
_LOW_BYTES, _HIGH_BYTES = (
    np.array(
        [(1 << 8 * min(max(n - skipped, 0), 8)) - 1 for n in range(_SHORT)]
        + [0],
        np.uint64,
    )
    for skipped in (0, 8)
)
# Odd numbers whose bits have no pattern (our choice).
_FACTORS = np.array([0xD1342543DE82EF95, 0xAF251AF3B0F025B5], np.uint64)


@dataclasses.dataclass(frozen=True)
class Wordpieces:
    """A text's wordpieces and where each one stands.

    Args:
        ids: list of int.
        starts: list of int. Code point of the text where each begins.
        limits: list of int. Code point after its last one.
    """

    ids: list[int]
    starts: list[int]
    limits: list[int]

    def __len__(self):
        return len(self.ids)


def read_vocabulary(path: str) -> list[str]:
    """The wordpieces of a `vocab.txt`, one a line, in the order of ids.

    Args:
        path: str. A UTF-8 file, local or remote.

    Returns:
        list of str.

    Raises:
        InputError: if the file is missing, is not text, lacks one of the
            special wordpieces or holds one twice.
    """
    if not Path(path).is_file():
        raise InputError(
            f"Vocabulary {path} does not exist: expected a vocab.txt with "
            "one wordpiece a line."
        )
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Vocabulary {path} is not UTF-8 text.") from error
    # Not splitlines(): a wordpiece may be a Unicode line separator.
    vocabulary = [line.rstrip("\r") for line in text.split("\n")]
    if vocabulary and not vocabulary[-1]:
        vocabulary.pop()
    missing = {PAD, UNK, CLS, SEP, MASK} - set(vocabulary)
    if missing:
        raise InputError(
            f"Vocabulary {path} is not BERT's: it lacks "
            f"{', '.join(sorted(missing))}."
        )
    if len(set(vocabulary)) != len(vocabulary):
        raise InputError(f"Vocabulary {path} holds a wordpiece twice.")
    return vocabulary


class Tokenizer:
    """Text to wordpiece ids, as BERT does it.

    Special wordpieces are never read out of a text: `"[SEP]"` in a question
    is punctuation and a word.

    Args:
        vocabulary: list of str. Wordpieces in the order of their ids.
        lowercase: bool. Lower-case and strip accents, as uncased BERT.
            Defaults to `True`.

    Example:

    >>> vocabulary = [PAD, UNK, CLS, SEP, MASK, "caf", "##e", "!"]
    >>> Tokenizer(vocabulary).tokenize("Café!")
    Wordpieces(ids=[5, 6, 7], starts=[0, 3, 4], limits=[3, 4, 5])
    """

    def __init__(self, vocabulary: list[str], *, lowercase: bool = True):
        self.vocabulary = list(vocabulary)
        self.lowercase = lowercase
        ids = {piece: index for index, piece in enumerate(self.vocabulary)}
        self.pad_id = ids[PAD]
        self.unk_id = ids[UNK]
        self.cls_id = ids[CLS]
        self.sep_id = ids[SEP]
        self.mask_id = ids[MASK]
        self._tokenizer = tokenizers.Tokenizer(
            models.WordPiece(
                ids,
                unk_token=UNK,
                max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
            )
        )
        self._tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=lowercase
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._words = _Words(self._tokenizer, ids, lowercase)

    @classmethod
    def from_file(cls, path: str, *, lowercase: bool = True):
        """A tokenizer from a `vocab.txt`."""
        return cls(read_vocabulary(path), lowercase=lowercase)

    @property
    def vocabulary_size(self) -> int:
        """Number of wordpieces, special ones included."""
        return len(self.vocabulary)

    def fingerprint(self) -> str:
        """Digest of what decides the ids: vocabulary and lower-casing."""
        content = "\n".join([*self.vocabulary, str(self.lowercase)])
        return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]

    def tokenize(self, text: str) -> Wordpieces:
        """The wordpieces of a text, without special ones."""
        return self._wordpieces(
            self._tokenizer.encode(text, add_special_tokens=False)
        )

    def tokenize_batch(self, texts: list[str]) -> list[Wordpieces]:
        """The wordpieces of many texts, faster than one by one."""
        encodings = self._tokenizer.encode_batch(
            texts, add_special_tokens=False
        )
        return [self._wordpieces(encoding) for encoding in encodings]

    def tokenize_text(
        self, text: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The wordpieces of a long text, faster still.

        The same as `tokenize`: every different word is tokenized once and
        then remembered.

        Args:
            text: str.

        Returns:
            ids, starts, limits: int32 arrays `(num_wordpieces,)`, as in
            `Wordpieces`.
        """
        return self._words.tokenize(text)

    def __getstate__(self):
        return {"vocabulary": self.vocabulary, "lowercase": self.lowercase}

    def __setstate__(self, state):
        self.__init__(state["vocabulary"], lowercase=state["lowercase"])

    def _wordpieces(self, encoding) -> Wordpieces:
        return Wordpieces(
            ids=encoding.ids,
            starts=[start for start, _ in encoding.offsets],
            limits=[limit for _, limit in encoding.offsets],
        )


class _Words(dict):
    """Word, in UTF-8, to its number; their wordpieces stand in arrays.

    Before the dict comes a table where NumPy looks up all short words of a text
    at once: a word and its length are two integers, a hash of these says the
    one place where it may be. Of several words with one place the first has it.
    """

    def __init__(self, tokenizer, ids, lowercase):
        super().__init__()
        self._tokenizer = tokenizer
        self._model = tokenizer.model
        self._ids = ids
        self._lowercase = lowercase
        self._forget()

    def __missing__(self, word):
        first = len(self._pieces) // 3
        length = len(word)
        skipped = word.startswith(b" ")
        bare = word[skipped:]
        if bare.isalnum():
            # ASCII: nothing to normalise or to split but for the model.
            bare = bare.decode("utf-8")
            id_ = self._ids.get(bare)
            if id_ is not None and len(bare) <= MAX_CHARACTERS_PER_WORD:
                self._pieces.extend((id_, skipped, length))
            else:
                pieces = []
                start = skipped
                for token in self._model.tokenize(bare):
                    limit = token.offsets[1] + skipped
                    pieces += token.id, start, limit
                    start = limit
                self._pieces.extend(pieces)
        else:
            text = word.decode("utf-8")
            length = len(text)
            found = self._tokenizer.encode(text, add_special_tokens=False)
            for id_, offsets in zip(found.ids, found.offsets, strict=True):
                self._pieces.extend((id_, *offsets))
        count = len(self._pieces) // 3 - first
        self._words.extend((length, count, first))
        self._num_characters += length
        number = self[word] = len(self)
        return number

    def tokenize(self, text):
        if self._num_characters > MAX_REMEMBERED_CHARACTERS:
            self._forget()
        content = text.encode("utf-8")
        # Fewer words: ASCII here, all else when a word is learned.
        numbers = self._look_up(content.lower() if self._lowercase else content)
        lengths, counts, firsts = _rows(self._words, numbers)
        word_starts = np.cumsum(lengths) - lengths
        # Where the pieces of each word begin, less where they go.
        shifts = firsts - (np.cumsum(counts) - counts)
        places = np.repeat(shifts, counts)
        places += np.arange(len(places))
        ids, starts, limits = _rows(self._pieces, places)
        offsets = np.repeat(word_starts, counts).astype(np.int32)
        return ids, starts + offsets, limits + offsets

    def _look_up(self, content):
        """The numbers of the words of a text; new ones are learned."""
        starts = _word_starts(content)
        lengths = np.diff(starts, append=len(content))
        sizes = np.minimum(lengths, _SHORT)
        # The eight bytes from each byte on.
        eights = np.ndarray(
            (len(content) + 9,), "<u8", content + bytes(16), strides=(1,)
        )
        low = eights[starts] & _LOW_BYTES[sizes]
        high = eights[np.minimum(starts + 8, len(content))]
        high &= _HIGH_BYTES[sizes]
        high |= sizes.astype(np.uint64) << np.uint64(56)
        slots = (low ^ high * _FACTORS[0]) * _FACTORS[1]
        slots = (slots >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
        numbers = self._numbers[slots]
        is_known = self._low[slots] == low
        is_known &= self._high[slots] == high
        is_known &= sizes < _SHORT
        others = np.flatnonzero(~is_known)
        if not len(others):
            return numbers
        limits = (starts[others] + lengths[others]).tolist()
        words = map(slice, starts[others].tolist(), limits)
        numbers[others] = [self[content[word]] for word in words]
        is_free = self._high[slots[others]] == 0
        free = others[is_free & (sizes[others] < _SHORT)]
        self._low[slots[free]] = low[free]
        self._high[slots[free]] = high[free]
        self._numbers[slots[free]] = numbers[free]
        return numbers

    def _forget(self):
        self.clear()
        self._num_characters = 0
        # Length, number of wordpieces and place of the first of these.
        self._words = array.array("i")
        # Id, start and limit.
        self._pieces = array.array("i")
        # The short words and their numbers.
        self._low, self._high, self._numbers = (
            np.zeros(1 << _SLOT_BITS, dtype)
            for dtype in (np.uint64, np.uint64, np.int32)
        )


def _rows(table, numbers):
    """The columns of some rows of a table of three."""
    table = np.frombuffer(table, np.int32).reshape(-1, 3)
    return np.ascontiguousarray(np.take(table, numbers, axis=0).T)


def _word_starts(content):
    """The first byte of each word of a text in UTF-8."""
    octets = np.frombuffer(content, np.uint8)
    is_space = octets == _SPACE
    is_single = _IS_PUNCTUATION[octets]
    begins = is_single.copy()
    begins[1:] |= is_single[:-1]
    if len(octets) and octets.max() >= _CHINESE[0] >> 8:
        pairs = np.append(octets[:-1].astype(np.uint16) << 8 | octets[1:], 0)
        is_chinese = (pairs >= _CHINESE[0]) & (pairs < _CHINESE[1])
        begins |= is_chinese
        begins[3:] |= is_chinese[:-3]
    begins[1:] &= ~is_space[:-1]
    begins |= is_space
    begins[:1] = True
    return np.flatnonzero(begins)


def to_text(wordpieces: list[str]) -> str:
    """Wordpieces as text.

    Example:

    >>> to_text(["et", "##na", "."])
    'etna.'
    """
    return decoders.WordPiece().decode(list(wordpieces))
