"""Wiki markup to plain text, with the places of the wiki links.

mwparserfromhell reads the markup. The rules of this module decide what of it
a reader of the article sees as running text, before the parser (comments,
references, sections such as "See also") and after it (what malformed markup
leaves behind).

List items are kept only if they read like a sentence: at least
`MIN_ITEM_LENGTH` code points and a full stop, question or exclamation mark
at the end. Section headings are never kept, tables and infoboxes if asked for.
"""

import html
import re

import mwparserfromhell
from mwparserfromhell import nodes

from realm_tf.articles import residue
from realm_tf.articles import wiki_tables
from realm_tf.articles import wikipedia
from realm_tf.articles.pages import PlainText
from realm_tf.articles.wiki_templates import fact_text
from realm_tf.articles.wiki_templates import template_text

# Shorter list items are names and captions (our choice).
MIN_ITEM_LENGTH = 30

# Marks of places while the text is still changing.
_LINK_START = "\ue000"
_LINK_LIMIT = "\ue001"
_ITEM = "\ue002"
# Characters that were escaped: never markup.
_APOSTROPHE = "\ue003"
_LESS = "\ue004"
_MARKS = re.compile("[\ue000-\ue004]")

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_EMPTY_ELEMENT = re.compile(
    rf"<(?:{wikipedia.DROPPED_ELEMENTS})\b[^<>]*/>", re.I
)
_HEADING = re.compile(r"^(={1,6})[ \t]*(.+?)[ \t]*\1[ \t]*$", re.MULTILINE)
_SWITCH = re.compile(r"__[A-Z]{3,}__")

_QUOTES = re.compile("'{2,}")
_TRAIL = re.compile("[a-z]+")

_SENTENCE_END = re.compile(r"[.!?…。！？।][\"'”’»)\]]*$")
_LINK_MARK = re.compile(f"[{_LINK_START}{_LINK_LIMIT}]")
# White space, what the link shows, white space.
_LINK = re.compile(
    rf"{_LINK_START}(\s*)([^{_LINK_START}{_LINK_LIMIT}]*?)(\s*){_LINK_LIMIT}"
)


def to_plain_text(
    markup: str,
    *,
    silent_prefixes: frozenset[str] = frozenset(),
    keep_tables: bool = False,
) -> PlainText:
    """The running text of an article in wiki markup.

    Args:
        markup: str. The article's source.
        silent_prefixes: frozenset of str. Names, in lower case, of further
            namespaces whose links show no text, besides File, Image, Media
            and Category: a wiki's own names for these.
        keep_tables: bool. Tell the rows of tables and infoboxes, each as a
            paragraph; see `wiki_tables`. Defaults to `False`.

    Returns:
        `PlainText`.

    Example:

    >>> plain = to_plain_text("The '''[[Danube]]''' is {{convert|2850|km}}.")
    >>> plain.text, plain.link_starts, plain.link_limits
    ('The Danube is 2850 km.', [4], [10])
    """
    markup = _drop_apparatus(_MARKS.sub("", markup))
    tree = mwparserfromhell.parse(markup, skip_style_tags=True)
    silent = {"file", "image", "media", "category"} | silent_prefixes
    return _finish(_Renderer(silent, keep_tables).render(tree))


def _drop_apparatus(markup):
    """Drops comments, references, headings and sections of references."""
    markup = _COMMENT.sub("", markup)
    markup = _EMPTY_ELEMENT.sub("", markup)
    markup = residue.ELEMENT.sub("", markup)
    markup = _SWITCH.sub("", markup)
    kept = []
    position = 0
    dropped_level = None
    for match in _HEADING.finditer(markup):
        if dropped_level is None:
            kept.append(markup[position : match.start()])
        position = match.end()
        level = len(match[1])
        if dropped_level is None or level <= dropped_level:
            title = match[2].strip(" '").lower()
            dropped_level = (
                level if title in wikipedia.DROPPED_SECTIONS else None
            )
    if dropped_level is None:
        kept.append(markup[position:])
    return "\n\n".join(kept)


class _Renderer:
    """Makes text with marks of a parsed page."""

    def __init__(self, silent_prefixes, keep_tables):
        self._silent = silent_prefixes
        self._keep_tables = keep_tables
        # Of a cell, lines are values.
        self._in_cell = False

    def render(self, code):
        """The text of some wiki code, with marks for links and items."""
        out = []
        for node in code.nodes:
            kind = type(node)
            if kind is nodes.Text:
                text = str(node.value)
                if out and out[-1] == _LINK_LIMIT:
                    # "[[dog]]s": the letters after a link belong to it.
                    trail = _TRAIL.match(text)
                    if trail:
                        out[-1:] = [trail[0], _LINK_LIMIT]
                        text = text[trail.end() :]
                out.append(text)
            elif kind is nodes.Wikilink:
                text = self._link(node)
                if text.strip():
                    out += [_LINK_START, text, _LINK_LIMIT]
            elif kind is nodes.HTMLEntity:
                out.append(_escaped(html.unescape(str(node))))
            elif kind is nodes.Template:
                arguments = {str(p.name).strip(): p.value for p in node.params}
                out.append(self._template(self.render(node.name), arguments))
            elif kind is nodes.Tag:
                out.append(self._tag(node, "".join(out[-1:])))
            elif kind is nodes.ExternalLink and node.title is not None:
                out.append(self.render(node.title))
        return "".join(out)

    def _template(self, name, arguments):
        if self._keep_tables and wiki_tables.is_infobox(name):
            facts = {k: self._in_line(v) for k, v in arguments.items()}
            return _as_paragraphs(wiki_tables.infobox_lines(facts))
        if self._in_cell:
            text = fact_text(name, arguments, self.render)
            if text is not None:
                return text
        return template_text(name, arguments, self.render)

    def _table(self, table):
        def cell_text(cell, is_header):
            return self._in_line(cell.contents, " " if is_header else ", ")

        return _as_paragraphs(wiki_tables.table_lines(table, cell_text))

    def _in_line(self, code, separator=", "):
        """What a cell shows, its lines one after the other."""
        before, self._in_cell = self._in_cell, True
        text = self.render(code).replace(_ITEM, "\n")
        self._in_cell = before
        lines = (" ".join(line.split()) for line in text.split("\n"))
        return separator.join(filter(None, lines))

    def _link(self, node):
        title = str(node.title).strip()
        prefix, colon, rest = title.partition(":")
        prefix = prefix.strip().lower()
        if colon and (prefix in self._silent or _is_language(title)):
            return ""
        if node.text is None:
            return _escaped(html.unescape(title.lstrip(":")))
        text = self.render(node.text)
        # Links in a link's text do not nest: only captions hold them.
        text = text.replace(_LINK_START, "").replace(_LINK_LIMIT, "")
        if not text.strip():
            # "[[Mercury (planet)|]]" shows "Mercury".
            text = re.sub(r"\s*\([^()]*\)$", "", rest if colon else title)
        return text

    def _tag(self, node, before):
        if node.wiki_markup in ("*", "#", ":", ";"):
            return _ITEM
        name = str(node.tag).strip().lower()
        if name == "table" and self._keep_tables:
            return self._table(node)
        if name == "br" and self._in_cell:
            return "\n"
        if name in ("table", "tr", "td", "th", "hr", "br"):
            return " " if name == "br" else "\n\n"
        if name == "nowiki":
            return _escaped(str(node.contents or ""))
        if node.contents is None or re.fullmatch(
            wikipedia.DROPPED_ELEMENTS, name
        ):
            return ""
        if any(
            "display:none" in str(a).replace(" ", "") for a in node.attributes
        ):
            return ""
        text = self.render(node.contents)
        if name == "li":
            return f"\n{_ITEM}{text}\n"
        if name in ("p", "div", "blockquote", "center", "poem", "ul", "ol"):
            return f"\n\n{text}\n\n"
        if (
            name == "sup"
            and before[-1:].isdigit()
            and text.strip("-−+").isdigit()
        ):
            # 10<sup>6</sup> is not 106.
            return f"^{text}"
        return text


def _as_paragraphs(lines):
    return "".join(f"\n\n{line}\n\n" for line in lines)


def _is_language(title):
    # "[[de:Anarchismus]]" stands in the sidebar.
    return re.match(r"(?:[a-z]{2,3}|simple|[a-z]{2,3}-[a-z-]+)\s*:", title)


def _escaped(text):
    return _MARKS.sub("", text).replace("'", _APOSTROPHE).replace("<", _LESS)


def _finish(text):
    """Text with marks to paragraphs and link places."""
    paragraphs = []
    starts = []
    limits = []
    offset = 0
    for is_item, paragraph in _paragraphs(residue.strip_markup(text)):
        paragraph = residue.tidy(paragraph)
        paragraph = paragraph.replace(_APOSTROPHE, "'").replace(_LESS, "<")
        plain, link_starts, link_limits = _take_links(paragraph)
        if not any(character.isalpha() for character in plain):
            continue
        if is_item and not _is_prose(plain):
            continue
        paragraphs.append(plain)
        starts += [offset + start for start in link_starts]
        limits += [offset + limit for limit in link_limits]
        offset += len(plain) + 1
    return PlainText("\n".join(paragraphs), starts, limits)


def _paragraphs(text):
    """Yields (is a list item, text): lines of one paragraph are joined."""
    lines = []
    in_table = False
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        in_table = bool(stripped) and (in_table or stripped.startswith("{|"))
        if stripped.startswith(("|", "{|")) or (
            in_table and stripped.startswith("!")
        ):
            # What a malformed table or infobox leaves.
            stripped = ""
        is_item = stripped.startswith(_ITEM)
        if (is_item or not stripped) and lines:
            yield False, " ".join(lines)
            lines = []
        if is_item:
            item = stripped.lstrip(_ITEM + " ").replace(_ITEM, ": ")
            yield True, _drop_quotes(item)
        elif stripped:
            lines.append(_drop_quotes(stripped.replace(_ITEM, ": ")))


def _drop_quotes(line):
    """Drops the marks of bold and italics as MediaWiki reads them.

    Two are italics, three bold, five both; of others the surplus is text. If
    bold and italics are both left open, the first bold is an apostrophe and
    italics: "''ship'''s" is "ship's".
    """
    if "''" not in line:
        return line
    runs = [match.group() for match in _QUOTES.finditer(line)]
    sizes = [3 if len(run) == 4 else min(len(run), 5) for run in runs]
    surplus = [len(run) - size for run, size in zip(runs, sizes, strict=True)]
    bold = sum(size in (3, 5) for size in sizes)
    italic = sum(size in (2, 5) for size in sizes)
    if bold % 2 and italic % 2 and 3 in sizes:
        surplus[sizes.index(3)] += 1
    kept = iter(surplus)
    return _QUOTES.sub(lambda match: "'" * next(kept), line)


def _take_links(paragraph):
    """Collapses white space and turns the marks of links into places."""
    # A link begins and ends with a word: white space goes out of it.
    first, *rest = _LINK.split(paragraph)
    marked = _LINK_MARK.sub("", first)
    for before, shown, after, text in zip(
        rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True
    ):
        link = f"{_LINK_START}{shown}{_LINK_LIMIT}" if shown else ""
        marked += before + link + after + _LINK_MARK.sub("", text)
    # Marks come in pairs now: every second piece is a link.
    plain, places = "", []
    for piece in _LINK_MARK.split(" ".join(marked.split())):
        plain += piece
        places.append(len(plain))
    return plain, places[:-1:2], places[1::2]


def _is_prose(item):
    return len(item) >= MIN_ITEM_LENGTH and bool(_SENTENCE_END.search(item))
