"""Splitting text into sentences.

sentencex (Wikimedia, MIT) decides; it has rules and abbreviations for many
languages, gives places instead of copies and needs no model. Ours are:

- a line break always ends a sentence;
- "U.S." is never cut in two;
- no sentence begins with a small letter ("the show Jeopardy! in the 1960s"),
  unless the one before did, as in text without capitals, or the word holds a
  capital ("eBay");
- a sentence in brackets ends with its bracket;
- in English, an abbreviation before a number or a name ("vol. 2",
  "Ms. Ortega") does not end a sentence, and one that may ("p.m.", "U.S.",
  "etc.") does so before a word that begins sentences rather than names;
- a very long sentence, which sentencex keeps whole because it is a quotation
  or because a bracket was never closed, is split inside these too.
"""

import itertools
import re

import sentencex

_PARAGRAPH = re.compile("[^\n\r\v\f\x85\u2028\u2029]+")
# Longer sentences, in code points, are split inside quotations and brackets. Of
# 659 in a sample of Wikipedia 70 turned out to be several (our choice).
LONG_SENTENCE = 300

# "U." before "S.", "Ch." before "B.": a boundary inside an abbreviation.
_INITIAL_BEFORE = re.compile(r"(?:^|[\W\d_])\w\.$")
_INITIAL_AFTER = re.compile(r"[^\W\d_]\.")
# "She": "./run", "x!=y" and "ASP.NET" have no boundary inside.
_CAPITALISED = re.compile(r"[^\W\d_a-z]['’]?[^\W\d_A-Z]|[AI]\s")
_ENCLOSING = re.compile(r"[\"“”„«»()\[\]]")
_OPENING_AT_END = re.compile(r"(?<=\s)[\"“„«(\[]+\s*$")
# "eBay", "iPod", "mRNA".
_SMALL_THEN_CAPITAL = re.compile(r"[^\W\d_]{1,2}[A-Z]")
_BRACKETED = re.compile(
    r"[(\[][^()\[\]]*[.!?…][\"'”’]*[)\]]\s+(?=[A-Z\"“‘(\[])"
)

# English only. Enough characters for the longest word of the patterns and for
# what follows it.
_BEFORE_LENGTH = 9
_AFTER_LENGTH = 5
_BEFORE_NUMBERS = (
    "approx|art|arts|c|ca|chap|chaps|ch|chs|ed|eds|fig|figs|no|nos|op|p|pp|pt"
    "|pts|sec|secs|vers|vol|vols"
)
_BEFORE_NAMES = "Messrs|Mlle|Mme|Mr|Mrs|Ms|Prof|Profs"
_NO_END = re.compile(
    rf"\b(?:(?:{_BEFORE_NUMBERS})\.\s+(?=\d)"
    rf"|(?:{_BEFORE_NAMES})\.\s+(?=[A-Z])"
    # "9 a.m. EDT".
    r"|[ap]\.m\.\s+(?=(?-i:[A-Z]{2,3}T|UTC|GMT)\b))",
    re.IGNORECASE,
)
_ABBREVIATIONS = sorted(
    f"{_BEFORE_NUMBERS}|{_BEFORE_NAMES}|a.m|p.m".split("|"), key=len
)
# All that `_NO_END` may match: the dot comes first, so the search goes from
# dot to dot.
_ABBREVIATION = re.compile(
    r"\.(?:"
    + "|".join(
        rf"(?<=\b(?:{'|'.join(group)}).)"
        for _, group in itertools.groupby(_ABBREVIATIONS, key=len)
    )
    + r")\s+",
    re.IGNORECASE,
)
_STARTERS = (
    "After|Although|And|As|At|But|By|During|For|From|He|Her|His|However|If|In"
    "|It|Its|On|She|Since|That|The|Their|There|These|They|This|Those|To|Two"
    "|Until|We|When|While|With|You"
)
# The dot comes first here, too.
_END = re.compile(
    r"\.(?:(?<=\b[ap]\.m\.)|(?<=\b(?:U\.S|U\.K|D\.C|B\.C|A\.D|etc|Inc|Ltd)\.)"
    r"|(?<=\bCorp\.)|(?<=\b[JS]r\.)"
    # "vitamin C. The", "taller than I. You".
    rf"|(?<=[a-z] [A-Z]\.))\s+(?=(?:{_STARTERS})\s+[a-z])"
)


def split(text: str, *, language: str = "en") -> list[tuple[int, int]]:
    """The sentences of a text.

    Args:
        text: str. Every line is a paragraph.
        language: str. ISO 639 code of the language. A code that sentencex
            has no rules for gets those of a related language or of English.
            Defaults to `"en"`.

    Returns:
        list of (start, limit), code points of `text` without the white space
        around the sentence; in order, none empty.

    Example:

    >>> text = "He left St. Louis at 5 p.m. on Monday. It was 3.5 °C."
    >>> [text[start:limit] for start, limit in split(text)]
    ['He left St. Louis at 5 p.m. on Monday.', 'It was 3.5 °C.']
    """
    sentences = []
    for match in _PARAGRAPH.finditer(text):
        paragraph = match[0]
        offset = match.start()
        num_before = len(sentences)
        for start, limit in _split_long(paragraph, language):
            while start < limit and paragraph[limit - 1].isspace():
                limit -= 1
            if start < limit and not paragraph[start].isalnum():
                while paragraph[start].isspace():
                    start += 1
                if len(sentences) > num_before and not any(
                    map(str.isalnum, paragraph[start:limit])
                ):
                    # Punctuation alone is no sentence.
                    sentences[-1] = (sentences[-1][0], offset + limit)
                    continue
            if start < limit:
                sentences.append((offset + start, offset + limit))
    return sentences


def _split_long(paragraph, language):
    """Spans that cover a paragraph, long ones split without enclosures."""
    spans = _paragraph_spans(paragraph, language)
    if len(paragraph) <= LONG_SENTENCE:
        return spans
    found = []
    for start, limit in spans:
        if limit - start <= LONG_SENTENCE:
            found.append((start, limit))
            continue
        sentence = paragraph[start:limit]
        bare = _ENCLOSING.sub(" ", sentence)
        first = 0
        for _, last in _paragraph_spans(bare, language):
            # A mark that opens what follows belongs there.
            opening = _OPENING_AT_END.search(sentence, first, last)
            if opening and last < len(sentence):
                last = opening.start()
            found.append((start + first, start + last))
            first = last
    return found


def _paragraph_spans(paragraph, language):
    english = language.startswith("en")
    # Faster than to ask sentencex for places.
    sizes = map(len, sentencex.segment(language, paragraph))
    no_ends = has_end = ()
    if english:
        no_ends = [match.end() for match in _ABBREVIATION.finditer(paragraph)]
        has_end = _END.search(paragraph)
    found = []
    start = 0
    for place in itertools.accumulate(sizes):
        if place < len(paragraph) and _is_inside(
            paragraph, start, place, no_ends
        ):
            continue
        if has_end or paragraph[start] in "([":
            start = _cut_further(found, paragraph, start, place, english)
        found.append((start, place))
        start = place
    return found


def _is_inside(paragraph, start, place, no_ends):
    """Whether a boundary is inside a sentence that began at `start`."""
    after = paragraph[place]
    if not (paragraph[place - 1].isspace() or after.isspace()):
        if paragraph[place - 1].isascii() and not _CAPITALISED.match(
            paragraph, place
        ):
            return True
        # Four characters are enough for both patterns.
        before = paragraph[max(start, place - 4) : place]
        return bool(
            _INITIAL_BEFORE.search(before)
            or _INITIAL_AFTER.match(paragraph, place)
        )
    if after.islower():
        return not (
            paragraph[start].islower()
            or _SMALL_THEN_CAPITAL.match(paragraph, place)
        )
    if place in no_ends:
        # Words that may precede are short.
        before = max(start, place - _BEFORE_LENGTH)
        match = _NO_END.search(paragraph, before, place + _AFTER_LENGTH)
        return bool(match) and match.end() == place
    return False


def _cut_further(found, paragraph, start, limit, english):
    """Cuts what sentencex kept together; returns where the rest begins."""
    match = _BRACKETED.match(paragraph, start, limit)
    if match:
        found.append((start, match.end()))
        start = match.end()
    if english:
        for match in _END.finditer(paragraph, start, limit):
            found.append((start, match.end()))
            start = match.end()
    return start
