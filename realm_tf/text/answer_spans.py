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
from collections.abc import Sequence

import numpy as np

_UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Commas are of numbers alone.
_TOKEN = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"“”«»{_UNSPACED}]+)"
    rf"|(?:[^\s=|,;()\[\]{{}}<>\"“”‘’'`«»—–…{_UNSPACED}]|(?<=\d),(?=\d))+"
)
_AT_ENDS = ".,;:!?()\"'“”"
_AFTER_ADDRESS = ".,;:!?)]}'’*"
_AFTER_CODE = re.compile(r"(?::\d+)?[.:!?*&]*$")
_CODE = re.compile(
    r"[_@\\]|^--?[A-Za-z]|^[~.]*/\w|\w/\w+/\w|\w\.[a-z][a-z0-9]|\w::\w"
    r"|^[vV]?\d+\.\d+[.-]\w|^[A-Za-z]\w*-\w+-\w"
)
_PART = re.compile(
    r"\$?\w*\d(?:[.,:]\d+)*%?|(?:[^\W\d_]\.)+[^\W\d_]\b|\b[CF](?:\+\+|#)"
)

_CONTINUES, _OF_UNSPACED = 1, 2


def kinds_of(vocabulary: Sequence[str]) -> np.ndarray:
    """What `joined` knows of wordpieces, int8 `(vocabulary_size,)`."""
    unspaced = re.compile(f"(?:##)?[{_UNSPACED}]")
    return np.array(
        [
            _OF_UNSPACED
            if unspaced.match(piece)
            else int(piece.startswith("##"))
            for piece in vocabulary
        ],
        "int8",
    )


def joined(token_ids, kinds):
    """Which wordpieces belong to the word of the one before.

    Args:
        token_ids: int array `(num_wordpieces,)`.
        kinds: see `kinds_of`.

    Returns:
        bool array `(num_wordpieces,)`.
    """
    kinds = kinds[token_ids]
    found = kinds == _CONTINUES
    found[1:] &= kinds[:-1] != _OF_UNSPACED
    return found


def widened(text: str, starts, limits, joined) -> tuple:
    """Code points of the word or code that each wordpiece is of.

    Args:
        text: str. A block.
        starts: int array `(num_wordpieces,)`. Where each begins in it.
        limits: as `starts`. Where it ends.
        joined: bool array `(num_wordpieces,)`. Which belong to the one before.

    Returns:
        `(starts, limits)`, arrays of the same type.
    """
    begins = ~joined
    begins[:1] = True
    for first, last in np.searchsorted(starts, list(codes(text))).reshape(
        -1, 2
    ):
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
        if word.isalpha() or word.strip(_AT_ENDS).isalpha():
            continue
        start = text.index(word, limit)
        limit = start + len(word)
        for match in _TOKEN.finditer(word):
            for first, last in _in_token(match[0], is_address=match[1]):
                place = start + match.start()
                yield place + first, place + last


def _in_token(token, *, is_address):
    code = token.rstrip(_AFTER_ADDRESS)
    if is_address or _CODE.search(code := _AFTER_CODE.sub("", token)):
        return [(0, len(code))]
    return [part.span() for part in _PART.finditer(token)]


# What stands between two brackets, and two quotation marks, that belong together.
_OPEN, _CLOSE = r"(\[{“«", r")\]}”»"
_NEITHER = f"[^{_OPEN}{_CLOSE}]*"
_BRACKETS = f"{_NEITHER}(?:[{_OPEN}]{_NEITHER}[{_CLOSE}]{_NEITHER})*"
_QUOTATIONS = '[^"]*(?:"[^"]*"[^"]*)*'
# Of the texts before and behind an answer.
_MISSING_BEFORE = rf'(?s)^.*?([{_OPEN}"]?)$'
_MISSING_AFTER = rf'(?s)^([{_CLOSE}"]?).*$'
# Pairs of a pattern and what it is replaced by; Python's and RE2's.
_AT_LIMIT = (
    (rf"^({_BRACKETS})[{_CLOSE}][,;:.!?]*$", r"\1"),
    (rf'^({_QUOTATIONS})"[,;:.!?]*$', r"\1"),
)
_AT_START = (
    (rf"^[ ,;:!?{_CLOSE}]+", ""),
    (rf"^[{_OPEN}]({_BRACKETS})$", r"\1"),
    (rf'^"({_QUOTATIONS})$', r"\1"),
)
_AT_LAST = (
    (rf"^({_BRACKETS}) *[{_OPEN}]{_NEITHER}$", r"\1"),
    (rf'^({_QUOTATIONS}) +"[^"]*$', r"\1"),
    (r"[ ,;:!?]+$", ""),
    # Not of "U.S.".
    (r"([^ .(][^ .(]|[0-9])\.$", r"\1"),
)
_SAME = (
    (r"[!-/:-@\[-`{-~]+", ""),
    (r"(?:^| )(?:(?:a|an|the)(?: |$))+", " "),
    (" +", ""),
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
    missing = replace(after, _MISSING_AFTER, r"\1")
    longer = _replaced(answer + missing, _AT_LIMIT, replace)
    missing = replace(before, _MISSING_BEFORE, r"\1")
    begun = _replaced(missing + longer, _AT_START, replace)
    return longer, begun, _replaced(begun, _AT_LAST, replace)


def same_as(answer, *, replace: Callable):
    """What equal answers share: no ASCII punctuation, articles or spaces.

    Args:
        answer: as of `mended`, with small letters from a to z alone.
        replace: as of `mended`.
    """
    return _replaced(answer, _SAME, replace)


def _replaced(text, pairs, replace):
    for pattern, by in pairs:
        text = replace(text, pattern, by)
    return text


def replace(text: str, pattern: str, by: str) -> str:
    """What the functions of this module need for a str."""
    return re.sub(pattern, by, text)


def lower(text: str) -> str:
    """With small letters from a to z, as `tf.strings.lower`."""
    return text.encode("utf-8").lower().decode("utf-8")
