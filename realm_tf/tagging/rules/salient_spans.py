"""Spans of a sentence that carry knowledge: dates, numbers, names."""

import re

from realm_tf.tagging.rules.dates import find_dates
from realm_tf.tagging.rules.english_words import any_of
from realm_tf.tagging.rules.english_words import lines
from realm_tf.tagging.rules.names import find_names
from realm_tf.tagging.rules.names import overlaps

_SCALE = r"(?:hundred|thousand|million|billion|trillion|dozen|bn)\b"
_UNIT = (
    r"(?:per cent\b|percent\b|(?:(?:square|cubic|nautical|short|long|metric|US|"
    rf"imperial) )?(?:{lines('units')})(?!\w)[²³]?"
    r"(?:(?: per |/)(?:second|minute|hour|day|week|month|year|s|h)\b)?)"
)


_IN_WORDS = (
    rf"(?:(?:{any_of('tens')})(?:-(?:{any_of('ones')}))?"
    rf"|{any_of('ones')}|{any_of('teens')}"
    r"|[Aa] (?:hundred|thousand|million|billion)|[Hh]alf a million)\b"
)
# The digits are taken whole or not at all: no part of "1,864" or "radium-223".
# (Python before 3.11.5 gets `*+` wrong, hence the look-ahead.)
# Numbers in words count with a unit or a scale: "three metres".
_NUMBER = re.compile(
    r"(?<![\w.,:/’'])(?<!\w-)(?:(?:(?:US|A|C|NZ|HK)?[$£€¥₹]\s?)?"
    r"(?=(?P<digits>[0-9]+(?:[.,:/–−-][0-9]+)*))(?P=digits)[½¼¾]?"
    rf"(?i:[-\s]{_SCALE})?(?i:\s?%|\s?°\s?[CFK]?\b|\s?°|[-\s]?{_UNIT}|(?!\w))"
    rf"|{_IN_WORDS}(?i:(?:[-\s]{_SCALE})+(?:[-\s]{_UNIT})?|[-\s]{_UNIT}))"
    r"(?![\w])"
)


def find_spans(sentence: str) -> list[tuple[int, int, str]]:
    """Dates, numbers with their units, and capitalised names of a sentence.

    A sentence's first word is a name only if what follows speaks for one: it
    is capitalised anyway.

    Args:
        sentence: str. Any Unicode; the time is linear in its length.

    Returns:
        list of `(start, limit, kind)`, by start and not overlapping; code
        points, the limit exclusive; kind is `"date"`, `"number"` or `"name"`.

    Example:

    >>> find_spans("In 1869 the Suez Canal, 164 km long, had no locks.")
    [(3, 7, 'date'), (12, 22, 'name'), (24, 30, 'number')]
    """
    dates = find_dates(sentence)
    names = find_names(sentence, dates)
    spans = [(start, limit, "date") for start, limit in dates]
    spans += [(start, limit, "name") for start, limit in names]
    spans.sort()
    numbers = [
        (*match.span(), "number")
        for match in _NUMBER.finditer(sentence)
        if not overlaps(spans, *match.span())
    ]
    return sorted(spans + numbers)
