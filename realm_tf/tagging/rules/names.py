"""Capitalised names in English text, by rules.

One regular expression finds capitalised words. Words between them ("of the",
"van der", "&", an epithet's "the") join them. The first word of a sentence
counts only if the next words suggest a name. Scripts without capital letters
(Chinese, Arabic, ...) have no names here.
"""

import bisect
import operator
import re

from realm_tf.tagging.rules.english_words import PAIRS
from realm_tf.tagging.rules.english_words import WORDS
from realm_tf.tagging.rules.english_words import pattern

# Capital letters of the alphabets that have them (Latin, Greek, Cyrillic,
# Armenian, Georgian). Not `[^\W\d_a-z]`, which takes an "é" for one.
_CAPITAL = f"[{''.join(filter(str.isupper, map(chr, range(0x2000))))}]"
_ABBREVIATION = pattern("abbreviations")
_NOT_OF_NAME = rf"(?:[a-z]*(?:ed|ing)|{pattern('after_hyphens')})\b(?![-‑])"
# "U.S.", "St.", "J." before a name, "O'Brien", "al-Sahili", "AT&T".
_WORD = re.compile(
    rf"(?:(?<!\w)|(?<=[a-z]-))(?:(?:{_CAPITAL}\.)(?:{_CAPITAL}\.)+"
    rf"|(?:{_ABBREVIATION})\.(?=\s)|{_CAPITAL}\.(?=\s{_CAPITAL})"
    rf"|(?:[dl]['’]|(?:al|el|an|ad|as|ar|at|az|ash)-)?{_CAPITAL}"
    # Taken whole: no part of it. Python before 3.11.5 gets `*+` wrong.
    # "London-based" ends at the hyphen; "Jong-un" has none of these.
    rf"(?=(?P<rest>(?:\w|&(?=\w)|[-‑](?=\w)(?!{_NOT_OF_NAME})|–(?={_CAPITAL})"
    r"|['’](?=\w)(?!s(?!\w)))*))(?P=rest))"
    # "US$"
    r"(?![$£€¥₹])"
)
_PARTICLE = pattern("particles")
_PARTICLES = re.compile(rf" (?:(?:{_PARTICLE}) ){{1,3}}(?:[dl]['’])?")
# "van Gogh", without a first name, and "7th Cavalry".
_BEFORE_NAME = re.compile(
    r"(?<!\w)(?:(?:van|von|de|di|da|du|del|della|ibn|bin)(?: (?:der|den|la|"
    r"le|los))?|[0-9]{1,3}(?:st|nd|rd|th)) $"
)
_ROMAN = re.compile(r"[IVX]+$")
# An adjective or noun of a people: a name wherever it stands.
_PEOPLE = re.compile(rf"(?:{pattern('peoples')})s?$")
# "(Panthera tigris)"
_SPECIES_AFTER = re.compile(
    r" [a-z]+(?:us|is|a|um|ens|ae|i|x|os|er|on|es)(?: [a-z]+)?\)"
)
_NUMBER_AFTER = re.compile(r" [0-9]{1,4}(?![\w%°–-]|[.,:][0-9])")
# Nothing but marks since the sentence began, or a quotation that begins.
_INITIAL = re.compile(r"(?:^|[.!?…:;][\"'”’)]*\s|[,:]\s[\"“‘])[^\w\s]*$|^\W*$")
# Not a name's ending: "Legislation", "Darkness"; the rest by what follows.
_COMMON_SUFFIX = re.compile(
    r"(?:tion|ment|ness|ity|ism|ing|ance|ence|ship|hood|ists?|ers|ies|ions|"
    r"ments|ly)$"
)
_APPOSITION = re.compile(
    r"['’]s(?!\w)|, (?:who|whose|which|called|known|born|named|now|then|an?|"
    rf"the|in|capital|{_CAPITAL})|\s\(| (?:and|or) {_CAPITAL}"
)
_NEXT_WORD = re.compile(r" ([a-z]+)")
_REACH = 48


def find_names(
    text: str, taken: list[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """Capitalised names of a sentence.

    Args:
        text: str. A sentence.
        taken: list of `(start, limit)` in order, where no name may be: the
            dates of the sentence. Defaults to none.

    Returns:
        list of `(start, limit)`, by start and not overlapping; code points,
        the limit exclusive. Without article, rank or possessive "'s".

    Example:

    >>> text = "In Rome King James met Dr. J. R. Ott of the Bank of England."
    >>> [text[start:limit] for start, limit in find_names(text)]
    ['Rome', 'James', 'J. R. Ott', 'Bank of England']
    """
    names, group = [], []
    for match in _WORD.finditer(text):
        word = _Word(text, match)
        if overlaps(taken, word.start, word.limit):
            _flush(text, group, names, taken)
            continue
        if group and _joins(text, group, word):
            group.append(word)
            continue
        _flush(text, group, names, taken)
        if not (word.initial and word.is_function):
            group.append(word)
    _flush(text, group, names, taken)
    return names


def overlaps(spans: list[tuple], start: int, limit: int) -> bool:
    """Whether a place overlaps one of some spans, which are in order."""
    place = bisect.bisect_right(spans, start, key=operator.itemgetter(1))
    return place < len(spans) and spans[place][0] < limit


class _Word:
    """A capitalised word and its place."""

    __slots__ = ("start", "limit", "word", "initial", "is_function")

    def __init__(self, text, match):
        self.start, self.limit = match.span()
        self.word = match[0]
        before = text[max(0, self.start - 8) : self.start]
        self.initial = bool(_INITIAL.search(before))
        # Not "US" and "IT".
        self.is_function = (
            self.word.lower() in WORDS["function_words"]
            and not self.word[1:].isupper()
        )


def _joins(text, group, word):
    """Whether a word continues a name."""
    last = group[-1]
    gap = text[last.limit : word.start]
    if gap in (" ", "\u00a0", ""):
        return not (last.word.endswith(".") and word.is_function)
    if gap == " & " or _PARTICLES.fullmatch(gap):
        return True
    if gap in (" of ", " of the "):
        return _joins_by_of(text, group)
    if gap == " and ":
        return _joins_by_and(text, group, word)
    if gap == " the ":
        return word.word in WORDS["epithets"] and len(group) == 1
    if gap in ("'s ", "’s "):
        return word.word in WORDS["heads"]
    return False


def _joins_by_of(text, group):
    last = group[-1].word
    if len(group) == 1:
        return last not in WORDS["titles"] or last in WORDS["peers"]
    return bool(
        _ROMAN.match(last)
        or last in WORDS["heads"]
        or group[0].word == "The"
        or _follows_the(text, group[0])
    )


def _follows_the(text, word):
    return text[max(0, word.start - 5) : word.start].endswith(("The ", "the "))


def _joins_by_and(text, group, word):
    first, last = group[0], group[-1]
    if (last.word, word.word) in PAIRS:
        return True
    body = text[max(first.start, last.start - 80) : last.start]
    if len(group) < 8 and (" of " in body or " for " in body):
        return any(each.word in WORDS["bodies"] for each in group[:-1])
    # "the Baltimore and Ohio Railroad"
    head = _WORD.match(text, word.limit + 1)
    return bool(
        head
        and text[word.limit : head.start()] == " "
        and head[0] in WORDS["heads"]
        and _follows_the(text, first)
    )


def _flush(text, group, names, taken):
    """Turns the words gathered into names, without ranks; empties `group`."""
    done = 0
    for place in range(len(group) - 1):
        if _is_title(text, group[place], group[place + 1]):
            _add(text, group[done:place], names, taken)
            done = place + 1
    _add(text, group[done:], names, taken)
    group.clear()


def _is_title(text, word, after):
    """Whether a word is the rank of the name after it."""
    gap = text[word.limit : after.start]
    return (
        word.word in WORDS["titles"]
        and (gap == " " or bool(_PARTICLES.fullmatch(gap)))
        and after.word not in WORDS["heads"]
        and after.word not in ("Jr.", "Sr.")
    )


def _add(text, group, names, taken):
    if not group:
        return
    first, last = group[0], group[-1]
    start, limit = first.start, last.limit
    if len(group) == 1 and not _is_name_alone(text, first):
        return
    before = text[max(0, start - 12) : start]
    if not first.initial and first.word not in WORDS["titles"]:
        part = _BEFORE_NAME.search(before)
        start -= len(part[0]) if part else 0
    number = _NUMBER_AFTER.match(text, limit)
    # "Vostok 5"
    if number and not overlaps(taken, limit + 1, limit + 2):
        limit = number.end()
    names.append((start, limit))


def _is_name_alone(text, word):
    letters = word.word
    if letters.rstrip(".") in ("", "St", "No", "Jr", "Sr") or len(letters) < 2:
        return False
    if letters in WORDS["titles"] or word.is_function:
        return False
    after = text[word.limit : word.limit + _REACH]
    if text[word.start - 1 : word.start] == "(" and _SPECIES_AFTER.match(after):
        return False
    if not word.initial:
        return True
    if letters.lower() in WORDS["common_openers"]:
        return False
    if any(c.isupper() or c.isdigit() for c in letters[1:]):
        return True
    if _PEOPLE.match(letters):
        return True
    if _COMMON_SUFFIX.search(letters):
        return False
    if _APPOSITION.match(after):
        return True
    following = _NEXT_WORD.match(after)
    if not following:
        return False
    plural = letters.endswith("s") and letters[-2] not in "suiao"
    if plural:
        return following[1] in ("is", "was", "has")
    return following[1] in WORDS["verbs"] or (
        len(following[1]) > 4 and following[1].endswith("ed")
    )
