"""The JSONL of `wikiextractor --json`."""

import html
import json

from realm_tf.articles import rows
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import PlainText
from realm_tf.articles.pages import plain_paragraphs
from realm_tf.articles.pages import without_title
from realm_tf.articles.wiki_markup import strip_residue

_KEYS = {"id", "url", "title", "text"}


def _is_in(head, text):
    """Whether a line has these keys and no others, with a ?curid= URL."""
    line = text.split("\n", 1)[0]
    if not line.startswith("{") or "?curid=" not in line:
        return False
    try:
        keys = json.loads(line).keys()
    except ValueError:
        return False
    return _KEYS <= keys <= _KEYS | {"revid"}


def _text(page):
    """Text without the tags, links and entities that are left in it."""
    text = plain_paragraphs(strip_residue(html.unescape(page.text)))
    # WikiExtractor repeats the title of a page without text, too.
    return PlainText(without_title(page, text, alone=True))


FORMATS = (Format("wikiextractor", _is_in, rows.read_json, _text),)
