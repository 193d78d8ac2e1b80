"""Text of others on a terminal."""

import re

# Controls, those of writing directions, and halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Text that cannot command a terminal; its lines and tabs stay.

    >>> printable("a\\x1b[31mb\\u202e\\n")
    'a\\\\x1b[31mb\\\\u202e\\n'
    """
    return _UNSAFE.sub(
        lambda found: found[0].encode("unicode_escape").decode(), text
    )


def one_line(text: str) -> str:
    """Printable text with a space for each line break and tab."""
    return printable(re.sub(r"\s", " ", text))
