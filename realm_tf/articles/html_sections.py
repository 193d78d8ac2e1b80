"""The sections of an HTML page: headings, and the text below each."""

import dataclasses
import re

import bs4

from realm_tf.articles import table_rows

# What is there for a browser, and not to be read.
_UNREAD = (
    *("script", "style", "noscript", "template", "svg", "iframe", "nav"),
    *("[hidden]", "a.headerlink"),
)
# What stands around the text; inside it they are parts of it.
_AROUND = ("header", "footer", "aside")
_MAIN = ("article", "main", "section")
_INVISIBLE = re.compile(r"display\s*:\s*none", re.I)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# What stands in a line of its own.
_BLOCKS = frozenset(
    (
        *("address", "article", "blockquote", "body", "dd", "details", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "html", "li"),
        *("main", "ol", "p", "pre", "section", "summary", "ul", "br", "hr"),
        *("header", "footer", "aside"),
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
    )
)


@dataclasses.dataclass
class Section:
    """What stands below one heading.

    Args:
        headings: list of str. The heading and those above it, the outermost
            first; empty before the first one.
        anchor: str. The `id` of the heading, or `""`.
        lines: list of str. Paragraphs, items of lists, rows of tables.
    """

    headings: list[str]
    anchor: str = ""
    lines: list[str] = dataclasses.field(default_factory=list)


def read(
    markup: str | bytes,
) -> tuple[str, list[Section], dict[str, list[str]]]:
    """The title of a page, its sections in their order, and its metadata.

    Navigation, headers and footers of the page, scripts and what is hidden are
    left out. A row of a table becomes one line, "header: cell; header: cell.",
    under the headers of its columns; a table without headers becomes its cells,
    and one that holds tables or headings what stands in them.

    Args:
        markup: str or bytes. Of bytes the page says the encoding.

    Returns:
        `(title, sections, metadata)`: of `<title>`, else the first heading if
        all else stands below it, else `""`; list of `Section`, those without
        any line left out; the contents of each `<meta>` with a `name` or
        `property`.
    """
    soup = bs4.BeautifulSoup(markup, "lxml")
    title = text_of(soup.title) if soup.title else ""
    for tag in soup.select(", ".join(("title", *_UNREAD))):
        tag.decompose()
    for tag in soup.find_all(_AROUND):
        if not tag.decomposed and not tag.find_parent(_MAIN):
            tag.decompose()
    for tag in soup.find_all(style=_INVISIBLE):
        if not tag.decomposed:
            tag.decompose()
    metadata = {}
    for tag in soup.find_all("meta", content=True):
        for name in {tag.get("name"), tag.get("property")} - {None}:
            metadata.setdefault(name, []).append(tag["content"])
    walk = _Walk()
    walk.visit(soup)
    walk.end_line()
    if not title:
        title = walk.only_heading()
    sections = [section for section in walk.sections if section.lines]
    return title, sections, metadata


class _Walk:
    def __init__(self):
        self.sections = [Section([])]
        # Level and text of the headings above.
        self._open = []
        self._levels = []
        self._words = []

    def visit(self, node):
        for child in node.children:
            if isinstance(child, bs4.NavigableString):
                # Comments and the like are subclasses.
                if type(child) is bs4.NavigableString:
                    self._words.append(str(child))
            elif child.name in _HEADINGS:
                self._begin_section(child)
            elif child.name == "table" and not child.find(
                ("table", *_HEADINGS)
            ):
                self.end_line()
                self.sections[-1].lines += _table(child)
            elif child.name == "pre":
                self.end_line()
                for line in child.get_text().splitlines():
                    self._words.append(line)
                    self.end_line()
            elif child.name in _BLOCKS:
                self.end_line()
                self.visit(child)
                self.end_line()
            else:
                self.visit(child)

    def end_line(self):
        line = " ".join("".join(self._words).split())
        self._words = []
        if line:
            self.sections[-1].lines.append(line)

    def only_heading(self):
        """The first heading, if all else stands below it; else `""`."""
        first, *others = self._levels or [0]
        if (
            first
            and not self.sections[0].lines
            and all(level > first for level in others)
        ):
            return self.sections[1].headings[0]
        return ""

    def _begin_section(self, heading):
        self.end_line()
        level, text = int(heading.name[1]), text_of(heading)
        self._levels.append(level)
        self._open = [each for each in self._open if each[0] < level]
        self._open.append((level, text))
        self.sections.append(
            Section([each for _, each in self._open], heading.get("id", ""))
        )


def _table(table):
    """Lines of a table that holds no other."""
    lines, rows = [], []
    for row in table.find_all(("caption", "tr")):
        cells = _cells(row)
        # A header of all columns says what the table is about.
        is_caption = len(cells) == 1 and cells[0].num_columns > 1
        if row.name == "caption" or (
            is_caption and cells[0].is_header and not rows
        ):
            lines.append(text_of(row))
        else:
            rows.append(cells)
    return [line for line in lines if line] + table_rows.lines_of(rows)


def _cells(row):
    cells = row.find_all(("th", "td"))
    in_head = row.find_parent("thead") is not None
    texts = [text_of(cell) for cell in cells]
    are_headers = [in_head or cell.name == "th" for cell in cells]
    if texts and not texts[0]:
        # The corner beside the names of columns.
        are_headers[0] = all(are_headers[1:])
    return [
        table_rows.Cell(
            text,
            is_header,
            *(table_rows.span(cell.get(n)) for n in ("rowspan", "colspan")),
        )
        for cell, text, is_header in zip(cells, texts, are_headers, strict=True)
    ]


def text_of(tag) -> str:
    """The text of an element in one line, as a browser would break words."""
    walk = _Walk()
    walk.visit(tag)
    walk.end_line()
    return " ".join(line for each in walk.sections for line in each.lines)
