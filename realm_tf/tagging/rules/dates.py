"""A grammar of English dates and years.

One regular expression, composed of named parts, finds what may be a date. The
words around it decide where a form has other uses too: bare numbers ("1500
men"), "May" and "March", weekdays and feasts inside names. A date includes its
season, "early", "mid" and "late", but no preposition or article. The two full
dates of "2 May 1519 – 6 June 1520" are two, "1914–18" is one. Months and
weekdays that recur are dates; durations and ages are not.
"""

import re

from realm_tf.tagging.rules.english_words import WORDS
from realm_tf.tagging.rules.english_words import any_of
from realm_tf.tagging.rules.english_words import lines
from realm_tf.tagging.rules.english_words import pattern

# --- Parts. `_S` is a space inside a date, `_TO` an unspaced range.
_S = "[ \u00a0]"
_TO = "[–—‒‑-]"
_AND = rf"(?:{_TO}|/|{_S}(?:and|to|or|&|[–—]){_S})"
_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|"
    "November|December"
)
# Abbreviations count only beside a day or a year.
_MONTH = (
    rf"(?:(?:{_MONTHS})\b"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_WEEKDAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_ORDINAL = "(?:st|nd|rd|th)"
_ORDINAL_WORD = rf"(?:{any_of('ordinals')})\b"
# No letter, digit or decimal after a number.
_END = r"(?![\w%°]|[.,][0-9])"
_DAY_NUMBER = "(?:3[01]|[12][0-9]|0?[1-9])"
_DAY = rf"{_DAY_NUMBER}{_ORDINAL}?(?!\w|[.,:][0-9])"
_OF_ERA = rf"{_S}?(?:BCE?|CE|AD|B\.C\.(?:E\.)?|A\.D\.)(?!\w)"
# Words after which a number is no year. Other plurals are recognised by their
# -s.
_COUNTED = pattern("counted")
_FOUR = "(?:1[0-9]{3}|20[0-9]{2})"
_SPAN = rf"{_FOUR}(?:{_TO}|/)(?:{_FOUR}|[0-9]{{2}})(?![\w-])"
# The year of a longer date.
_YEAR = (
    rf"(?:AD{_S}[1-9][0-9]{{0,3}}{_END}|[1-9][0-9]{{0,3}}{_OF_ERA}"
    rf"|(?:{_FOUR}|[1-9][0-9]{{2}}){_END}(?!{_S}(?:{_COUNTED})\b))"
)
_OF_YEAR = rf"(?:,?{_S}(?:of{_S})?{_YEAR})"
_DAY_AND_MONTH = rf"{_DAY}(?:{_AND}{_DAY})?{_S}(?:of{_S})?{_MONTH}"
_MONTH_AND_DAY = (
    rf"{_MONTH}{_S}(?:the{_S})?{_DAY}(?:{_AND}{_DAY}(?!{_S}{_MONTH}))?"
)
_ERA_NUMBER = r"[1-9](?:[0-9]{0,4}|[0-9]?,[0-9]{3})"
# Not "20th Century Fox".
_CENTURY = (
    r"[- ](?:centur(?:y|ies)|millenni(?:um|a)|Centur(?:y|ies)(?! [A-Z]))\b"
    rf"(?:{_OF_ERA})?"
)
# "'68" follows a word and opens no quotation.
_SHORT_YEAR = (
    rf"(?<=[a-z] )['’‘][0-9]{{2}}{_END}"
    r"(?!['’]|[^'’]{0,40}(?<=[\w.,!?])['’](?!\w))"
)

# --- The forms by their kinds, tried in this order at the start of every word.
_FORMS = {
    # Complete by themselves.
    "date": (
        r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?![0-9-])",
        rf"(?<![./:-]){_DAY_NUMBER}(?:/{_DAY_NUMBER}/|\.{_DAY_NUMBER}\.)"
        rf"(?:{_FOUR}|[0-9]{{2}})(?![\w/]|\.[0-9])",
        rf"(?:(?:{_WEEKDAYS}),?{_S}(?:the{_S})?)?"
        rf"(?:{_DAY_AND_MONTH}|{_MONTH_AND_DAY}|Ides{_S}of{_S}March)"
        rf"{_OF_YEAR}?",
    ),
    # Those that "early", "mid" and "late" may be part of.
    "period": (
        rf"[0-9]{{1,2}}{_ORDINAL}(?:(?:[- ]centur(?:y|ies))?{_AND}"
        rf"(?:(?:early|mid|late)[- ])?[0-9]{{1,2}}{_ORDINAL})?{_CENTURY}",
        rf"{_ORDINAL_WORD}(?:{_AND}{_ORDINAL_WORD})?{_CENTURY}",
        rf"{_ERA_NUMBER}(?:{_OF_ERA})?(?:{_TO}{_ERA_NUMBER})?{_OF_ERA}",
        rf"AD{_S}[1-9][0-9]{{0,3}}(?:{_TO}[1-9][0-9]{{0,3}})?{_END}",
        rf"[12][0-9]{{2}}0[’']?s(?!\w)|[1-9][0-9]{{0,2}}0s{_OF_ERA}",
        r"['’‘][0-9]0s(?!\w)",
        _SHORT_YEAR,
        rf"{_MONTH}{_OF_YEAR}",
        rf"(?:(?:spring|summer|autumn|fall|winter)(?:{_S}of|,)?"
        rf"|Spring|Summer|Autumn|Fall|Winter){_S}(?:{_SPAN}|{_YEAR})",
    ),
    # Those that words around them decide.
    "year": (rf"{_SPAN}(?!,[0-9])", rf"{_FOUR}{_END}(?!-[0-9])"),
    "early": (rf"[1-9][0-9]{{2}}{_END}",),
    "holiday": (rf"(?:{lines('feasts')})\b{_OF_YEAR}?",),
    "month": (rf"(?:{_MONTHS})\b",),
    "weekday": (rf"(?:{_WEEKDAYS})s?\b",),
}
_GROUPS = "|".join(
    f"(?P<{kind}>{'|'.join(forms)})" for kind, forms in _FORMS.items()
)
# Few words begin as a date does: the others need no further look.
_GATE = "[0-9A-Z'’‘]|au|ei|el|f[aio]|ni|s[eipu]|t[ehw]|wi"
_DATE = re.compile(rf"(?<!\w)(?={_GATE})(?:{_GROUPS})")

# Code points of context on either side of a candidate. Each expression below
# looks at the end of what is before it or at the beginning of what is after.
_REACH = 40
_MODIFIER = re.compile(r"(?<![\w-])(?:[Ee]arly|[Mm]id|[Ll]ate)[-– \u00a0]$")

# --- Around numbers: is it a year, a quantity, or the number of something?
# "No. 1066", "flight 1549", "HMS 1984", "$1500", "3.1415", "DC-1000",
# "nearly 1500".
_NO_YEAR_BEFORE = re.compile(
    r"(?:\b(?:[Nn]os?|[Nn]r|[Pp]p?|[Vv]ol|[Oo]p|[Aa]rt|[Cc]ap)\."
    rf"|\b(?:{pattern('numbered')}|(?!AD|CE)[A-Z]{{2,6}})"
    rf"|\b[0-9]+|\b(?:{pattern('before_counts')}))\s$"
    r"|[$£€¥#№§=×*^/~°<>@_]\s?$|[0-9][.,:/-]$|(?<![a-z])[A-Z]+-$|[−+]$"
)
# "1500 or 2000 eggs": what the second number counts, the first counts too.
_MORE_NUMBER = (
    r"(?:\s(?:and|or|to|–|by)\s(?:even\s|perhaps\s|about\s)?"
    r"[0-9]+(?:,[0-9]{3})*(?![0-9]))?"
)
_COUNTED_NEXT = re.compile(rf"{_MORE_NUMBER}[\s-](?:{_COUNTED})\b")
_PLURAL_NEXT = re.compile(
    rf"{_MORE_NUMBER}\s([a-z][\w'’-]*(?<![sui]s)(?<!['’]s)(?<=s))(?![\w'’-])"
)
# "in 410, at night", "between 103 and 105".
_EARLY_BEFORE = re.compile(
    r"\b(?:(?<!one )[Ii]n|[Ss]ince|[Uu]ntil|[Bb]etween [1-9][0-9]{2} and)\s$"
)
_BETWEEN = re.compile(r"\b[Bb]etween\s$")
_AND_NUMBER = re.compile(r"\sand\s[1-9][0-9]{2,3}(?![\w%°]|,[0-9])")
_PHRASE_ENDS = re.compile(
    rf"\s?(?:[,;.)–—]|$)|\s(?:{pattern('after_phrases')})\b"
)

# "its 1345." is a quantity, "its 1954 novel" none.
_POSSESSIVE = re.compile(r"\b(?:its|their|his|her|my|our|your)\s$")
_NEXT_WORD = re.compile(r"\s[^\W\d_]")

# --- Around names of months, weekdays and feasts.
_WHEN = re.compile(rf"\b({pattern('before_dates')})[-\s]$", re.I)
# After these a date is likely even where a name follows: "In October Napoleon
# left".
_SURE_CUES = ("in", "on", "by", "since", "early", "mid", "late")
# Months that are names or verbs as well.
_AMBIGUOUS = ("March", "May")
_CAPITAL_BEFORE = re.compile(r"(?!The\s)[^\W\d_a-z][\w.’'-]*(?<!\w\w\.)\s$")
_CAPITAL_AFTER = re.compile(r"[\s-][A-Z][\w]")


def find_dates(text: str) -> list[tuple[int, int]]:
    """Calendar dates and years in English text.

    Args:
        text: str. A sentence or many; any Unicode. The time is linear in its
            length.

    Returns:
        list of `(start, limit)`, by start and not overlapping; code points,
        the limit exclusive.

    Example:

    >>> text = "In early 1941, from May to 4 June, some 1500 men came."
    >>> [text[start:limit] for start, limit in find_dates(text)]
    ['early 1941', 'May', '4 June']
    """
    spans = []
    for match in _DATE.finditer(text):
        kind = match.lastgroup
        start, limit = match.span()
        before = text[max(0, start - _REACH) : start]
        after = text[limit : limit + _REACH]
        if kind in _JUDGES and not _JUDGES[kind](match[0], before, after):
            continue
        if kind in ("period", "year", "month"):
            modifier = _MODIFIER.search(before)
            start -= len(modifier[0]) if modifier else 0
        spans.append((start, limit))
    return spans


def _is_year(number, before, after):
    """Whether a number from 1000 to 2099 counts and names nothing."""
    if _NO_YEAR_BEFORE.search(before) or _COUNTED_NEXT.match(after):
        return False
    if _POSSESSIVE.search(before) and not _NEXT_WORD.match(after):
        return False
    plural = _PLURAL_NEXT.match(after)
    # "the nonviolent 1963 protests": a number this exact is a year.
    counts = (
        plural
        and number.endswith("00")
        and plural[1] not in WORDS["function_words"]
        and plural[1] not in WORDS["verbs"]
    )
    return not counts


def _is_early_year(number, before, after):
    """Whether a number below 1000 is a year: only in few contexts."""
    if _BETWEEN.search(before):
        other = _AND_NUMBER.match(after)
        return bool(other and _PHRASE_ENDS.match(after, other.end()))
    return bool(_EARLY_BEFORE.search(before) and _PHRASE_ENDS.match(after))


def _is_month(month, before, after):
    """Whether the name of a month is one: May and March have other uses."""
    return _stands_alone(month, before, after) and (
        month not in _AMBIGUOUS or bool(_WHEN.search(before))
    )


def _is_holiday(holiday, before, after):
    """Whether the name of a feast is a day."""
    if holiday.endswith((" Day", " Eve")):
        return not _CAPITAL_AFTER.match(after)
    return holiday[-1].isdigit() or _stands_alone(holiday, before, after)


def _stands_alone(word, before, after):
    """Whether a capitalised word is no part of a longer name."""
    cue = _WHEN.search(before)
    if _CAPITAL_AFTER.match(after):
        return bool(cue) and cue[1].lower() in _SURE_CUES
    return bool(cue) or not _CAPITAL_BEFORE.search(before)


_JUDGES = {
    "year": _is_year,
    "early": _is_early_year,
    "month": _is_month,
    "weekday": _stands_alone,
    "holiday": _is_holiday,
}
