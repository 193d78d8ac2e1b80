"""Reading what WikiExtractor writes: <doc> elements, or JSON lines."""

import html
import json
import re

from realm_tf.articles import rows
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import PlainText
from realm_tf.articles.pages import plain_paragraphs
from realm_tf.articles.pages import read_lines
from realm_tf.articles.pages import without_title
from realm_tf.articles.residue import strip_residue
from realm_tf.errors import InputError

_DOC = re.compile(r'<doc id="([^"]*)"(.*?) title="(.*)">\s*$')
_DOC_URL = re.compile(r' url="([^"]*)"')
_KEYS = {"id", "url", "title", "text"}


def _is_json(head, text):
    """Whether a file is of `wikiextractor --json`.

    It writes these keys and no others, with ?curid= URLs.
    """
    line = text.split("\n", 1)[0]
    if not line.startswith("{") or "?curid=" not in line:
        return False
    try:
        keys = json.loads(line).keys()
    except ValueError:
        return False
    return _KEYS <= keys <= _KEYS | {"revid"}


def _text(page, *, repeats_title=False):
    """Text without the tags, links and entities that are left in it."""
    text = strip_residue(html.unescape(page.text))
    return PlainText(
        without_title(page, plain_paragraphs(text), alone=repeats_title)
    )


def _doc_text(page):
    # WikiExtractor repeats the title of a page without text, too.
    return _text(page, repeats_title=True)


def _read_wikiextractor(file, path, _):
    number = 0
    page = None
    body = []
    for line_number, line in read_lines(file, path):
        if page is None:
            if not line.strip():
                continue
            match = _DOC.match(line)
            if not match:
                raise InputError(
                    f"{path}:{line_number}: expected <doc id=... url=... "
                    f"title=...> as WikiExtractor writes it, found "
                    f"{line[:40]!r}."
                )
            number += 1
            article_id, attributes, title = match.groups()
            url = _DOC_URL.search(attributes)
            page = Page(
                number,
                f"{path}:{line_number}",
                article_id=article_id,
                title=html.unescape(title),
                url=html.unescape(url[1]) if url else "",
            )
        elif line.strip() == "</doc>":
            page.text = "\n".join(body)
            yield page
            page = None
            body = []
        else:
            body.append(line)
    if page is not None:
        raise InputError(
            f"{page.place}: the file ends before </doc>; it is truncated. "
            "Run WikiExtractor again."
        )


FORMATS = (
    Format(
        "wikiextractor",
        lambda head, text: text.startswith("<doc "),
        _read_wikiextractor,
        _doc_text,
    ),
    Format("wikiextractor-json", _is_json, rows.read_json, _text),
)
