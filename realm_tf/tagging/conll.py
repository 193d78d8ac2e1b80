"""CoNLL's words, tags, files and scores of entities.

A file has a word and its tag a line, and a blank line after a sentence.

The word is the first column and the tag the last: CoNLL-2003 has four columns,
WNUT-17 and WikiGold two. Tags in IOB1, IOB2 and BIOES become IOB2.
"""

import dataclasses
import itertools
import re
import unicodedata

from realm_tf.articles import pages
from realm_tf.errors import InputError

OUTSIDE = "O"

_DOCUMENT = "-DOCSTART-"
# Only tabs and spaces: tweets hold words of no-break spaces.
_COLUMNS = re.compile("[\t ]+")
_TAG = re.compile(r"O|[BIES]-\S+")

# Abbreviations that keep their full stop, as in CoNLL-2003.
_ABBREVIATIONS = (
    "Adm|Bros|Capt|Co|Col|Corp|Dr|Drs|Fr|Ft|Gen|Gov|Inc|Jr|Lt|Ltd|Maj|Messrs|"
    "Mr|Mrs|Ms|Mt|No|Prof|Rep|Rev|Sen|Sgt|Sr|St|Ste|vs"
)
_CLITIC = "['’](?:s|S|d|m|ll|re|ve)\\b"


# A character of a word: Python's \w leaves combining marks out.
_MARKS = "".join(
    mark
    for mark in map(chr, range(0x300, 0x20000))
    if unicodedata.category(mark).startswith("M")
)
_C = f"[\\w{_MARKS}]"
# Tried in this order. As in CoNLL-2003, a word keeps hyphens ("all-rounder"),
# dots ("U.S."), apostrophes ("O'Brien") and the point of a number; a
# possessive is a word of its own.
_WORDS = re.compile(
    rf"\b(?:[^\W\d_]\.){{2,}}"
    rf"|\b(?:[A-Z]|{_ABBREVIATIONS})\.(?=\s)"
    rf"|{_CLITIC}"
    rf"|\d+(?:[.,:/]\d+)+(?!{_C})"
    rf"|{_C}+(?:(?!{_CLITIC})[-.&/'’·]{_C}+)*"
    rf"|[^\w\s]"
)


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
        tags: list of str. IOB1, IOB2 or BIOES.

    Returns:
        list of str.

    Example:

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "S-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    """
    converted = [OUTSIDE] * len(tags)
    for start, limit, kind in entities(tags):
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
    found = []
    begins = True
    for place, (prefix, _, kind) in enumerate(
        tag.partition("-") for tag in tags
    ):
        goes_on = prefix in ("I", "E") and not begins and found[-1][2] == kind
        if goes_on:
            found[-1] = (found[-1][0], place + 1, kind)
        elif prefix != OUTSIDE:
            found.append((place, place + 1, kind))
        begins = prefix in (OUTSIDE, "S", "E")
    return found


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


def entity_scores(expected: list, predicted: list) -> dict:
    """Scores by whole entities: both ends and the type must be right.

    Args:
        expected: list of lists of str. Tags in IOB2.
        predicted: list of lists of str. Tags; an I that continues nothing
            begins an entity.

    Returns:
        dict of type, and `"all"` (every entity counts once), to `precision`,
        `recall`, `f1` and `num_entities`.

    References:
        CoNLL-2003's conlleval.
    """
    sides = [
        {
            (row, *entity)
            for row, tags in enumerate(side)
            for entity in entities(tags)
        }
        for side in (expected, predicted)
    ]
    found = {}
    for wanted in sorted({kind for *_, kind in set.union(*sides)}):
        found[wanted] = _scores(
            *({each for each in side if each[-1] == wanted} for side in sides)
        )
    return {**found, "all": _scores(*sides)}


def _scores(expected, predicted):
    num_right = len(expected & predicted)
    return {
        "precision": num_right / max(len(predicted), 1),
        "recall": num_right / max(len(expected), 1),
        "f1": 2 * num_right / max(len(expected) + len(predicted), 1),
        "num_entities": len(expected),
    }
