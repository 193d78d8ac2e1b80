"""Tables and infoboxes of wiki markup, as lines of text.

A row of a table is told with the headers of its columns, as in
`table_rows.table_lines`; a row of an infobox with its name. What makes text
of a cell is given: this module knows rows, not markup.
"""

import re

from realm_tf.articles import table_rows
from realm_tf.articles import wikipedia

_NO_DATA = re.compile(r"\b(?:navbox|metadata|ambox|mbox)", re.I)
_FILE = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|webp|og[gv]|wav)$", re.I)
# What a template leaves that stands for the rest of a cell: its attributes.
_ATTRIBUTES = re.compile(r'^(?:[a-z]+\s*=\s*(?:"[^"]*"|\S+)\s*)+', re.I)
_LABEL = re.compile(r"label(\d+)$")


def table_lines(table, cell_text) -> list[str]:
    """The lines of a table.

    Args:
        table: mwparserfromhell's `Tag`.
        cell_text: function of a `Tag` and whether it is a header, that gives
            its text in one line.
    """
    if any(_NO_DATA.search(str(each)) for each in table.attributes):
        return []
    captions = []
    lines = table_rows.lines_of(
        _cells(tags, captions, cell_text) for tags in _rows(table)
    )
    return [*captions, *lines]


def _cells(tags, captions, cell_text):
    """The cells of a row; adds captions among them to a list."""
    found = []
    for tag in tags:
        if str(tag.contents).startswith("+") or _name(tag) == "caption":
            captions.append(cell_text(tag, True).lstrip("+ "))
            continue
        is_name = _name(tag) == "th"
        spans = (
            table_rows.span(
                str(tag.get(name).value or "") if tag.has(name) else None
            )
            for name in ("rowspan", "colspan")
        )
        text = _ATTRIBUTES.sub("", cell_text(tag, is_name))
        found.append(table_rows.Cell(text, is_name, *spans))
    return found


def _rows(table):
    """Lists of the cells of each row; those before the first may be a row."""
    first, rest = [], []
    for tag in table.contents.nodes:
        if _name(tag) in ("td", "th", "caption"):
            first.append(tag)
        elif _name(tag) == "tr":
            rest.append(
                [e for e in tag.contents.nodes if _name(e) in ("td", "th")]
            )
        elif _name(tag) in ("tbody", "thead", "tfoot"):
            rest += _rows(tag)
    return [first, *rest] if first else rest


def _name(node):
    return str(getattr(node, "tag", "")).strip().lower()


def is_infobox(name: str) -> bool:
    """Whether a template's name is that of a box of facts."""
    name = name.strip().lower().replace("_", " ")
    return name.startswith("infobox") or name in wikipedia.INFOBOXES


def infobox_lines(arguments: dict[str, str]) -> list[str]:
    """The lines of an infobox.

    Args:
        arguments: dict. Name to text in one line, in the order written.

    Example:

    >>> infobox_lines({"birth_place": "Oslo", "image_size": "200px"})
    ['Birth place: Oslo.']
    """
    lines = []
    for name, text in arguments.items():
        label = " ".join(re.split(r"[\s_-]+", name.strip()))
        if match := re.fullmatch(r"data(\d+)", label):
            label = arguments.get(f"label{match[1]}", "")
        elif label.isdigit() or _LABEL.match(label):
            continue
        label = re.sub(r"\s*\d+$", "", label)
        if not text or _FILE.search(text) or _says_how_it_looks(label):
            continue
        lines += table_rows.table_lines(
            [label[:1].upper() + label[1:]], [[text]]
        )
    return lines


def _says_how_it_looks(label):
    label = label.lower()
    return label in wikipedia.LOOKS or any(
        word.rstrip("0123456789") in wikipedia.PICTURES
        for word in label.split()
    )
