"""Spans of a sentence that carry knowledge: dates, numbers, names."""

import re

_MONTH = (
    "January|February|March|April|May|June|July|August|September|October|"
    "November|December"
)
# Capital letters of the alphabets that have them (Latin, Greek, Cyrillic,
# Armenian, Georgian). Not `[^\W\d_a-z]`, which takes an "é" for one.
_CAPITAL = f"[{''.join(filter(str.isupper, map(chr, range(0x2000))))}]"
# Tried in this order; a later rule does not cut into an earlier match.
_RULES = (
    (
        "date",
        re.compile(
            rf"\b(?:\d{{1,2}} (?:{_MONTH})(?: \d{{3,4}})?"
            rf"|(?:{_MONTH}) \d{{1,2}}(?:, \d{{3,4}})?"
            rf"|(?:{_MONTH}) \d{{3,4}}"
            r"|1[0-9]{3}s?|20[0-9]{2}s?"
            r"|\d{1,2}(?:st|nd|rd|th) century)\b"
        ),
    ),
    ("number", re.compile(r"\b\d[\d,]*(?:\.\d+)?(?: (?:million|billion))?\b")),
    (
        "name",
        re.compile(
            rf"\b{_CAPITAL}[\w'’.-]*[\w]"
            r"(?:(?: (?:of|the|de|von|van|la|del))*"
            rf" {_CAPITAL}[\w'’-]*[\w])*"
        ),
    ),
)


def find_spans(sentence: str) -> list[tuple[int, int, str]]:
    """Dates, numbers and capitalised names of a sentence.

    The sentence's first word is no name by itself: it is capitalised anyway.

    Args:
        sentence: str.

    Returns:
        list of `(start, limit, kind)`, by start; code points, the limit
        exclusive; kind is `"date"`, `"number"` or `"name"`.

    Example:

    >>> find_spans("In 1869 the Suez Canal had no locks.")
    [(3, 7, 'date'), (12, 22, 'name')]
    """
    spans = []
    for kind, pattern in _RULES:
        for match in pattern.finditer(sentence):
            start, limit = match.span()
            if kind == "name" and start == 0 and " " not in match.group():
                continue
            if all(limit <= s or start >= e for s, e, _ in spans):
                spans.append((start, limit, kind))
    return sorted(spans)
