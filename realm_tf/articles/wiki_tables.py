"""Tables and infoboxes of wiki markup, as lines of text.

A row of a table is told with the headers of its columns, as in
`html_sections.table_lines`; a row of an infobox with its name. What makes text
of a cell is given: this module knows rows, not markup.
"""

import re

from realm_tf.articles import html_sections
from realm_tf.articles import wikipedia

# Of attributes of a malformed table.
_MOST_SPANNED = 100
_NO_DATA = re.compile(r"\b(?:navbox|metadata|ambox|mbox)", re.I)
_FILE = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|webp|og[gv]|wav)$", re.I)
# What a template leaves that stands for the rest of a cell: its attributes.
_ATTRIBUTES = re.compile(r'^(?:[a-z]+\s*=\s*(?:"[^"]*"|\S+)\s*)+', re.I)
_LABEL = re.compile(r"label(\d+)$")


def table_lines(table, cell_text) -> list[str]:
    """The lines of a table.

    A cell that spans rows stands in each of them. One that spans columns
    stands in the first, and a header that does over all of them.

    Args:
        table: mwparserfromhell's `Tag`.
        cell_text: function of a `Tag` and whether it is a header, that gives
            its text in one line.
    """
    if any(_NO_DATA.search(str(each)) for each in table.attributes):
        return []
    captions, headers, rows = [], [], []
    for cells, is_header in _grid(table, captions, cell_text):
        if is_header and not rows:
            # Headers of groups of columns stand above those of columns.
            headers = [
                " ".join(dict.fromkeys(filter(None, pair)))
                for pair in _zip(headers, cells)
            ]
        else:
            rows.append(cells)
    return [*captions, *html_sections.table_lines(headers, rows)]


def _zip(above, below):
    width = max(len(above), len(below))
    padded = (row + [""] * (width - len(row)) for row in (above, below))
    return zip(*padded, strict=True)


def _grid(table, captions, cell_text):
    """Yields (texts of the columns, whether all are headers) of each row."""
    # Column: text, and in how many rows it stands yet.
    spanning = {}
    for tags in _rows(table):
        found, is_header = [], True
        for tag in tags:
            if str(tag.contents).startswith("+") or _name(tag) == "caption":
                captions.append(cell_text(tag, True).lstrip("+ "))
                continue
            while len(found) in spanning:
                found.append(_next(spanning, len(found)))
            is_name = _name(tag) == "th"
            is_header &= is_name
            text = _ATTRIBUTES.sub("", cell_text(tag, is_name))
            num_rows, num_columns = (
                _span(tag, name) for name in ("rowspan", "colspan")
            )
            for number in range(num_columns):
                shown = text if is_name or not number else ""
                if num_rows > 1:
                    spanning[len(found)] = shown, num_rows - 1
                found.append(shown)
        while len(found) in spanning:
            found.append(_next(spanning, len(found)))
        if found:
            yield found, is_header


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


def _next(spanning, column):
    text, left = spanning.pop(column)
    if left > 1:
        spanning[column] = text, left - 1
    return text


def _name(node):
    return str(getattr(node, "tag", "")).strip().lower()


def _span(tag, name):
    if not tag.has(name):
        return 1
    value = str(tag.get(name).value or "").strip()
    return min(max(1, int(value)), _MOST_SPANNED) if value.isdecimal() else 1


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
        lines += html_sections.table_lines(
            [label[:1].upper() + label[1:]], [[text]]
        )
    return lines


def _says_how_it_looks(label):
    label = label.lower()
    return label in wikipedia.LOOKS or any(
        word.rstrip("0123456789") in wikipedia.PICTURES
        for word in label.split()
    )
