"""What a parser or an extractor of wiki markup leaves in a text, removed."""

import re

from realm_tf.articles import wikipedia
from realm_tf.articles.pages import INVISIBLE

ELEMENT = re.compile(
    rf"<({wikipedia.DROPPED_ELEMENTS})\b[^<>]*>.*?</\1\s*>", re.I | re.DOTALL
)
_TAG_RESIDUE = re.compile(rf"</?(?:{wikipedia.TAGS})\b[^<>]*/?>", re.IGNORECASE)
_TABLE_RESIDUE = re.compile(r"^[ \t:]*\{\|.*?^[ \t]*\|\}", re.M | re.DOTALL)
_BRACKET_RESIDUE = re.compile(r"\[\[|\]\]|\{\{+|\}\}+|\{\||\|\}")
_SILENT_LINK_RESIDUE = re.compile(
    r"\[\[(?:file|image|category):[^\[\]]*\]\]", re.I
)
_LINK_RESIDUE = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_SEPARATORS = r"[\s,;:/–—-]|\bor\b|\band\b"
_EMPTY_BRACKETS = re.compile(
    rf"\s?\((?:{_SEPARATORS}|pronounced|pronunciation)*\)"
)
_BRACKET_START = re.compile(r"\([\s,;:]+")
_BRACKET_END = re.compile(r"[\s,;:]+\)")
_DOUBLE_SEPARATOR = re.compile(r"([,;])(?:\s*[,;])+")
_LOOSE_PUNCTUATION = re.compile(r"\s+([,;:]|\.(?!\w|\.))(?=\s|$)")


def strip_residue(text: str) -> str:
    """Text without the tags and links that an extractor left in it."""
    text = _TAG_RESIDUE.sub("", ELEMENT.sub("", text))
    text = _SILENT_LINK_RESIDUE.sub("", text)
    return _BRACKET_RESIDUE.sub("", _LINK_RESIDUE.sub(r"\1", text))


def strip_markup(text: str) -> str:
    """Text without the tables and tags that a parser did not understand."""
    return _TAG_RESIDUE.sub("", _TABLE_RESIDUE.sub("\n\n", text))


def tidy(paragraph: str) -> str:
    """Drops residue and what dropped templates leave: "(; born 1950)"."""
    paragraph = INVISIBLE.sub("", paragraph)
    paragraph = _BRACKET_RESIDUE.sub("", paragraph)
    for _ in range(2):
        # Twice: brackets may stand in brackets.
        paragraph = _EMPTY_BRACKETS.sub("", paragraph)
    paragraph = _BRACKET_START.sub("(", paragraph)
    paragraph = _BRACKET_END.sub(")", paragraph)
    paragraph = _DOUBLE_SEPARATOR.sub(r"\1", paragraph)
    paragraph = _LOOSE_PUNCTUATION.sub(r"\1", paragraph)
    return paragraph
