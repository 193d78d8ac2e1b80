"""The sections of an HTML page: headings, and the text below each."""

import dataclasses

import bs4

# What is there for a browser, and not to be read.
_UNREAD = (
    *("script", "style", "noscript", "template", "svg", "iframe"),
    *("nav", "header", "footer", "aside", "button"),
)
# Characters; longer ones are sentences with a colon. Our choice.
_MAX_HEADER = 40
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# What stands in a line of its own.
_BLOCKS = frozenset(
    (
        *("address", "article", "blockquote", "body", "dd", "details", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "html", "li"),
        *("main", "ol", "p", "pre", "section", "summary", "ul", "br", "hr"),
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

    Navigation, headers, footers and scripts are left out. A row of a
    table becomes one line, "header: cell; header: cell.", under the headers of
    its columns; a table without headers becomes its cells.

    Args:
        markup: str or bytes. Of bytes the page says the encoding.

    Returns:
        `(title, sections, metadata)`: of `<title>`, else the first heading,
        else `""`; list of `Section`, those without any line left out; the
        contents of each `<meta>` with a `name` or `property`.
    """
    soup = bs4.BeautifulSoup(markup, "html.parser")
    title = _line(soup.title) if soup.title else ""
    for tag in soup.find_all(("title", *_UNREAD)):
        tag.decompose()
    metadata = {}
    for tag in soup.find_all("meta", content=True):
        for name in {tag.get("name"), tag.get("property")} - {None}:
            metadata.setdefault(name, []).append(tag["content"])
    walk = _Walk()
    walk.visit(soup)
    walk.end_line()
    if not title:
        title = next((s.headings[0] for s in walk.sections if s.headings), "")
    sections = [section for section in walk.sections if section.lines]
    return title, sections, metadata


class _Walk:
    def __init__(self):
        self.sections = [Section([])]
        # Level and text of the headings above.
        self._open = []
        self._words = []

    def visit(self, node):
        for child in node.children:
            if isinstance(child, bs4.NavigableString):
                # Comments and the like are subclasses.
                if type(child) is bs4.NavigableString:
                    self._words.append(str(child))
            elif child.name in _HEADINGS:
                self._begin_section(child)
            elif child.name == "table":
                self.end_line()
                self.sections[-1].lines += _table(child)
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

    def _begin_section(self, heading):
        self.end_line()
        level, text = int(heading.name[1]), _line(heading)
        self._open = [each for each in self._open if each[0] < level]
        self._open.append((level, text))
        self.sections.append(
            Section([each for _, each in self._open], heading.get("id", ""))
        )


def table_lines(headers: list[str], rows: list[list[str]]) -> list[str]:
    """A line for each row of a table, with the header of each cell.

    Args:
        headers: list of str. Of the columns; may be empty.
        rows: list of lists of str. Empty cells say nothing.

    Example:

    >>> table_lines(["City", "Stay"], [["Oslo", "160 EUR"], ["Rome", ""]])
    ['City: Oslo; Stay: 160 EUR.', 'City: Rome.']
    """
    lines = []
    for row in rows:
        names = [*headers, *[""] * len(row)]
        cells = [
            f"{name}: {cell}" if name else cell
            for name, cell in zip(names, row, strict=False)
            if cell
        ]
        if cells:
            line = "; ".join(cells)
            lines.append(line if line.endswith((".", "!", "?")) else f"{line}.")
    return lines


def table_cells(line: str) -> list[tuple[str, str]]:
    """What `table_lines` told of a row: header and text of each cell.

    Args:
        line: str. One sentence.

    Returns:
        list; empty if it tells no row, or one of a single cell.

    Example:

    >>> table_cells("City: Oslo; Stay: 160 EUR.")
    [('City', 'Oslo'), ('Stay', '160 EUR')]
    >>> table_cells("He said: no.") + table_cells("We sell kettles; lids cost more.")
    []
    """
    cells = []
    for part in line.removesuffix(".").split("; "):
        header, found, cell = part.partition(": ")
        if not found or not cell or len(header) > _MAX_HEADER:
            return []
        cells.append((header, cell))
    return cells if len(cells) > 1 else []


def _table(table):
    headers, rows = [], []
    for row in table.find_all("tr"):
        cells = row.find_all(("th", "td"))
        texts = [_line(cell) for cell in cells]
        if not headers and not rows and all(c.name == "th" for c in cells):
            headers = texts
        else:
            rows.append(texts)
    lines = table_lines(headers, rows)
    caption = table.find("caption")
    return [_line(caption), *lines] if caption else lines


def _line(tag):
    return " ".join(tag.get_text(" ").split())
