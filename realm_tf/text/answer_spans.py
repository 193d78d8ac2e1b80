r"""Where an answer begins and ends in a text: never inside of a word or code.

What a reader finds are wordpieces. `widened` makes them whole:

- words: a wordpiece that continues a word brings all of that word. Not so in
  scripts that put no spaces between words (Thai, Lao, Tibetan, Burmese, Khmer,
  kana, ideographs): each wordpiece stands for itself there;
- codes, which stand between spaces, brackets, quotation marks, commas, dashes
  or `=`: addresses with `://`; what holds `_`, `@` or `\`; options (`--name`)
  and paths; names with a dot before a small letter (hosts, files), with `::`
  or with two hyphens; versions. A port (`:8080`) is a code of its own;
- numbers with their separators, `%` and `$`; initials (`U.S`); `C++`, `C#`.

So `1990` of `1990-1995`, `Smith` of `Smith's` and `Paris` of `(Paris)` stay.

`PATTERNS` then mend the ends, in Python (`mended`) and in a graph: no marks of a
sentence, and no bracket or quotation mark without its other one. A missing one
that is next to the answer is taken in; an answer is cut before another.
"""

import re
from collections.abc import Callable
from collections.abc import Iterator

import numpy as np

_UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_ALONE = re.compile(f"[{_UNSPACED}]+")
# Commas are of numbers alone.
_TOKEN = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"“”«»{_UNSPACED}]+)"
    rf"|(?:[^\s=|,;()\[\]{{}}<>\"“”‘’'`«»—–…{_UNSPACED}]|(?<=\d),(?=\d))+"
)
_AT_ENDS = ".,;:!?()\"'“”"
_AFTER_ADDRESS = re.compile(r"[.,;:!?)\]}'’*]+$")
_AFTER_CODE = re.compile(r"(?::\d+)?[.:!?*&]*$")
_CODE = re.compile(
    r"[_@\\]|^--?[A-Za-z]|^[~.]*/\w|\w/\w+/\w|\w\.[a-z][a-z0-9]|\w::\w"
    r"|^[vV]?\d+\.\d+[.-]\w|^[A-Za-z]\w*-\w+-\w"
)
_PART = re.compile(
    r"\$?\w*\d(?:[.,:]\d+)*%?|(?:[^\W\d_]\.)+[^\W\d_]\b|\b[CF](?:\+\+|#)"
)

# What is before the sentence of an answer, and after it: sentences are lines, but
# for scripts that have no space between them. Also for RE2.
BEFORE_SENTENCE = r"(?s)^.*(?:\n|[。！？])"
AFTER_SENTENCE = r"(?s)(?:\n|([。！？])).*$"


def widened(text: str, starts, limits, continues) -> tuple:
    """Code points of the word or code that each wordpiece is of.

    Args:
        text: str. A block.
        starts: int array `(num_wordpieces,)`. Where each begins in it.
        limits: as `starts`. Where it ends.
        continues: bool array `(num_wordpieces,)`. Which continue a word.

    Returns:
        `(starts, limits)`, arrays of the same type.
    """
    begins = ~continues
    begins[:1] = True
    for match in _ALONE.finditer(text):
        first, last = np.searchsorted(starts, match.span())
        begins[first : last + 1] = True
    for span in codes(text):
        first, last = np.searchsorted(starts, span)
        begins[first + 1 : last] = False
    firsts = np.flatnonzero(begins)
    lengths = np.diff(firsts, append=len(starts))
    lasts = firsts + lengths - 1
    return np.repeat(starts[firsts], lengths), np.repeat(limits[lasts], lengths)


def codes(text: str) -> Iterator[tuple[int, int]]:
    """Yields (start, limit) of codes, numbers and initials, in order."""
    limit = 0
    for word in text.split():
        # Most are words, with marks of the sentence.
        if word.isalnum() or word.strip(_AT_ENDS).isalnum():
            continue
        first = text.index(word, limit)
        limit = first + len(word)
        for match in _TOKEN.finditer(text, first, limit):
            start, is_address = match.start(), match[1]
            after = _AFTER_ADDRESS if is_address else _AFTER_CODE
            code = after.sub("", match[0])
            if is_address or _CODE.search(code):
                yield start, start + len(code)
                continue
            for part in _PART.finditer(match[0]):
                yield start + part.start(), start + part.end()


# The text inside a pair of brackets, and inside a pair of quotation marks.
_OPEN, _CLOSE, _MARKS = r"(\[{“«", r")\]}”»", "[,;:.!?]"
_NEITHER = f"[^{_OPEN}{_CLOSE}]*"
_BRACKETS = f"({_NEITHER}(?:[{_OPEN}]{_NEITHER}[{_CLOSE}]{_NEITHER})*)"
_QUOTATIONS = '([^"]*(?:"[^"]*"[^"]*)*)'
# Patterns, Python's and RE2's, of which the first group is kept: of the texts
# before and behind an answer,
_MISSING_BEFORE = (rf'(?s)^.*?([{_OPEN}"]?)$',)
_MISSING_AFTER = (rf'(?s)^([{_CLOSE}"]?).*$',)
# of the answer,
_AT_LIMIT = f"^{_BRACKETS}[{_CLOSE}]{_MARKS}*$", f'^{_QUOTATIONS}"{_MARKS}*$'
_AT_START = (
    *(f"^[ ,;:!?{_CLOSE}]+()", f"^[{_OPEN}]{_BRACKETS}$"),
    f'^"{_QUOTATIONS}$',
)
_AT_LAST = (
    *(f"^{_BRACKETS} *[{_OPEN}]{_NEITHER}$", f'^{_QUOTATIONS} +"[^"]*$'),
    # Not the full stop of "U.S.".
    *("()[ ,;:!?]+$", r"([^ .(][^ .(]|[0-9])\.$"),
)
# and of what equal answers may differ in.
_UNLIKE = (
    *(r"[!-/:-@\[-`{-~]+()", "(?:^| )(?:(?:a|an|the)(?: |$))+()", " +()"),
)


def mended(before, answer, after, *, replace: Callable) -> tuple:
    """An answer whose ends are those that people give it.

    Args:
        before, answer, after: str, or string tensors of one shape: a text in
            three parts, without line breaks in the answer.
        replace: function `(text, pattern, by)`: of the same type, each match
            replaced.

    Returns:
        Three of that type: with another end; also with another beginning; the
        answer, which ends otherwise again. The first two differ in length by
        as much as the beginning has moved. The answer may be empty.
    """
    missing = _kept(after, _MISSING_AFTER, replace)
    longer = _kept(answer + missing, _AT_LIMIT, replace)
    missing = _kept(before, _MISSING_BEFORE, replace)
    begun = _kept(missing + longer, _AT_START, replace)
    return longer, begun, _kept(begun, _AT_LAST, replace)


def same_as(answer, *, replace: Callable):
    """What equal answers share: no ASCII punctuation, articles or spaces.

    Args:
        answer: as of `mended`, with small letters from a to z alone.
        replace: as of `mended`.
    """
    return _kept(answer, _UNLIKE, replace)


def _kept(text, patterns, replace):
    for pattern in patterns:
        text = replace(text, pattern, r"\1")
    return text


def replace(text: str, pattern: str, by: str) -> str:
    """What the functions of this module need for a str."""
    return re.sub(pattern, by, text)


def lower(text: str) -> str:
    """With small letters from a to z, as `tf.strings.lower`."""
    return text.encode("utf-8").lower().decode("utf-8")
