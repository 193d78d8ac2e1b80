"""Dates that begin with a capital letter: is it one, or part of a name?

Each function gets what may be a date and the text before and after it.
"""

import re

from realm_tf.tagging.rules import english_words
from realm_tf.tagging.rules.date_grammar import MONTHS

POSSESSIVE = re.compile(r"\b(?:its|their|his|her|my|our|your)\s$")
NEXT_WORD = re.compile(r"\s([^\W\d_][\w'’-]*)")
_WHEN = re.compile(
    r"\b(?:in|by|until|till|since|each|every|last|next|this|that|from|during|"
    r"between|through|throughout|before|after|of|early|mid|late|following|"
    r"previous|to|on|around|about|one|a|and|or|month)[-\s]$",
    re.I,
)
# After these a date is likely even where a name follows ("In October Napoleon
# left"); after those "May" may be a person as well.
_SURE_CUES = ("in", "on", "by", "since", "early", "mid", "late")
_WEAK_CUES = ("and", "or", "about", "on", "one", "a")
_OTHER_MONTH_BEFORE = re.compile(
    rf"(?:{MONTHS})(?:,|,?\s(?:and|or|to|–)|\s?[–/-])\s?$"
)
_OTHER_MONTH_AFTER = re.compile(
    rf"(?:,|,?\s(?:and|or|to|–)|\s?[–/-])\s?(?:{MONTHS})\b"
)
# Months that are names or verbs as well.
_AMBIGUOUS = frozenset(("March", "April", "May", "June", "August"))
_CAPITAL_BEFORE = re.compile(r"([^\W\d_][\w.’'-]*)(?<!\w\w\.)\s$")
_CAPITAL_AFTER = re.compile(r"[\s-][A-Z][\w]")
_TENS_BEFORE = re.compile(r"\b[Tt]he\s(?:(?:early|mid|late)[-\s])?$")


def is_month(month: str, before: str, after: str) -> bool:
    """Whether the name of a month is one: May and March have other uses."""
    if re.match(r"\sof\s[A-Z]", after):
        return False
    if _OTHER_MONTH_BEFORE.search(before) or _OTHER_MONTH_AFTER.match(after):
        return True
    if before.endswith("(") and after.startswith(")"):
        return True
    if not _stands_alone(before, after):
        return False
    if month not in _AMBIGUOUS:
        return True
    return _cue(before) not in ("", *_WEAK_CUES) and not after.startswith(
        ("'s", "’s")
    )


def is_weekday(weekday: str, before: str, after: str) -> bool:
    """Whether the name of a weekday is one."""
    return _stands_alone(before, after)


def is_holiday(holiday: str, before: str, after: str) -> bool:
    """Whether the name of a feast is a day."""
    if re.search(r"[0-9]|(?:[CDE]\.?$)", holiday):
        return True
    if holiday.endswith((" Day", " Eve")):
        return not _CAPITAL_AFTER.match(after)
    # "Christmas carols", but "on Christmas morning".
    following = NEXT_WORD.match(after)
    if following and not (
        _cue(before) in _SURE_CUES
        or following[1] in english_words.FUNCTION_WORDS
        or following[1] in english_words.VERBS
        or following[1].endswith("ed")
    ):
        return False
    return _stands_alone(before, after)


def _cue(before):
    """The word before that makes a date likely, or ""."""
    cue = _WHEN.search(before)
    return cue[0][:-1].lower() if cue else ""


def _stands_alone(before, after):
    """Whether a capitalised word is no part of a longer name."""
    cue = _cue(before)
    if _CAPITAL_AFTER.match(after):
        return cue in _SURE_CUES
    if cue:
        return True
    previous = _CAPITAL_BEFORE.search(before)
    return not (previous and previous[1][0].isupper() and previous[1] != "The")


def is_tens(word: str, before: str, after: str) -> bool:
    """Whether "sixties" and its like are years."""
    return "-" in word or bool(_TENS_BEFORE.search(before))


def is_century(century: str, before: str, after: str) -> bool:
    """Whether a century is one of the calendar."""
    if "Century" in century and _CAPITAL_AFTER.match(after):
        return False
    # A batsman's: "his first century".
    return not (century[0].isalpha() and POSSESSIVE.search(before))


def season_of_name(season: str, before: str) -> int:
    """Code points of a season that belongs to the name before it.

    "Prague Spring of '68": only the year is a date.
    """
    previous = _CAPITAL_BEFORE.search(before)
    if previous and previous[1][0].isupper() and not _WHEN.search(before):
        return re.search("['’‘0-9]|AD|A\\.D|CE", season).start()
    return 0
