"""Fields of documents: what a search can filter by, such as a date or tags."""

import datetime
import decimal
import reprlib
import sys
from collections.abc import Iterable
from collections.abc import Mapping

from realm_tf.articles.pages import valid_text

# In a filter: between conditions, and between the alternatives of one.
_SEPARATORS = frozenset(";|")


def fields_of(
    values: Mapping, names: Iterable[str], place: str
) -> dict[str, list[str]]:
    """The fields of a document, as text.

    A list is several values. Dates and times are written as in ISO 8601, true
    and false in small letters. White space is collapsed; what is empty, and
    what is there already, is dropped. A value that is neither text, number,
    date nor list of these, or that holds a separator of filters, is left out
    with a warning: one for the document.

    Args:
        values: mapping. What the source says of it, see `Page`.
        names: iterable of str. Of the fields.
        place: str. Of the document, for the warning.

    Returns:
        dict, name to list of str; without the names that have no value.

    Example:

    >>> fields_of({"tags": ["a", "b  c", "a"], "x": 1}, ("tags", "date"), "")
    {'tags': ['a', 'b c']}
    """
    found, left_out = {}, []
    for name in names:
        value = values.get(name)
        texts = []
        for each in value if isinstance(value, list) else [value]:
            text = _text(each)
            if text is None or _SEPARATORS.intersection(text):
                left_out.append(f"{name} {reprlib.repr(each)}")
            elif text and text not in texts:
                texts.append(text)
        if texts:
            found[name] = texts
    if left_out:
        print(
            f"warning: {place}: left out of its fields: {', '.join(left_out)}: "
            "expected text without ; and |, a number, a date, true, false, or "
            "a list of these.",
            file=sys.stderr,
        )
    return found


def _text(value):
    """A single value as text, or `None` if it is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, str | int | float | decimal.Decimal):
        return valid_text(" ".join(str(value).split()))
    return None
