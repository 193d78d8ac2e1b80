"""Reading MediaWiki XML exports (dumps), one page at a time."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import page_url
from realm_tf.errors import InputError

# Namespaces whose links show no text in an article: Media, File, Category
# (https://www.mediawiki.org/wiki/Help:Namespaces).
_SILENT_NAMESPACES = {"-2", "6", "14"}
_HEAD = ("<mediawiki", "<?xml")
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)


# https://en.wikipedia.org/wiki/Template:Disambiguation and its kin, which are
# called "X disambiguation" or by the short names here.
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?!about|for\b|main|other|r from|r to|redirect|see)"
    r"(?:[\w -]{0,40}disambiguation(?: cleanup| page)?|disambig(?:-cleanup)?"
    r"|begriffsklärung|disamb|dab|geodis|hndis|hospitaldis|mathdab|mil-unit-dis|numberdis"
    r"|roaddis|schooldis)\s*[|}]|__DISAMBIG__",
    re.IGNORECASE,
)


def read_mediawiki(file, path: str, base_url: str | None) -> Iterator[Page]:
    """All pages of an export of version 0.6 or later, in their order.

    Args:
        file: binary file, decompressed.
        path: str. Its name, for messages.
        base_url: str. What comes before the title in a page's URL. `None`:
            what `<siteinfo>` says, if it is there.

    Yields:
        `Page`. Redirects and pages outside the main namespace have `dropped`
        set.

    Raises:
        InputError: if the root is not `<mediawiki>`.
        xml.etree.ElementTree.ParseError: if the XML is broken.
    """
    silent = frozenset()
    number = 0
    events = ET.iterparse(file, events=("start", "end"))
    _, root = next(events)
    if _local(root.tag) != "mediawiki":
        raise InputError(
            f"{path} is XML with the root <{_local(root.tag)}>: expected a "
            "MediaWiki export with <mediawiki>."
        )
    for event, element in events:
        if event == "start":
            continue
        tag = _local(element.tag)
        if tag == "base" and base_url is None and element.text:
            base_url = element.text.rpartition("/")[0] + "/"
        elif tag == "namespace" and element.text:
            if element.get("key") in _SILENT_NAMESPACES:
                silent = silent | {element.text.strip().lower()}
        elif tag == "page":
            number += 1
            page = _mediawiki_page(element, number, path)
            page.silent_prefixes = silent
            if base_url:
                page.url = page_url(base_url, page.title)
            # Or the tree would grow to the size of the dump.
            root.clear()
            yield page


def _mediawiki_page(element, number, path):
    title = element.findtext("{*}title", "").strip()
    # A full history holds many revisions; the last is the page today.
    texts = element.findall("{*}revision/{*}text")
    page = Page(
        number,
        f"{path}, page {number} ({title})",
        article_id=element.findtext("{*}id", "").strip(),
        title=title,
        text=(texts[-1].text or "") if texts else "",
    )
    if not page.article_id:
        page.dropped = "bad_record_no_id"
    elif element.find("{*}redirect") is not None or _REDIRECT.match(page.text):
        page.dropped = "redirect"
    elif element.findtext("{*}ns", "0").strip() != "0":
        page.dropped = "namespace"
    return page


def _local(tag):
    # Export versions differ in their namespace only.
    return tag.rpartition("}")[2]


def is_disambiguation(title: str, markup: str = "") -> bool:
    """Whether a page only lists what its title may mean.

    >>> is_disambiguation("Ada", "'''Ada''' may refer to: {{disambig}}")
    True
    """
    if title.endswith("(Begriffsklärung)"):
        return True
    return "(disambiguation)" in title or bool(_DISAMBIGUATION.search(markup))


def _is_in(head, text):
    return text.startswith(_HEAD) and "<mediawiki" in text


# "enwiki-...-pages-articles1.xml-p1p41242.bz2" is part of a dump.
MEDIAWIKI = Format("mediawiki", _is_in, read_mediawiki, r"xml(-p\d+p\d+)?")
FORMATS = (MEDIAWIKI,)
