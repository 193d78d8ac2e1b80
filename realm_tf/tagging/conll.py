"""Reads CoNLL files: a word and its tag a line, a blank line after sentences.

The word is the first column and the tag the last, whatever stands between:
CoNLL-2003 has four columns, WNUT-17 and WikiGold two. The schemes IOB1, IOB2
and BIOES (BILOU) are all turned into IOB2.
"""

import dataclasses
import itertools
import re

from seqeval.metrics.sequence_labeling import get_entities

from realm_tf.articles import pages
from realm_tf.errors import InputError

OUTSIDE = "O"

_DOCUMENT = "-DOCSTART-"
# Only tabs and spaces: tweets hold words of no-break spaces.
_COLUMNS = re.compile("[\t ]+")
_TAG = re.compile(r"O|[BIESLU]-\S+")
# BILOU's prefixes to those of BIOES.
_BILOU = {"U": "S", "L": "E"}


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words with their tags.

    Args:
        words: tuple of str.
        tags: tuple of str. `"O"`, `"B-PER"`, `"I-PER"`, ... in IOB2: every
            entity begins with B.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_sentences(path: str) -> list[Sentence]:
    """The sentences of a CoNLL file.

    Args:
        path: str. UTF-8; may be compressed (bz2, gzip), whatever its name.

    Returns:
        list of `Sentence`, in the order of the file.

    Raises:
        InputError: naming file and line, if a line has one column or another
            number of them than the lines before, or its last is no tag; if
            the file is missing or damaged, or holds no sentence.
    """
    sentences = []
    for has_words, rows in itertools.groupby(_read_rows(path), key=bool):
        if has_words:
            words, tags = zip(*rows, strict=True)
            sentences.append(Sentence(words, tuple(to_iob2(tags))))
    if not sentences:
        raise InputError(f"{path} holds no sentence in CoNLL's format.")
    return sentences


def _read_rows(path):
    """Yields a line's word and tag, or nothing where a sentence ends."""
    num_columns = None
    with pages.open_bytes(path) as file:
        for number, line in pages.read_lines(file, path):
            columns = _COLUMNS.split(line.strip("\t "))
            if columns == [""] or columns[0] == _DOCUMENT:
                yield ()
                continue
            num_columns = num_columns or len(columns)
            if (
                len(columns) != num_columns
                or num_columns < 2
                or not _TAG.fullmatch(columns[-1])
            ):
                raise InputError(
                    f"{path}:{number}: expected a word and, in the last of "
                    f"{num_columns} columns, its tag, O or one such as B-PER. "
                    f"Received: {' '.join(columns)!r}"
                )
            yield columns[0], columns[-1]


def to_iob2(tags: list[str]) -> list[str]:
    """A sentence's tags in IOB2, whatever scheme they come in.

    An I that continues nothing (the sentence begins, or the tag before is O
    or of another type) becomes B: that is the whole difference of IOB1.

    Args:
        tags: list of str. IOB1, IOB2, BIOES or BILOU.

    Returns:
        list of str.

    Example:

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "S-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    bioes = [_BILOU.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    converted = [OUTSIDE] * len(tags)
    for start, limit, kind in entities(bioes):
        converted[start] = f"B-{kind}"
        converted[start + 1 : limit] = [f"I-{kind}"] * (limit - start - 1)
    return converted


def entities(tags: list[str]) -> list[tuple[int, int, str]]:
    """The entities that a sentence's tags mark.

    Args:
        tags: list of str. In IOB1, IOB2 or BIOES; an I that continues
            nothing begins.

    Returns:
        list of `(start, limit, type)`, words of the sentence, the limit
        exclusive, in order.

    Example:

    >>> entities(["O", "I-PER", "I-PER", "I-LOC"])
    [(1, 3, 'PER'), (3, 4, 'LOC')]
    """
    return [
        (start, last + 1, kind)
        for kind, start, last in get_entities(list(tags))
    ]
