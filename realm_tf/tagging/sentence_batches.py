"""Sentences as a tagger's input: wordpieces, their shapes, rows, batches."""

import dataclasses

import numpy as np

from realm_tf.text.packing import pad
from realm_tf.text.tokenizer import Tokenizer

# How letters were written, which a lower-casing vocabulary forgets. Our
# choice; the numbers are rows of the shape table. "none" is for padding and
# special wordpieces.
SHAPES = (
    "none",
    "lower",
    "capitalized",
    "capital",
    "upper",
    "mixed",
    "digits",
    "caseless",
    "symbol",
)
_SHAPE_IDS = {name: index for index, name in enumerate(SHAPES)}

# Wordpieces of a batch for each sentence of its nominal size; CoNLL-2003 and
# Wikipedia have sentences of about 22 and 32.
WORDPIECES_PER_SENTENCE = 32

# Rows are padded to these multiples: short rows waste little, and a backend
# that compiles for each shape compiles few.
_SHORT_STEP = 4
_LONG_STEP = 32
_SHORT_LENGTH = 64

# [CLS] and [SEP].
_NUM_SPECIAL = 2


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a batch: a sentence, or a window of a long one.

    Args:
        sentence: int. Which sentence of those encoded together.
        token_ids: int array `(length,)`, without special wordpieces.
        shape_ids: int array `(length,)`. Rows of `SHAPES`.
        words: int array `(num_words,)`. The words that this row decides.
        positions: int array `(num_words,)`. Where the first wordpiece of
            each is in the row; [CLS] is position 0.
    """

    sentence: int
    token_ids: np.ndarray
    shape_ids: np.ndarray
    words: np.ndarray
    positions: np.ndarray


def word_shape(text: str) -> str:
    """How a word is written, one of `SHAPES`.

    Example:

    >>> [word_shape(w) for w in ("of", "Nile", "J", "NATO", "iPod", "1869")]
    ['lower', 'capitalized', 'capital', 'upper', 'mixed', 'digits']
    """
    if text.islower():
        return "lower"
    if text.isupper():
        letters = sum(map(str.isalpha, text))
        return "capital" if letters == 1 else "upper"
    if text.istitle() or (text[:1].isupper() and text[1:].islower()):
        return "capitalized"
    if any(map(str.isalpha, text)):
        return "mixed" if text.lower() != text.upper() else "caseless"
    return "digits" if any(map(str.isdigit, text)) else "symbol"


class SentenceEncoder:
    """Sentences with their words to rows, and these to batches.

    Each word that has a wordpiece of its own is decided in exactly one row.
    A sentence longer than `max_length` becomes several rows; nothing is cut
    off. A shape belongs to a whole word of BERT's (between spaces and
    punctuation) and is given to all its wordpieces.

    Args:
        tokenizer: `Tokenizer`.
        max_length: int. Most wordpieces of a row, [CLS] and [SEP] included.
            At least 8.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int):
        self._tokenizer = tokenizer
        self.max_length = max_length
        self._continues = np.array(
            [piece.startswith("##") for piece in tokenizer.vocabulary]
        )

    def encode_words(self, sentences: list[tuple[str, ...]]) -> list[Row]:
        """Rows of sentences that are given as words."""
        texts, starts = [], []
        for words in sentences:
            lengths = np.array([len(word) + 1 for word in words])
            texts.append(" ".join(words))
            starts.append(np.cumsum(lengths) - lengths)
        return self.encode(texts, starts)

    def encode(self, texts: list[str], word_starts: list) -> list[Row]:
        """Rows of sentences.

        Args:
            texts: list of str. One sentence each.
            word_starts: list of lists of int. Code point where each word of
                each sentence begins, ascending.

        Returns:
            list of `Row`, by sentence. A sentence without a wordpiece has
            none.
        """
        rows = []
        encoded = self._tokenizer.tokenize_batch(texts)
        for number, (text, starts, pieces) in enumerate(
            zip(texts, word_starts, encoded, strict=True)
        ):
            if len(pieces):
                rows.extend(self._sentence(number, text, starts, pieces))
        return rows

    def _sentence(self, number, text, word_starts, pieces):
        token_ids = np.array(pieces.ids, dtype="int32")
        shape_ids = self._shapes(text, pieces, token_ids)
        # A word has the wordpieces that begin in it; one whose characters
        # BERT drops, or joins to the word before, has none.
        words = (
            np.searchsorted(word_starts, np.array(pieces.starts), "right") - 1
        )
        words, positions = np.unique(words, return_index=True)
        inside = words >= 0
        words, positions = words[inside], positions[inside]
        budget = self.max_length - _NUM_SPECIAL
        for start in range(0, len(token_ids), budget):
            limit = start + budget
            decided = (start <= positions) & (positions < limit)
            yield Row(
                number,
                token_ids[start:limit],
                shape_ids[start:limit],
                words[decided],
                # [CLS] comes before.
                positions[decided] - start + 1,
            )

    def _shapes(self, text, pieces, token_ids):
        shapes = np.empty(len(token_ids), dtype="int32")
        firsts = np.flatnonzero(~self._continues[token_ids])
        # A symbol that is no punctuation may begin a word that goes on.
        firsts = firsts if len(firsts) and firsts[0] == 0 else [0, *firsts]
        for first, after in zip(
            firsts, [*firsts[1:], len(shapes)], strict=True
        ):
            word = text[pieces.starts[first] : pieces.limits[after - 1]]
            shapes[first:after] = _SHAPE_IDS[word_shape(word)]
        return shapes

    def padded_length(self, row: Row) -> int:
        """Length of a row with special wordpieces and padding."""
        length = len(row.token_ids) + _NUM_SPECIAL
        step = _SHORT_STEP if length <= _SHORT_LENGTH else _LONG_STEP
        return min(-(-length // step) * step, max(self.max_length, length))

    def batches(self, rows: list[Row], batch_size: int) -> list[np.ndarray]:
        """Rows of like length together, so that little padding is computed.

        Args:
            rows: list of `Row`.
            batch_size: int. Sentences of `WORDPIECES_PER_SENTENCE` wordpieces;
                of shorter ones a batch holds more, of longer ones fewer, so
                that all batches cost about the same.

        Returns:
            list of int arrays: the rows of each batch, shorter ones first.
        """
        lengths = [self.padded_length(row) for row in rows]
        budget = batch_size * WORDPIECES_PER_SENTENCE
        batches, batch = [], []
        for index in np.argsort(lengths, kind="stable"):
            if batch and (len(batch) + 1) * lengths[index] > budget:
                batches.append(np.array(batch))
                batch = []
            batch.append(index)
        return [*batches, np.array(batch)] if batch else batches

    def stack(self, rows: list[Row]) -> dict:
        """Rows as one batch.

        Args:
            rows: list of `Row`.

        Returns:
            A dict of int32 arrays `(num_rows, length)`: `token_ids`,
            `shape_ids`, `padding_mask`.
        """
        length = max(self.padded_length(row) for row in rows)
        token_ids = [
            [self._tokenizer.cls_id, *row.token_ids, self._tokenizer.sep_id]
            for row in rows
        ]
        shape_ids = [[0, *row.shape_ids] for row in rows]
        return {
            "token_ids": pad(token_ids, length, self._tokenizer.pad_id),
            "shape_ids": pad(shape_ids, length),
            "padding_mask": pad([[1] * len(ids) for ids in token_ids], length),
        }
