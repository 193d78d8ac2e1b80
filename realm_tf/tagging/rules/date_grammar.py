"""Forms of English dates and years: one regular expression of named parts.

A match may be a date; `dates` looks at the words around it.
"""

import re

from realm_tf.tagging.rules import english_words

# --- Parts. `_S` is a space inside a date, `_TO` an unspaced range.
_S = "[ \u00a0]"
_TO = "[–—‒‑-]"
MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|"
    "November|December"
)
# Abbreviations count only beside a day or a year.
_MONTH = (
    rf"(?:(?:{MONTHS})\b"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_WEEKDAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_WEEKDAY = (
    rf"(?:(?:{_WEEKDAYS})|(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b\.?)"
)
_ORDINAL_WORDS = english_words.any_of("ordinals")
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
MEASURES = english_words.pattern("measures")
COUNTED = f"{MEASURES}|{english_words.pattern('counted')}"
_NOT_COUNTED = rf"(?!{_S}(?:{COUNTED})\b)"
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
_HOLIDAY = (
    "(?:Christmas(?: Day| Eve)?|Easter(?: Sunday| Monday| Saturday)?"
    "|(?:Good|Black) Friday|(?:Palm|Whit|Trinity) Sunday|Whit Monday"
    "|Ash Wednesday|Maundy Thursday|(?:Shrove|Fat) Tuesday"
    "|Holy (?:Saturday|Week|Thursday)|(?:Lunar |Chinese )?New Year(?!['’])"
    "|(?:World|International|National)(?: [A-Z][\\w'’]+){1,3} Day"
    "|(?:St\\.?|Saint) [A-Z]\\w+(?:['’]s)? (?:Day|Eve)"
    "|(?:(?:New|All|April) )?[A-Z][a-z]+(?:['’]s|s['’]) (?:Day|Eve)"
    "|(?:Boxing|Ascension|May|Bastille|Armistice|Remembrance|Independence"
    "|Labou?r|Memorial|Veterans|Columbus|Republic|Anzac|Midsummer) (?:Day|Eve)"
    "|Midsummer|Hallowe[’']?en|Thanksgiving(?: Day)?|Whitsun(?:tide)?"
    "|Pentecost|Michaelmas|Martinmas|Candlemas|Epiphany|Twelfth Night"
    "|Mardi Gras|Ramadan|Eid al-(?:Fitr|Adha)|Passover|Hanukkah|Yom Kippur"
    "|Rosh Hashanah|Purim|Diwali|Nowruz|Vesak)"
)
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
        rf"(?:(?:{MONTHS})(?:{_TO}|/)(?=(?:{MONTHS})\b))?{_MONTH}{_OF_YEAR}",
    ),
    ("holiday", rf"{_HOLIDAY}\b(?:{_OF_YEAR})?"),
    ("month", rf"(?:(?:{MONTHS})(?:{_TO}|/))?(?:{MONTHS})\b"),
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
        alternatives = "|".join(f"({pattern})" for _, pattern in rules)
        branches.append(f"(?={gate})(?:{alternatives})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(branches)})"), kinds


DATE, KINDS = _compiled()
