"""Splitting text into sentences.

sentencex (Wikimedia, MIT) decides; it has rules and abbreviations for many
languages, gives places instead of copies and needs no model. Three things are
ours: a line break always ends a sentence; "U.S." is never cut in two; and a
very long sentence, which sentencex keeps whole because it is a quotation or
because a bracket was never closed, is split inside these too.
"""

import re

import sentencex

_PARAGRAPH = re.compile("[^\n\r\v\f\x85\u2028\u2029]+")
# Longer sentences, in code points, are split inside quotations and brackets. Of
# 659 in a sample of Wikipedia 70 turned out to be several (our choice).
LONG_SENTENCE = 300

# "U." before "S.", "Ch." before "B.": a boundary inside an abbreviation.
_INITIAL_BEFORE = re.compile(r"(?:^|[\W\d_])\w\.$")
_INITIAL_AFTER = re.compile(r"[^\W\d_]\.")
_ENCLOSING = re.compile(r"[\"“”„«»()\[\]]")
_OPENING_AT_END = re.compile(r"(?<=\s)[\"“„«(\[]+\s*$")


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
        for start, limit in _split_long(paragraph, language):
            sentence = paragraph[start:limit]
            stripped = sentence.strip()
            if not stripped:
                continue
            first = start + len(sentence) - len(sentence.lstrip())
            first += match.start()
            limit = first + len(stripped)
            if (
                sentences
                and sentences[-1][0] >= match.start()
                and not any(map(str.isalnum, stripped))
            ):
                # Punctuation alone is no sentence.
                sentences[-1] = (sentences[-1][0], limit)
            else:
                sentences.append((first, limit))
    return sentences


def _split_long(paragraph, language):
    """Spans that cover a paragraph, long ones split without enclosures."""
    for start, limit in _paragraph_spans(paragraph, language):
        if limit - start <= LONG_SENTENCE:
            yield start, limit
            continue
        sentence = paragraph[start:limit]
        bare = _ENCLOSING.sub(" ", sentence)
        first = 0
        for _, last in _paragraph_spans(bare, language):
            # A mark that opens what follows belongs there.
            opening = _OPENING_AT_END.search(sentence, first, last)
            if opening and last < len(sentence):
                last = opening.start()
            yield start + first, start + last
            first = last


def _paragraph_spans(paragraph, language):
    spans = []
    for boundary in sentencex.get_sentence_boundaries(language, paragraph):
        start, limit = boundary["start_index"], boundary["end_index"]
        if spans and _inside_abbreviation(paragraph, spans[-1][0], start):
            spans[-1] = (spans[-1][0], limit)
        else:
            spans.append((start, limit))
    return spans


def _inside_abbreviation(paragraph, sentence_start, boundary):
    if paragraph[boundary - 1].isspace() or paragraph[boundary].isspace():
        return False
    # Four characters are enough for both patterns.
    before = paragraph[max(sentence_start, boundary - 4) : boundary]
    return bool(
        _INITIAL_BEFORE.search(before)
        or _INITIAL_AFTER.match(paragraph, boundary)
    )
