"""The elements of an HTML page that needs nothing else."""

import collections
import re

import bs4

_VOID = {"meta", "input", "link", "img"}


class Page:
    """A page; every element must be closed, and none may hold a handler.

    Args:
        content: str. HTML.

    Attributes:
        texts: dict of tag to the text in each of its elements.
        attributes: dict of tag to the attributes (dict) of each.
        tables: list of tables, each a list of rows, each a list of str.
    """

    def __init__(self, content):
        soup = bs4.BeautifulSoup(content, "html.parser")
        self.texts = collections.defaultdict(list)
        self.attributes = collections.defaultdict(list)
        for each in soup.find_all(True):
            self.texts[each.name].append(each.get_text())
            self.attributes[each.name].append(each.attrs)
            for name, value in each.attrs.items():
                assert name != "src" and not name.startswith("on")
                assert name != "xlink:href" or value.startswith("#")
        for name, found in self.texts.items():
            closed = rf"</{name}>|<{name}\b[^>]*/>"
            num_closed = len(re.findall(closed, content, re.IGNORECASE))
            assert name in _VOID or num_closed == len(found), name
        self.tables = [
            [
                [cell.get_text() for cell in row.find_all(["td", "th"])]
                for row in table.find_all("tr")
            ]
            for table in soup.find_all("table")
        ]


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
