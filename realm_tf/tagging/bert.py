"""The BERT tagger of blocks: names by the token classifier, dates by rule."""

import re
import unicodedata

from realm_tf.artifacts.schema import Block
from realm_tf.models.precision import computing_in
from realm_tf.tagging import conll
from realm_tf.tagging import dates
from realm_tf.tagging import tagger_directory
from realm_tf.tagging import taggers

DATE = "DATE"

# Abbreviations that keep their full stop, as in CoNLL-2003.
_ABBREVIATIONS = (
    "Adm|Bros|Capt|Co|Col|Corp|Dr|Drs|Fr|Ft|Gen|Gov|Inc|Jr|Lt|Ltd|Maj|Messrs|"
    "Mr|Mrs|Ms|Mt|No|Prof|Rep|Rev|Sen|Sgt|Sr|St|Ste|vs"
)
_CLITIC = "['’](?:s|S|d|m|ll|re|ve)\\b"


def _character():
    """A word's character: Python's own \\w leaves combining marks out."""
    marks = "".join(
        chr(code)
        for code in range(0x300, 0x20000)
        if unicodedata.category(chr(code)).startswith("M")
    )
    return f"[\\w{marks}]"


_C = _character()
# Tried in this order. What stands inside a word of CoNLL-2003 stands inside
# ours: hyphens ("all-rounder"), dots ("U.S."), apostrophes ("O'Brien"),
# the point of a number; a possessive is a word of its own.
_WORDS = re.compile(
    rf"\b(?:[^\W\d_]\.){{2,}}"
    rf"|\b(?:[A-Z]|{_ABBREVIATIONS})\.(?=\s)"
    rf"|{_CLITIC}"
    rf"|\d+(?:[.,:/]\d+)+(?!{_C})"
    rf"|{_C}+(?:(?!{_CLITIC})[-.&/'’·]{_C}+)*"
    rf"|[^\w\s]"
)


def find_words(sentence: str) -> list[tuple[int, int]]:
    """A sentence's words, cut as CoNLL-2003 cuts them.

    Args:
        sentence: str.

    Returns:
        list of `(start, limit)`, code points, the limit exclusive.

    Example:

    >>> text = "Mr. O'Brien's U.S. all-rounder, 3.5!"
    >>> [text[start:limit] for start, limit in find_words(text)]
    ['Mr.', "O'Brien", "'s", 'U.S.', 'all-rounder', ',', '3.5', '!']
    """
    return [match.span() for match in _WORDS.finditer(sentence)]


class BertTagger:
    """Names by a trained tagger, and dates by the forms of their language.

    A date that overlaps a name is left out.

    Args:
        directory: str. Written by `realm train-tagger`.
        batch_size: int. Sentences of a batch, of 32 wordpieces each; of
            shorter ones there are more. Defaults to `32`.
        precision: str. See `models.precision.computing_in`. Defaults to
            `"float32"`.
        language: str. Of the dates; see `dates.date_finder`. Defaults to
            English.

    Raises:
        InputError: if the directory is no complete tagger directory.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.4: "a
        BERT-based tagger trained on CoNLL-2003 data to identify named
        entities, and a regular expression to identify dates".
    """

    def __init__(
        self,
        directory: str,
        batch_size: int = 32,
        precision: str = "float32",
        language: str = dates.ENGLISH,
    ):
        self._find_dates = dates.date_finder(language)
        with computing_in(precision):
            self._tagger = tagger_directory.load(directory)
        self._encoder = self._tagger.sentence_encoder()
        self._batch_size = batch_size

    def tag(self, blocks: list[Block]) -> list[list[tuple[int, int, str]]]:
        """The salient spans of blocks.

        All sentences of the blocks are sorted by length and read in batches:
        many blocks at once cost less than one by one.

        Args:
            blocks: list of `Block`.

        Returns:
            list of lists of `(start, limit, label)`, one list a block: code
            points of `block.text`, the limit exclusive, by start. Spans do
            not overlap and lie each inside one sentence.
        """
        return taggers.tag_sentences(blocks, self._find)

    def _find(self, sentences):
        """The spans of each sentence."""
        words = [find_words(sentence) for sentence in sentences]
        rows = self._encoder.encode(
            sentences, [[start for start, _ in found] for found in words]
        )
        tags = self._tagger.predict_tags(
            rows, [len(found) for found in words], batch_size=self._batch_size
        )
        for sentence, found, of_words in zip(
            sentences, words, tags, strict=True
        ):
            names = [
                (found[start][0], found[limit - 1][1], kind)
                for start, limit, kind in conll.entities(of_words)
            ]
            days = [(*place, DATE) for place in self._find_dates(sentence)]
            yield taggers.without_overlaps([*names, *days])
