"""Reads CoNLL files: a word and its tag a line, a blank line after sentences.

The word is the first column and the tag the last, whatever stands between:
CoNLL-2003 has four columns, WNUT-17 and WikiGold two. The schemes IOB1, IOB2
and BIOES (BILOU) are all turned into IOB2.
"""

import dataclasses
import re

from seqeval.metrics.sequence_labeling import get_entities

from realm_tf.articles import pages
from realm_tf.errors import InputError

OUTSIDE = "O"

_DOCUMENT = "-DOCSTART-"
# Only tabs and spaces: tweets hold words of no-break spaces.
_COLUMNS = re.compile("[\t ]+")
_TAG = re.compile(r"O|[BIESLU]-\S+")
# BIOES and BILOU say in their prefix what IOB2 shows by the next tag.
_TO_IOB = {"S": "B", "U": "B", "E": "I", "L": "I"}


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
    sentences, words, tags = [], [], []
    num_columns = None

    def finish():
        if words:
            sentences.append(Sentence(tuple(words), tuple(to_iob2(tags))))
            words.clear()
            tags.clear()

    with pages.open_bytes(path) as file:
        for number, line in pages.read_lines(file, path):
            columns = _COLUMNS.split(line.strip("\t "))
            if columns == [""] or columns[0] == _DOCUMENT:
                finish()
                continue
            num_columns = num_columns or len(columns)
            _check(columns, num_columns, f"{path}:{number}")
            words.append(columns[0])
            tags.append(columns[-1])
    finish()
    if not sentences:
        raise InputError(f"{path} holds no sentence in CoNLL's format.")
    return sentences


def _check(columns, num_columns, where):
    if (
        len(columns) != num_columns
        or num_columns < 2
        or not _TAG.fullmatch(columns[-1])
    ):
        raise InputError(
            f"{where}: expected a word and, in the last of {num_columns} "
            "columns, its tag, O or one such as B-PER. Received: "
            f"{' '.join(columns)!r}"
        )


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
    converted, inside = [], None
    for tag in tags:
        prefix, _, kind = tag.partition("-")
        if tag == OUTSIDE:
            inside = None
            converted.append(tag)
            continue
        begins = inside != kind or _TO_IOB.get(prefix, prefix) == "B"
        converted.append(f"{'B' if begins else 'I'}-{kind}")
        # What ends in E or is single cannot go on.
        inside = None if prefix in "ELSU" else kind
    return converted


def entities(tags: list[str]) -> list[tuple[int, int, str]]:
    """The entities that a sentence's tags mark.

    Args:
        tags: list of str. In IOB2; an I that continues nothing begins.

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
