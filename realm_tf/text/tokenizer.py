"""BERT's wordpiece tokenizer in Python, with character offsets.

Hugging Face's `tokenizers` does the work and decides what an id is;
`graph_tokenizer` gives the same ids inside a TensorFlow graph.
"""

import array
import dataclasses
import hashlib
import re
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
# What MPNet's vocabulary has before and after BERT's.
MPNET_FIRST, MPNET_LAST = ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]
# Those above, and such as [unused1].
_SPECIAL = re.compile(r"\[.+\]$")

# Longer words become one [UNK]
# (google-research/bert, tokenization.py, max_input_chars_per_word is 200
# there; Hugging Face's BertTokenizerFast, which decides here, has 100).
MAX_CHARACTERS_PER_WORD = 100

# Characters of the different words that `tokenize_text` remembers: about
# 250,000 words of English (our choice).
MAX_REMEMBERED_CHARACTERS = 2_000_000

# The tokenizer never reads across a space, ASCII punctuation or a Chinese
# character. A word includes the space before it, so that words cover a text.
_SINGLE = f"{re.escape(string.punctuation)}\u4e00-\u9fff"
_WORD = re.compile(f" ?(?:[^ {_SINGLE}]+|[{_SINGLE}])| ")


@dataclasses.dataclass(frozen=True)
class Wordpieces:
    """A text's wordpieces and their places.

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
    lines = text.removesuffix("\n").split("\n")
    vocabulary = bert_wordpieces([line.rstrip("\r") for line in lines])
    missing = {PAD, UNK, CLS, SEP, MASK} - set(vocabulary)
    if missing:
        raise InputError(
            f"Vocabulary {path} is not BERT's: it lacks "
            f"{', '.join(sorted(missing))}."
        )
    if len(set(vocabulary)) != len(vocabulary):
        raise InputError(f"Vocabulary {path} holds a wordpiece twice.")
    return vocabulary


def bert_wordpieces(vocabulary: list[str]) -> list[str]:
    """BERT's vocabulary, out of MPNet's.

    MPNet's is BERT's between four special wordpieces and one more. Here BERT's
    take their place: a text has the same ids for both, and
    `checkpoints.hugging_face` sorts the weights by them.

    Args:
        vocabulary: list of str. MPNet's, or another, which is returned.
    """
    is_mpnets = (vocabulary[:4], vocabulary[-1:]) == (MPNET_FIRST, MPNET_LAST)
    return vocabulary[4:-1] if is_mpnets else vocabulary


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
        # The form in which a vocabulary with accents has its letters.
        self._tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC()] * (not lowercase)
            + [normalizers.BertNormalizer(lowercase=lowercase)]
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._words = _Words(self._tokenizer)

    @classmethod
    def from_file(cls, path: str, *, lowercase: bool | None = None):
        """A tokenizer from a `vocab.txt`.

        Args:
            path: str.
            lowercase: bool. Defaults to `None`: unless a wordpiece has a
                capital letter, which an uncased BERT could never read.
        """
        vocabulary = read_vocabulary(path)
        if lowercase is None:
            words = (each for each in vocabulary if not _SPECIAL.match(each))
            lowercase = all(each == each.lower() for each in words)
        return cls(vocabulary, lowercase=lowercase)

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
        """The wordpieces of a long text, faster than `tokenize` gives them.

        Tokenizes every different word once and remembers it.

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


class _Words:
    """The wordpieces of different words, in arrays."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._forget()

    def tokenize(self, text):
        if self._num_characters > MAX_REMEMBERED_CHARACTERS:
            self._forget()
        words = _WORD.findall(text)
        for word in set(words).difference(self._numbers):
            self._learn(word)
        numbers = list(map(self._numbers.__getitem__, words))
        lengths, counts, firsts = _rows(self._words, numbers)
        word_starts = np.cumsum(lengths) - lengths
        # Where the pieces of each word begin, less where they go.
        shifts = firsts - (np.cumsum(counts) - counts)
        places = np.repeat(shifts, counts)
        places += np.arange(len(places))
        ids, starts, limits = _rows(self._pieces, places)
        offsets = np.repeat(word_starts, counts).astype(np.int32)
        return ids, starts + offsets, limits + offsets

    def _learn(self, word):
        found = self._tokenizer.encode(word, add_special_tokens=False)
        self._words.extend((len(word), len(found), len(self._pieces) // 3))
        for id_, offsets in zip(found.ids, found.offsets, strict=True):
            self._pieces.extend((id_, *offsets))
        self._numbers[word] = len(self._numbers)
        self._num_characters += len(word)

    def _forget(self):
        self._numbers = {}
        self._num_characters = 0
        # Length, number of wordpieces and place of the first of these.
        self._words = array.array("i")
        # Id, start and limit.
        self._pieces = array.array("i")


def _rows(table, numbers):
    """The columns of some rows of a table of three."""
    table = np.frombuffer(table, np.int32).reshape(-1, 3)
    numbers = np.asarray(numbers, np.intp)
    return np.ascontiguousarray(np.take(table, numbers, axis=0).T)


def to_text(wordpieces: list[str]) -> str:
    """Wordpieces as text.

    Example:

    >>> to_text(["et", "##na", "."])
    'etna.'
    """
    return decoders.WordPiece().decode(list(wordpieces))
