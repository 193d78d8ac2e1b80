"""Dates of a language: English by its grammar, others as CLDR writes them."""

import functools
import re
from collections.abc import Callable

from realm_tf.errors import InputError
from realm_tf.tagging.rules import dates as english

ENGLISH = "en"

# Skeletons of CLDR, the longer first: of two dates that begin at one place,
# the first in this order is taken.
_SKELETONS = (
    "yMMMMd",
    "yMMMd",
    "yMd",
    "yMMMM",
    "yMMM",
    "MMMMd",
    "MMMd",
    "Gy",
    "y",
)
_FIELDS = re.compile(r"'([^']*)'|(G+|y+|M+|L+|d+)|(.)")
_SPACES = re.compile(r"\s+|[\u200e\u200f]+")
# With a full stop or without.
_NAME = r"(?<!\w){}\.?(?![^\W\d_])"
_FIRST_IDEOGRAPH = "\u2e80"
_NO_DIGIT_BEFORE = r"(?<![\d])(?<!\d[.,:/-])"
_NO_DIGIT_AFTER = r"(?!\d|[.,:]\d)"
# A number alone is a year if it has four digits and nothing is joined to it.
_BARE_YEAR = (
    r"(?<![\w.,:/$€£¥-])(?:1\d{3}|20\d{2})(?:[–-]\d{2,4})?(?![\w%°]|[.,:]\d)"
)


def date_finder(language: str) -> Callable[[str], list[tuple[int, int]]]:
    """Returns a function that finds dates and years in text of a language.

    English has a grammar, `rules.dates`, which separates years from counts by the
    words around them. Of other languages it finds the forms that Unicode's
    Common Locale Data Repository has for full dates, months of a year, days of
    a month and years, with or without an era, and takes numbers from 1000 to
    2099 for years. Numbers may have the digits of any script.

    Args:
        language: str. ISO 639 code, as of `realm chunk`.

    Returns:
        function of a str that gives a list of `(start, limit)`, by start and
        not overlapping; code points, the limit exclusive.

    Raises:
        InputError: if CLDR does not know the language.

    References:
        [Unicode CLDR](https://cldr.unicode.org), as Babel has it.

    Example:

    >>> text = "Am 3. Oktober 1990, also 1990."
    >>> [text[start:limit] for start, limit in date_finder("de")(text)]
    ['3. Oktober 1990', '1990']
    """
    if is_english(language):
        return english.find_dates
    return functools.partial(_find, _forms(language))


def is_english(language: str) -> bool:
    """Whether a code is English's, of whatever country."""
    return language.split("-")[0].lower() == ENGLISH


def _find(forms, text):
    # One digit for one, whatever the script.
    plain = re.sub(r"\d", lambda digit: str(int(digit[0])), text)
    return [match.span() for match in forms.finditer(plain)]


@functools.cache
def _forms(language):
    import babel

    try:
        locale = babel.Locale.parse(language, sep="-")
    except (ValueError, babel.UnknownLocaleError) as error:
        raise InputError(
            f"The dates of --language {language!r} are not known: expected an "
            "ISO 639 code that CLDR has, such as de or zh."
        ) from error
    patterns = [locale.date_formats["long"].pattern]
    for skeleton in _SKELETONS:
        if skeleton in locale.datetime_skeletons:
            patterns.append(locale.datetime_skeletons[skeleton].pattern)
    forms = dict.fromkeys(
        _BARE_YEAR if pattern == "y" else _form(pattern, locale)
        for pattern in patterns
    )
    return re.compile("|".join(forms), re.IGNORECASE)


def _form(pattern, locale):
    """A regular expression for a pattern of CLDR."""
    parts = []
    for quoted, field, other in _FIELDS.findall(pattern):
        if field:
            parts.append(_field(field, locale, has_era="G" in pattern))
        else:
            parts.append(_literal(quoted or other))
    # Words after a year, "г." in Russian, may be left out or inflected.
    while parts[-1] in (r"\s*", r"\.") or (
        parts[-1].isalpha() and f"'{parts[-1]}'" in pattern
    ):
        parts.pop()
    form = "".join(parts)
    if parts[0].startswith(r"\d"):
        form = _NO_DIGIT_BEFORE + form
    if parts[-1].startswith(r"\d"):
        form += _NO_DIGIT_AFTER
    return f"(?:{form})"


def _literal(text):
    return _SPACES.sub(
        r"\\s*", re.escape(_SPACES.sub(" ", text)).replace("\\ ", " ")
    )


def _field(field, locale, has_era):
    kind, width = field[0], len(field)
    if kind == "y":
        return r"\d{1,4}" if has_era else r"\d{3,4}"
    if kind == "d":
        return r"\d{1,2}(?:er|[ºª])?"
    if kind == "G":
        widths = locale.eras
    elif width < 3:
        return r"\d{1,2}"
    else:
        # Where a locale has no names for months alone, Babel gives another
        # locale's. A locale whose patterns have "L" has such names.
        context = "stand-alone" if kind == "L" else "format"
        widths = locale.months[context]
    names = {
        name.rstrip(".")
        for width in ("abbreviated", "wide")
        for name in widths[width].values()
    }
    names = sorted(names, key=len, reverse=True)
    form = f"(?:{'|'.join(map(re.escape, names))})"
    # Chinese and Japanese write without spaces.
    return form if names[0] >= _FIRST_IDEOGRAPH else _NAME.format(form)
