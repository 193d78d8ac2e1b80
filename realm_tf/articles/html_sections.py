"""The sections of an HTML page: headings, and the text below each."""

import dataclasses
import html
import re

import lxml.etree
import lxml.html

from realm_tf.articles import table_rows
from realm_tf.articles.pages import Unreadable

# What is there for a browser, and not to be read.
_UNREAD = re.compile(
    "(?:script|style|noscript|template|svg|iframe|nav|title|object|audio|video"
    "|canvas|datalist)$"
)
_UNREAD_ROLES = ("navigation", "search", "menu", "menubar", "toolbar")
_UNREAD_NAME = re.compile(
    r"(?:^|\s)(?:headerlink|footnote-back|linenos|lineno|linenodiv|breadcrumbs?|skip-?link"
    r"|[\w-]*(?:cookie|consent|gdpr)[\w-]*"
    r"(?:ba(?:r|nner)|notice|pop-?up|modal|overlay|dialog|message)[\w-]*)"
    r"(?=\s|$)",
    re.I,
)
# What stands around the text; inside of it they are parts of it.
_AROUND = ("header", "footer", "aside")
_AROUND_ROLES = ("banner", "contentinfo", "complementary")
_MAIN = ("article", "main", "section")
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# What stands in a line of its own.
_BLOCKS = re.compile(
    "(?:address|article|aside|blockquote|body|br|button|caption|center|dd|details"
    "|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frameset|h[1-6]"
    "|header|hgroup|hr|html|input|label|legend|li|main|menu|meter|noframes|ol"
    "|optgroup|option|output|p|pre|progress|search|section|select|summary|table"
    "|tbody|td|textarea|tfoot|th|thead|tr|ul)$"
)
_FORMATTING = re.compile(
    r"</?(?:a|abbr|b|big|code|em|font|i|ins|kbd|nobr|s|small|span|strike"
    r"|strong|tt|u)\b[^<>]*>",
    re.I,
)
# The source of a page breaks its lines inside compounds.
_BROKEN = re.compile(
    r"(?<=\w)-[ \t]*\n\s*(?=(?!and\b|or\b|to\b|und\b|oder\b)\w)"
)
# A comment, or XHTML's text without markup.
_CDATA = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[((?:(?!<!\[CDATA\[|</script).)*?)\]\]>",
    re.S | re.I,
)
# The parts of a table that have text.
_OF_TABLES = ("caption", "td", "th")
_SIGNED = re.compile(r"[-−+]?\d+$")


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


def read(markup: str) -> tuple[str, list[Section], dict[str, list[str]]]:
    """The title of a page, its sections in their order, and its metadata.

    Navigation, headers and footers of the page, notices about cookies, scripts
    and what is hidden are left out. A row of a table becomes one line,
    "header: cell; header: cell.", under the headers of its columns; a table
    without headers becomes its cells, and one that holds tables, headings or
    code what stands in them. Time is linear in the length, however deep
    elements are nested.

    Args:
        markup: str.

    Returns:
        `(title, sections, metadata)`: of `<title>`, else the first heading if
        all else stands below it, else `""`; list of `Section`, those without
        any line left out (their headings are lines of the one above); the contents of each `<meta>` with a `name` or
        `property`.
    """
    markup = _CDATA.sub(lambda x: html.escape(x[1]) if x[1] else x[0], markup)
    root = _parsed(markup.replace("\0", ""))
    if root is None:
        return "", [], {}
    metadata = {}
    for tag in root.iter("meta"):
        for name in {tag.get("name"), tag.get("property")} - {None}:
            if tag.get("content") is not None:
                metadata.setdefault(name, []).append(tag.get("content"))
    title = root.xpath("string(//title[parent::*[not(self::svg)]])")
    title = " ".join(title.split())
    walk = _Walk(_layouts(root))
    walk.visit(root)
    if not title:
        title = walk.only_heading()
    return title, _with_text(walk.sections), metadata


def _with_text(sections):
    """The sections that have lines. A heading over nothing is a line of the
    section above."""
    above = {}
    for number, section in enumerate(sections):
        path = tuple(section.headings)
        above[path] = section
        follows = sections[number + 1 : number + 2]
        is_over = follows and len(follows[0].headings) > len(path)
        if path and not section.lines and not is_over:
            above.get(path[:-1], section).lines.append(path[-1])
    return [section for section in sections if section.lines]


def _parsed(markup, *, again=True):
    """The tree of a page, or `None` if it is empty."""
    parser = lxml.html.HTMLParser(
        encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True
    )
    try:
        # As bytes: lxml refuses text that declares an encoding.
        root = lxml.html.document_fromstring(
            markup.encode("utf-8", "replace"), parser
        )
    except lxml.etree.ParserError:
        return None
    if not any(e.type_name == "ERR_RESOURCE_LIMIT" for e in parser.error_log):
        return root
    # What is below the limit is not in the tree. Most often nothing closes
    # elements that say how letters look.
    if again:
        return _parsed(_FORMATTING.sub("", markup), again=False)
    raise Unreadable("its elements are nested more than 2,000 deep")


def _layouts(root):
    """The tables that hold tables, headings or code: they are no data."""
    found, tables = set(), []
    marks = ("table", "pre", *_HEADINGS)
    for event, tag in lxml.etree.iterwalk(root, ("start", "end"), tag=marks):
        if event == "start" and tables:
            found.add(tables[-1])
        if tag.tag == "table":
            tables.append(tag) if event == "start" else tables.pop()
    return found


class _Walk:
    """Reads elements from the first to the last, without recursion.

    Args:
        layouts: set of elements. See `_layouts`. Defaults to `None`: headings
            and tables are text as all else, and so are headers and footers.
        without: tuple of str. Elements that are not read. Defaults to `()`.
    """

    def __init__(self, layouts=None, without=()):
        self.sections = [Section([])]
        self._layouts = layouts
        self._without = without
        # Level and text of the headings above.
        self._open = []
        self._levels = []
        self._words = []
        # Before which of them each open <sup> began.
        self._raised = []
        self._num_main = int(layouts is None)
        self._num_pre = 0

    def visit(self, root):
        """Reads what is in an element."""
        walk = lxml.etree.iterwalk(root, events=("start", "end"))
        # What was read or left out already, and has no more than its end.
        skipped = None
        for event, tag in walk:
            if event == "start":
                if tag is not root and (
                    self._is_unread(tag) or self._reads(tag)
                ):
                    walk.skip_subtree()
                    skipped = tag
                    continue
                self._enter(tag, 1)
                self._add(tag.text)
                continue
            if tag is not skipped:
                self._enter(tag, -1)
            if tag is not root:
                self._add(tag.tail)
        self._end_line()

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

    def _is_unread(self, tag):
        is_around = tag.tag in _AROUND or tag.get("role") in _AROUND_ROLES
        return _is_hidden(tag) or is_around and not self._num_main

    def _reads(self, tag):
        """Reads a heading or a table of data; whether it is one."""
        if self._layouts is None:
            return tag.tag in self._without
        if tag.tag in _HEADINGS:
            self._begin_section(tag)
            return True
        if tag.tag == "table" and tag not in self._layouts:
            self._end_line()
            self.sections[-1].lines += _table(tag)
            return True
        return False

    def _enter(self, tag, change):
        """An element begins (1) or ends (-1)."""
        if _BLOCKS.match(tag.tag):
            self._end_line()
        if tag.tag in _MAIN or tag.get("role") in _MAIN:
            self._num_main += change
        if tag.tag == "pre":
            self._num_pre += change
        elif tag.tag == "sup" and change == 1:
            self._raised.append(len(self._words))
        elif tag.tag == "sup":
            self._raise(tag, self._raised.pop())

    def _raise(self, tag, place):
        """10<sup>6</sup> is not 106, nor is a note's number a digit."""
        before, raised = self._words[place - 1 : place], self._words[place:]
        before = before[0][-1:] if before and place else ""
        if before.isalnum() and _SIGNED.match("".join(raised).strip()):
            if tag.getparent().tag == "a" or tag.find(".//a") is not None:
                self._words.insert(place, " ")
            elif before.isdigit():
                self._words.insert(place, "^")

    def _add(self, text):
        if not text:
            return
        if not self._num_pre:
            self._words.append(text)
            return
        first, *others = text.split("\n")
        self._words.append(first)
        for line in others:
            self._end_line()
            self._words.append(line)

    def _end_line(self):
        line = _BROKEN.sub("-", "".join(self._words))
        line = " ".join(line.split())
        self._words = []
        if line:
            self.sections[-1].lines.append(line)

    def _begin_section(self, heading):
        self._end_line()
        level, text = int(heading.tag[1]), text_of(heading)
        self._levels.append(level)
        self._open = [each for each in self._open if each[0] < level]
        self._open.append((level, text))
        anchor = heading.get("id", "")
        parent = heading.getparent()
        if not anchor and parent[0] is heading:
            anchor = parent.get("id", "")
        self.sections.append(Section([each for _, each in self._open], anchor))


def _is_hidden(tag):
    # A click shows the other tabs; pandoc hides a caption from those who hear
    # the picture's text.
    if tag.get("role") == "tabpanel" or tag.tag == "figcaption":
        return False
    return (
        _UNREAD.match(tag.tag)
        or tag.get("role") in _UNREAD_ROLES
        or tag.get("hidden") is not None
        or tag.get("aria-hidden") == "true"
        or _INVISIBLE.search(tag.get("style", ""))
        or _UNREAD_NAME.search(tag.get("class", ""))
        or _UNREAD_NAME.search(tag.get("id", ""))
    )


def _table(table):
    """Lines of a table that holds no other; what is in no cell first, where
    browsers show it."""
    lines, rows = _lines_of(table, _OF_TABLES), []
    for row in table.iter("caption", "tr"):
        if _is_hidden(row):
            continue
        cells = _cells(row)
        # A header of all columns says what the table is about.
        is_caption = len(cells) == 1 and cells[0].num_columns > 1
        if row.tag == "caption" or (
            is_caption and cells[0].is_header and not rows
        ):
            lines.append(text_of(row))
        else:
            rows.append(cells)
    return [line for line in lines if line] + table_rows.lines_of(rows)


def _cells(row):
    cells = list(row.iter("th", "td"))
    in_head = row.getparent().tag == "thead"
    texts = ["" if _is_hidden(cell) else text_of(cell) for cell in cells]
    are_headers = [in_head or cell.tag == "th" for cell in cells]
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
    return " ".join(_lines_of(tag))


def _lines_of(tag, without=()):
    walk = _Walk(without=without)
    walk.visit(tag)
    return walk.sections[0].lines
