"""What a browser would show of a page that needs nothing else."""

import collections
import html.parser
import re

_VOID = {"meta", "input", "link", "img"}


class Page(html.parser.HTMLParser):
    """A page, read; every element must be closed, none may hold a handler.

    Args:
        content: str. HTML.

    Attributes:
        texts: dict of tag to the text in each of its elements.
        attributes: dict of tag to the attributes (dict) of each.
        tables: list of tables, each a list of rows, each a list of str.
    """

    def __init__(self, content):
        super().__init__()
        self.texts = collections.defaultdict(list)
        self.attributes = collections.defaultdict(list)
        self.tables = []
        self._open = []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        for name, value in attributes:
            assert name != "src" and not name.startswith("on")
            assert name != "xlink:href" or value.startswith("#")
        self.texts[tag].append("")
        self.attributes[tag].append(dict(attributes))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data


def read(path, *, scripts=0):
    """A page and its content; nothing in it is loaded from elsewhere."""
    with open(path, encoding="utf-8") as file:
        content = file.read()
    page = Page(content)
    assert len(page.texts["script"]) == scripts
    assert not {"link", "img", "iframe", "object"} & {*page.texts}
    assert not re.search(r"@import|url\(", "".join(page.texts["style"]))
    (policy,) = (
        each["content"]
        for each in page.attributes["meta"]
        if "http-equiv" in each
    )
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert ("script-src" in policy) == bool(scripts)
    assert 'name="viewport" content="width=device-width' in content
    assert "prefers-color-scheme: dark" in content
    return page, content
