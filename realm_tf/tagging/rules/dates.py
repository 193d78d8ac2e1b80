"""A grammar of English dates and years.

One regular expression, composed of named parts, finds what may be a date;
words around it decide where a form has other uses too: bare numbers ("1500
men"), "May" and "March", weekdays and feasts inside names. A date
includes its season, "early", "mid" and "late", but no preposition or article;
the two full dates of "2 May 1519 – 6 June 1520" are two, "1914–18" is one;
months and weekdays that recur are dates, durations and ages are not.
"""

import re

from realm_tf.tagging.rules.english_words import WORDS
from realm_tf.tagging.rules.english_words import any_of
from realm_tf.tagging.rules.english_words import lines
from realm_tf.tagging.rules.english_words import pattern

# --- Parts. `_S` is a space inside a date, `_TO` an unspaced range.
_S = "[ \u00a0]"
_TO = "[–—‒‑-]"
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
_WEEKDAY = (
    rf"(?:(?:{_WEEKDAYS})|(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b\.?)"
)
_ORDINAL_WORDS = any_of("ordinals")
_ORDINAL_WORD = rf"(?:{_ORDINAL_WORDS})\b"
_ORDINAL = "(?:st|nd|rd|th)"
# No letter, digit or decimal after a number.
_END = r"(?![\w%°]|[.,][0-9])"
_DAY = rf"(?:3[01]|[12][0-9]|0?[1-9]){_ORDINAL}?(?!\w|[.,:][0-9])"
_DAYS = rf"{_DAY}(?:(?:{_TO}|/|{_S}(?:and|or|to|&|[–—]){_S}){_DAY})?"
_ERA = r"(?:BCE?|CE|AD|B\.C\.(?:E\.)?|A\.D\.|C\.E\.)(?!\w)"
_OF_ERA = rf"{_S}?{_ERA}"
# Words after which a number is no year. Other plurals are recognised by their
# -s.
_MEASURES = pattern("measures")
_COUNTED = f"{_MEASURES}|{pattern('counted')}"
_NOT_COUNTED = rf"(?!{_S}(?:{_COUNTED})\b)"
_FOUR = "(?:1[0-9]{3}|20[0-9]{2})"
_UNTIL = rf"(?:(?:{_TO}|/)(?:{_FOUR}|[0-9]{{2}})(?![\w-]))"
# The year of a longer date.
_YEAR = (
    rf"(?:(?:AD|A\.D\.|CE){_S}[1-9][0-9]{{0,3}}{_END}"
    rf"|[1-9][0-9]{{0,3}}{_OF_ERA}"
    rf"|(?:{_FOUR}|[1-9][0-9]{{2}}){_END}{_NOT_COUNTED}"
    rf"|['’‘][0-9]{{2}}{_END})"
)
# After a comma, a number of three digits is a year if the phrase ends there.
_OF_YEAR = (
    rf"(?:(?:,(?!{_S}[0-9]{{3}}{_END}(?![,.;:)]|$)))?{_S}(?:of{_S})?{_YEAR})"
)
_DAY_AND_MONTH = rf"(?:{_DAYS}|{_ORDINAL_WORD}){_S}(?:of{_S})?{_MONTH}"
_MONTH_AND_DAY = (
    rf"{_MONTH}{_S}(?:the{_S})?{_DAY}(?:(?:{_TO}|{_S}(?:and|or|to|&){_S})"
    rf"{_DAY}(?!{_S}{_MONTH}))?(?!{_OF_ERA})"
)
_SEASON_NAMES = "spring|summer|autumn|fall|winter"
_SEASON = (
    "(?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)"
    rf"(?:(?:[/–-]|{_S}(?:and|or){_S}(?:the{_S})?)(?:{_SEASON_NAMES}))?"
)
# Feasts and days with a name of their own; any saint's day, any day of
# somebody or something ("Mother's Day") and of the world.
_HOLIDAY = f"(?:{lines('feasts')})"
_TENS = (
    "(?:twenties|thirties|forties|fifties|sixties|seventies|eighties|nineties)"
)
_CENTURY = rf"[- ](?:[Cc]entur(?:y|ies)|[Mm]illenni(?:um|a))\b(?:{_OF_ERA})?"
_AND = rf"(?:{_TO}|/|{_S}(?:and|to|or|&|[–—]){_S})"
_PART = "(?:(?:early|mid|late)[- ])?"
_DIGIT_CENTURY = (
    rf"[0-9]{{1,2}}{_ORDINAL}"
    rf"(?:(?:[- ]centur(?:y|ies))?{_AND}{_PART}[0-9]{{1,2}}{_ORDINAL})?"
    rf"{_CENTURY}"
)
_ERA_NUMBER = r"[1-9](?:[0-9]{0,4}|[0-9]?,[0-9]{3})"

# --- The alternatives, tried in this order at the start of every word.
_FROM_DIGIT = (
    ("numeric", r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9-])"),
    (
        "slashed",
        r"[0-9]{1,2}(?:/[0-9]{1,2}/|\.[0-9]{1,2}\.)(?:[0-9]{4}|[0-9]{2})"
        r"(?![\w/]|\.[0-9])",
    ),
    ("century", _DIGIT_CENTURY),
    ("day", rf"{_DAY_AND_MONTH}{_OF_YEAR}?"),
    (
        "era",
        rf"{_ERA_NUMBER}(?:{_OF_ERA})?(?:{_TO}{_ERA_NUMBER})?{_OF_ERA}"
        rf"|[1-9][0-9]{{0,2}}0s{_OF_ERA}"
        rf"|{_ERA_NUMBER}(?={_S}(?:and|to|or|until|–|—){_S}(?:c\.{_S}?)?"
        rf"{_ERA_NUMBER}{_S}?(?:BCE?|B\.C\.)(?!\w))",
    ),
    (
        "decade",
        r"[12][0-9]{2}0[’']?s(?!\w)"
        rf"(?:(?:{_TO}|/)(?:[12][0-9])?[0-9]0[’']?s(?!\w))?",
    ),
    (
        "span",
        rf"{_FOUR}{_UNTIL}(?!,[0-9])"
        r"|[1-9][0-9]{2}[–—][1-9][0-9]{2,3}(?![\w–—-]|[.,][0-9])",
    ),
    ("year", rf"{_FOUR}{_END}"),
    ("early", rf"[1-9][0-9]{{1,2}}{_END}"),
)
_SEASON_YEAR = rf"{_SEASON}(?:{_S}of|,)?{_S}(?:{_FOUR}{_UNTIL}|{_YEAR})"
_FROM_CAPITAL = (
    (
        "day",
        rf"{_WEEKDAY},?{_S}(?:the{_S})?(?:{_DAY_AND_MONTH}|{_MONTH_AND_DAY})"
        rf"{_OF_YEAR}?"
        rf"|(?:Ides|Nones|[CK]alends){_S}of{_S}{_MONTH}{_OF_YEAR}?"
        rf"|{_MONTH_AND_DAY}{_OF_YEAR}?"
        rf"|{_ORDINAL_WORD}{_S}of{_S}{_MONTH}{_OF_YEAR}?",
    ),
    (
        "monthyear",
        rf"(?:(?:{_MONTHS})(?:{_TO}|/)(?=(?:{_MONTHS})\b))?{_MONTH}{_OF_YEAR}",
    ),
    ("holiday", rf"{_HOLIDAY}\b(?:{_OF_YEAR})?"),
    ("month", rf"(?:(?:{_MONTHS})(?:{_TO}|/))?(?:{_MONTHS})\b"),
    ("weekday", rf"(?:{_WEEKDAYS})s?\b"),
    ("season", _SEASON_YEAR),
    (
        "era",
        rf"(?:AD|A\.D\.|CE){_S}[1-9][0-9]{{0,3}}(?:{_TO}[1-9][0-9]{{0,3}})?"
        rf"{_END}",
    ),
    (
        "century",
        rf"{_ORDINAL_WORD}{_CENTURY}|[IVX]{{1,5}}{_ORDINAL}?{_CENTURY}",
    ),
)
_FROM_LOWER = (
    ("century", rf"{_ORDINAL_WORD}(?:{_AND}{_PART}{_ORDINAL_WORD})?{_CENTURY}"),
    ("day", rf"{_ORDINAL_WORD}{_S}of{_S}{_MONTH}{_OF_YEAR}?"),
    ("season", _SEASON_YEAR),
    ("tens", rf"(?:(?:eighteen|nineteen)[- ])?{_TENS}\b"),
)
_FROM_APOSTROPHE = (("short", rf"['’‘][0-9]0s(?!\w)|['’‘][0-9]{{2}}{_END}"),)


def _compiled():
    kinds, branches = [None], []
    for gate, rules in (
        ("[0-9]", _FROM_DIGIT),
        ("[A-Z]", _FROM_CAPITAL),
        ("au|ei|el|f[aio]|ni|s[eipu]|t[ehw]|wi", _FROM_LOWER),
        ("['’‘]", _FROM_APOSTROPHE),
    ):
        kinds.extend(kind for kind, _ in rules)
        alternatives = "|".join(f"({form})" for _, form in rules)
        branches.append(f"(?={gate})(?:{alternatives})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(branches)})"), kinds


_DATE, _KINDS = _compiled()

# Code points of context on either side of a candidate. Each expression below
# looks at the end of what is before it or at the beginning of what is after.
_REACH = 40

# --- Around any date.
_MODIFIER = re.compile(
    r"(?<![\w-])(?:[Ee]arly|[Mm]id|[Ll]ate)"
    r"(?:(?:-?[- ](?:to|and|or)[- ]|[-/])(?:early|mid|late))?[-– \u00a0]$"
)
_MODIFIED = {
    "century", "era", "decade", "span", "year", "monthyear", "month",
    "season", "tens", "short",
}  # fmt: skip

# --- Around numbers: is it a year, a quantity, or the number of something?
_TEMPORAL = re.compile(rf"\b(?:{pattern('before_years')})[-\s]$|\($")
_CERTAIN = re.compile(rf"{_TEMPORAL.pattern}|\b(?:of|for)\s$")
_STRONGLY_TEMPORAL = re.compile(
    r"\b(?:In|[Ss]ince|[Uu]ntil|[Tt]ill|[Dd]uring|By)\s$"
)
# "No. 1066", "flight 1549", "HMS 1984", "$1500", "3.1415", "DC-1000".
_NAMED_BY_NUMBER = re.compile(
    r"(?:\b(?:[Nn]os?|[Nn]r|[Pp]p?|[Vv]ol|[Oo]p|[Aa]rt|[Cc]ap)\."
    rf"|\b(?:{pattern('numbered')}|(?!AD|CE)[A-Z]{{2,6}})"
    r"|\b[0-9]+)\s$"
    r"|[$£€¥#№§=×*^/~°<>@_]\s?$|[0-9][.,:/-]$|(?<![a-z])[A-Z]+-$|[−+]$"
)
_QUANTIFIED = re.compile(rf"\b(?:{pattern('before_counts')}|up to)\s$")
_ARTICLE = re.compile(r"(?:\b[Tt]he|\b[Aa]n?|['’]s|s['’])\s$")
_COUNTED_NEXT = re.compile(rf"[\s-](?:{_COUNTED})\b")
_MEASURED_NEXT = re.compile(rf"[\s-](?:{_MEASURES})\b")
_MORE_NUMBER = re.compile(
    r"\s(?:and|or|to|–|by)\s(?:even\s|perhaps\s|about\s)?"
    r"[0-9]+(?:,[0-9]{3})*(?![0-9])"
)
# "a 1500-seat hall", but "1950s-style", "1901-built".
_HYPHENATED = re.compile(
    r"-(?!(?:built|born|founded|era|style|present|today)\b)[^\W\d_]"
)
_SENTENCE_END = re.compile(r"[.!?][\"'’”)]*\s+[^\Wa-z]")
_THE_YEAR = re.compile(r"\b[Tt]he years?\s$")
_REIGN = re.compile(
    r"\((?:[^()]{0,30}\W)?$|\b(?:r|reigned|ruled|c|from|of|in|between)\.?\s$"
)
_IN_YEAR = re.compile(r"(?<!one )\b(?:[Ii]n|[Ss]ince|[Uu]ntil)\s$")
_PHRASE_ENDS = re.compile(
    rf"\s?(?:[,;.)–—]|$)|\s(?:{pattern('after_phrases')})\b"
)
# "between 103 and 105", seen from either number.
_PAIR_OPENS = re.compile(r"\b(?:[Bb]etween|[Ff]rom)\s$")
_PAIR_AFTER = re.compile(r"\s(?:and|to|until)\s([1-9][0-9]{2,3})(?![\w%°])")
_PAIR_BEFORE = re.compile(
    r"\b(?:[Bb]etween|[Ff]rom)\s([1-9][0-9]{2})\s(?:and|to|until)\s$"
)
# "the Nicene Creed (325)"; a count follows a common noun: "seats (325)".
_AFTER_TITLE = re.compile(r"(?:(?<!\w)[A-Z][\w'’-]*|[\"”])\s\($")

# --- Around names of months, weekdays, feasts and seasons.
_POSSESSIVE = re.compile(r"\b(?:its|their|his|her|my|our|your)\s$")
_NEXT_WORD = re.compile(r"\s([^\W\d_][\w'’-]*)")
_WHEN = re.compile(rf"\b(?:{pattern('before_dates')})[-\s]$", re.I)
# After these a date is likely even where a name follows ("In October Napoleon
# left"); after those "May" may be a person as well.
_SURE_CUES = ("in", "on", "by", "since", "early", "mid", "late")
_WEAK_CUES = ("and", "or", "about", "on", "one", "a")
_OTHER_MONTH_BEFORE = re.compile(
    rf"(?:{_MONTHS})(?:,|,?\s(?:and|or|to|–)|\s?[–/-])\s?$"
)
_OTHER_MONTH_AFTER = re.compile(
    rf"(?:,|,?\s(?:and|or|to|–)|\s?[–/-])\s?(?:{_MONTHS})\b"
)
# Months that are names or verbs as well.
_AMBIGUOUS = frozenset(("March", "April", "May", "June", "August"))
_CAPITAL_BEFORE = re.compile(r"([^\W\d_][\w.’'-]*)(?<!\w\w\.)\s$")
_CAPITAL_AFTER = re.compile(r"[\s-][A-Z][\w]")
_TENS_BEFORE = re.compile(r"\b[Tt]he\s(?:(?:early|mid|late)[-\s])?$")


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
    counting = -1
    for match in _DATE.finditer(text):
        kind = _KINDS[match.lastindex]
        start, limit = match.span()
        before = text[max(0, start - _REACH) : start]
        after = text[limit : limit + _REACH]
        if kind in ("year", "span"):
            verdict = _judge_number(kind, match[0], before, after)
            if verdict == "quantity":
                counting = start
            if verdict != "date":
                continue
            # A sentence that counts in such numbers goes on counting.
            if counting >= 0:
                if _SENTENCE_END.search(text, counting, start):
                    counting = -1
                else:
                    counting = start
                    if kind == "year" and not _CERTAIN.search(before):
                        continue
        elif kind in _JUDGES and not _JUDGES[kind](match[0], before, after):
            continue
        modifier = kind in _MODIFIED and _MODIFIER.search(before)
        if modifier:
            start -= len(before) - modifier.start()
        if kind == "season" and match[0][0].isupper() and not modifier:
            start += _season_of_name(match[0], before)
        spans.append((start, limit))
    return spans


# --- Numbers.


def _judge_number(kind, number, before, after):
    """One of "date", "quantity" and "name"."""
    if _NAMED_BY_NUMBER.search(before):
        return "name"
    if kind == "span":
        first, last = re.split("[^0-9]", number)
        if len(last) == 2:
            if int(last) <= int(first[2:]) and last != "00":
                return "name"
        elif int(last) <= int(first):
            return "name"
        if len(first) == 3 and not _REIGN.search(before):
            return "quantity"
    if _HYPHENATED.match(after) or _QUANTIFIED.search(before):
        return "quantity"
    # "1500 or 2000 eggs"
    more = _MORE_NUMBER.match(after)
    if more and _counts(number, before, after[more.end() :]):
        return "quantity"
    if _counts(number, before, after):
        return "quantity"
    # "its 1954 novel", but "its 1345."
    if _POSSESSIVE.search(before) and not _NEXT_WORD.match(after):
        return "quantity"
    return "date"


def _counts(number, before, after):
    """Whether the word after a number is what it counts."""
    if _STRONGLY_TEMPORAL.search(before):
        return bool(_MEASURED_NEXT.match(after))
    if _COUNTED_NEXT.match(after):
        return True
    following = _NEXT_WORD.match(after)
    if not following or not _is_plural(following[1]):
        return False
    if number.endswith("00"):
        return True
    # "the nonviolent 1963 protests": a number this exact is a year.
    return number < "1700" and not (
        _TEMPORAL.search(before) or _ARTICLE.search(before)
    )


def _is_plural(word):
    return (
        word[0].islower()
        and word.endswith("s")
        and not word.endswith(("ss", "us", "is", "'s", "’s"))
        and word not in WORDS["function_words"]
        and word not in WORDS["verbs"]
    )


def _is_early_year(number, before, after):
    """Whether a number below 1000 is a year: only in few contexts."""
    if _THE_YEAR.search(before):
        return not _COUNTED_NEXT.match(after) and not after.startswith(" of ")
    if len(number) < 3:
        return False
    if before.endswith("("):
        return after.startswith(")") and bool(_AFTER_TITLE.search(before))
    pair = _PAIR_OPENS.search(before) and _PAIR_AFTER.match(after)
    if pair:
        first, last, after = number, pair[1], after[pair.end() :]
    else:
        pair = _PAIR_BEFORE.search(before)
        if pair:
            first, last = pair[1], number
    if pair:
        in_order = int(first) < int(last)
        is_round = first.endswith("0") and last.endswith("0")
        return in_order and not is_round and bool(_PHRASE_ENDS.match(after))
    return bool(_IN_YEAR.search(before) and _PHRASE_ENDS.match(after))


def _is_calendar(numeric, before, after):
    """Whether the parts of a numeric form can be month and day."""
    if re.search(r"[\w./:-]$", before):
        return False
    if "-" in numeric:
        _, month, day = map(int, numeric.split("-"))
        return 1 <= month <= 12 and 1 <= day <= 31
    first, second, year = map(int, re.split("[/.]", numeric))
    return (
        1 <= min(first, second) <= 12
        and max(first, second) <= 31
        and (year < 100 or 1000 <= year < 2100)
    )


def _is_era(era, before, after):
    return not re.search(r"[0-9][.,:/]$|[$£€]$", before)


def _is_short(short, before, after):
    """Whether "'68" is a year: it follows a word and opens no quotation."""
    if short.endswith("s"):
        return True
    return bool(re.search(r"[^\W\d_]\s$", before)) and not re.match(
        r"['’\d]|[^'’]*(?<=[\w.,!?])['’](?!\w)", after
    )


# --- Words: is it a date, or part of a name?


def _is_month(month: str, before: str, after: str) -> bool:
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


def _is_holiday(holiday: str, before: str, after: str) -> bool:
    """Whether the name of a feast is a day."""
    if re.search(r"[0-9]|(?:[CDE]\.?$)", holiday):
        return True
    if holiday.endswith((" Day", " Eve")):
        return not _CAPITAL_AFTER.match(after)
    # "Christmas carols", but "on Christmas morning".
    following = _NEXT_WORD.match(after)
    if following and not (
        _cue(before) in _SURE_CUES
        or following[1] in WORDS["function_words"]
        or following[1] in WORDS["verbs"]
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


def _is_tens(word: str, before: str, after: str) -> bool:
    """Whether "sixties" and its like are years."""
    return "-" in word or bool(_TENS_BEFORE.search(before))


def _is_century(century: str, before: str, after: str) -> bool:
    """Whether a century is one of the calendar."""
    if "Century" in century and _CAPITAL_AFTER.match(after):
        return False
    # A batsman's: "his first century".
    return not (century[0].isalpha() and _POSSESSIVE.search(before))


def _season_of_name(season: str, before: str) -> int:
    """Code points of a season that belongs to the name before it.

    "Prague Spring of '68": only the year is a date.
    """
    previous = _CAPITAL_BEFORE.search(before)
    if previous and previous[1][0].isupper() and not _WHEN.search(before):
        return re.search("['’‘0-9]|AD|A\\.D|CE", season).start()
    return 0


_JUDGES = {
    "early": _is_early_year,
    "numeric": _is_calendar,
    "slashed": _is_calendar,
    "month": _is_month,
    "weekday": lambda weekday, before, after: _stands_alone(before, after),
    "holiday": _is_holiday,
    "tens": _is_tens,
    "century": _is_century,
    "era": _is_era,
    "short": _is_short,
}
