"""A grammar of English dates and years.

One regular expression, composed of named parts, finds what may be a date;
words around it decide where a form has other uses too: bare numbers ("1500
men"), "May" and "March", weekdays and feasts inside names. A date
includes its season, "early", "mid" and "late", but no preposition or article;
the two full dates of "2 May 1519 – 6 June 1520" are two, "1914–18" is one;
months and weekdays that recur are dates, durations and ages are not.
"""

import re

from realm_tf.tagging.rules import date_words
from realm_tf.tagging.rules import english_words
from realm_tf.tagging.rules.date_grammar import COUNTED
from realm_tf.tagging.rules.date_grammar import DATE
from realm_tf.tagging.rules.date_grammar import KINDS
from realm_tf.tagging.rules.date_grammar import MEASURES

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
_TEMPORAL = re.compile(
    r"\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Tt]ill|[Dd]uring|[Bb]efore|[Aa]fter|By|"
    r"[Bb]etween|[Ff]rom|[Tt]hrough|[Yy]ears?|[Ee]arly|[Mm]id|[Ll]ate|[Cc]irca|"
    r"[Bb]orn|[Dd]ied|[Ss]ummer|[Ww]inter|[Ss]pring|[Aa]utumn|c\.)[-\s]$|\($"
)
_CERTAIN = re.compile(rf"{_TEMPORAL.pattern}|\b(?:of|for)\s$")
_STRONGLY_TEMPORAL = re.compile(
    r"\b(?:In|[Ss]ince|[Uu]ntil|[Tt]ill|[Dd]uring|By)\s$"
)
# "No. 1066", "flight 1549", "HMS 1984", "$1500", "3.1415", "DC-1000".
_NAMED_BY_NUMBER = re.compile(
    r"(?:\b(?:[Nn]os?|[Nn]r|[Pp]p?|[Vv]ol|[Oo]p|[Aa]rt|[Cc]ap)\."
    r"|\b(?:[Nn]umbers?|[Ff]light|[Rr]oute|[Hh]ighway|[Cc]hannel|[Mm]odel|"
    r"[Cc]lass|[Tt]ype|[Mm]ark|[Pp]ages?|[Rr]oom|[Cc]ode|[Vv]ersion|[Ss]eries|"
    r"[Uu]nit|[Ll]ine|[Cc]hapter|[Ss]ection|[Aa]rticle|[Rr]esolution|"
    r"(?!AD|CE)[A-Z]{2,6})|\b[0-9]+)\s$"
    r"|[$£€¥#№§=×*^/~°<>@_]\s?$|[0-9][.,:/-]$|(?<![a-z])[A-Z]+-$|[−+]$"
)
_QUANTIFIED = re.compile(
    r"\b(?:than|nearly|almost|some|most|approximately|roughly|exactly|only|"
    r"number(?:ed|ing)|total(?:l?ed|l?ing)?|worth|cost(?:s|ing)?|"
    r"weigh(?:s|ed|ing)|measur(?:es|ed|ing)|reach(?:es|ed|ing)|"
    r"contain(?:s|ed|ing)|holds?|has|have|had|with|up to|over|under|another|"
    r"every|these|those|all|other|further|additional|last|top|times|plus|"
    r"minus|equals)\s$"
)
_ARTICLE = re.compile(r"(?:\b[Tt]he|\b[Aa]n?|['’]s|s['’])\s$")
_COUNTED_NEXT = re.compile(rf"[\s-](?:{COUNTED})\b")
_MEASURED_NEXT = re.compile(rf"[\s-](?:{MEASURES})\b")
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
    r"\s?(?:[,;.)–—]|$)|\s(?:the|he|she|it|they|when|and|an?|his|her|after|by|"
    r"under|with|as|at|from|to|for|but|until|or|while|who|which|where)\b"
)
# "between 103 and 105", seen from either number.
_PAIR_OPENS = re.compile(r"\b(?:[Bb]etween|[Ff]rom)\s$")
_PAIR_AFTER = re.compile(r"\s(?:and|to|until)\s([1-9][0-9]{2,3})(?![\w%°])")
_PAIR_BEFORE = re.compile(
    r"\b(?:[Bb]etween|[Ff]rom)\s([1-9][0-9]{2})\s(?:and|to|until)\s$"
)
# "the Nicene Creed (325)"; a count follows a common noun: "seats (325)".
_AFTER_TITLE = re.compile(r"(?:(?<!\w)[A-Z][\w'’-]*|[\"”])\s\($")


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
    for match in DATE.finditer(text):
        kind = KINDS[match.lastindex]
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
            start += date_words.season_of_name(match[0], before)
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
    if date_words.POSSESSIVE.search(before) and not date_words.NEXT_WORD.match(
        after
    ):
        return "quantity"
    return "date"


def _counts(number, before, after):
    """Whether the word after a number is what it counts."""
    if _STRONGLY_TEMPORAL.search(before):
        return bool(_MEASURED_NEXT.match(after))
    if _COUNTED_NEXT.match(after):
        return True
    following = date_words.NEXT_WORD.match(after)
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
        and word not in english_words.FUNCTION_WORDS
        and word not in english_words.VERBS
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


_JUDGES = {
    "early": _is_early_year,
    "numeric": _is_calendar,
    "slashed": _is_calendar,
    "month": date_words.is_month,
    "weekday": date_words.is_weekday,
    "holiday": date_words.is_holiday,
    "tens": date_words.is_tens,
    "century": date_words.is_century,
    "era": _is_era,
    "short": _is_short,
}
