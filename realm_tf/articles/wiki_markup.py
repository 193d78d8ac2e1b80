"""Wiki markup to plain text, with the places of the wiki links.

mwparserfromhell reads the markup. This module decides which parts a reader of
the article sees as running text, before the parser (comments, references,
sections such as "See also") and after it (remains of malformed markup).

List items are kept only if they read like a sentence: at least
`MIN_ITEM_LENGTH` code points and a full stop, question or exclamation mark
at the end. Section headings are never kept, tables and infoboxes on request:
each table row becomes a line that repeats the column headers, as in
`table_rows.table_lines`, and each row of an infobox a line with its name.

Of templates see `wiki_templates`.
"""

import html
import re

import mwparserfromhell
from mwparserfromhell import nodes

from realm_tf.articles import table_rows
from realm_tf.articles import wiki_templates
from realm_tf.articles.pages import INVISIBLE
from realm_tf.articles.pages import PlainText
from realm_tf.articles.wiki_templates import NAMES

_DROPPED_ELEMENTS = "|".join(NAMES["dropped_elements"])

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
_EMPTY_ELEMENT = re.compile(rf"<(?:{_DROPPED_ELEMENTS})\b[^<>]*/>", re.I)
_HEADING = re.compile(r"^(={1,6})[ \t]*(.+?)[ \t]*\1[ \t]*$", re.MULTILINE)
# "[[de:Anarchismus]]" is shown in the sidebar.
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple|[a-z]{2,3}-[a-z-]+)\s*:")
_SWITCH = re.compile(r"__[A-Z]{3,}__")
# A word in each script, such as "-{zh-hans:A; zh-hant:B}-", after flags.
_VARIANTS = re.compile(r"-\{(?:([A-Z+-]*)\|)?([^{}]*)\}-")
_SCRIPT = re.compile(r"\s*(?:zh|sr|kk|uz|ku|iu|tg|crh|gan|shi)[a-z-]*\s*:\s*")

# Bold and italics, but not the apostrophe in "''ship'''s".
_QUOTES = re.compile(r"'{2,}?(?='s\b)|'{2,}")
_TRAIL = re.compile("[a-z]+")

_SENTENCE_END = re.compile(r"[.!?…。！？।][\"'”’»)\]]*$")
_LINK_MARK = re.compile(f"[{_LINK_START}{_LINK_LIMIT}]")
# White space, what the link shows, white space.
_LINK = re.compile(
    rf"{_LINK_START}(\s*)([^{_LINK_START}{_LINK_LIMIT}]*?)(\s*){_LINK_LIMIT}"
)

# --- Remains of malformed markup.
_ELEMENT = re.compile(
    rf"<({_DROPPED_ELEMENTS})\b[^<>]*>.*?</\1\s*>", re.I | re.DOTALL
)
_TAG_RESIDUE = re.compile(
    rf"</?(?:{'|'.join(NAMES['tags'])})\b[^<>]*/?>", re.IGNORECASE
)
_BRACKET_RESIDUE = re.compile(r"\[\[|\]\]|\{\{+|\}\}+|\{\||\|\}")
_SEPARATORS = r"[\s,;:/–—-]|\bor\b|\band\b"
_EMPTY_BRACKETS = re.compile(
    rf"\s?\((?:{_SEPARATORS}|pronounced|pronunciation)*\)"
)
_BRACKET_START = re.compile(r"\([\s,;:]+")
_BRACKET_END = re.compile(r"[\s,;:]+\)")
_DOUBLE_SEPARATOR = re.compile(r"([,;])(?:\s*[,;])+")
_LOOSE_PUNCTUATION = re.compile(r"\s+([,;:]|\.(?!\w|\.))(?=\s|$)")

# What the parser looks for the end of. No article has so many without one.
_PAIRS = [
    (re.compile(opens, re.I), re.compile(closes, re.I))
    for opens, closes in (
        (r"\{\{", r"\}\}"),
        (r"\[\[", r"\]\]"),
        (r"\[(?=http|//)", r"\]"),
        (r"\{\|", r"\|\}"),
        (r"<(?=[a-z][^<>]*+(?!>))", r"(?!)"),
        (
            r"<(?!br\b|hr\b|li\b|t[dhr]\b|d[dt]\b)[a-z][^<>]*>",
            r"</[a-z]|/>",
        ),
    )
]
_MOST_UNCLOSED = 100

# --- Tables and templates.
# What a template leaves that stands for the rest of a cell: its attributes.
_ATTRIBUTES = re.compile(r'^(?:[a-z]+\s*=\s*(?:"[^"]*"|\S+)\s*)+', re.I)


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
        keep_tables: bool. Keep the rows of tables and infoboxes, each as a
            paragraph. Defaults to `False`.

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


def _without_unclosed(markup):
    """Markup without what opens again and again and is never closed.

    The parser goes through the rest of the page for each.
    """
    for opens, closes in _PAIRS:
        num_open = sum(1 for _ in opens.finditer(markup))
        num_closed = sum(1 for _ in closes.finditer(markup))
        if num_open - num_closed > _MOST_UNCLOSED:
            markup = opens.sub(" ", markup)
    return markup


def _drop_apparatus(markup):
    """Drops comments, references, headings and sections of references."""
    markup = _VARIANTS.sub(_variant, _COMMENT.sub("", markup))
    markup = _without_unclosed(_EMPTY_ELEMENT.sub("", markup))
    markup = _ELEMENT.sub("", markup)
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
                level if title in NAMES["dropped_sections"] else None
            )
    if dropped_level is None:
        kept.append(markup[position:])
    return "\n\n".join(kept)


def _variant(match):
    """The first of the variants, if they are shown here."""
    if set(match[1] or "") & set("HTRD-"):
        return ""
    shown, *_ = match[2].split(";")
    return _SCRIPT.sub("", shown)


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
        name = " ".join(name.replace("_", " ").split()).lower()
        if self._keep_tables and wiki_templates.is_infobox(name):
            facts = {k: self._in_line(v) for k, v in arguments.items()}
            return _as_paragraphs(wiki_templates.infobox_lines(facts))
        return wiki_templates.text_of(
            name, arguments, self.render, "\n" if self._in_cell else ", "
        )

    def _table(self, table):
        captions = []
        lines = table_rows.lines_of(
            self._cells(tags, captions) for tags in _rows(table)
        )
        return _as_paragraphs([*captions, *lines])

    def _cells(self, tags, captions):
        """The cells of a row; adds captions among them to a list."""
        found = []
        for tag in tags:
            if str(tag.contents).startswith("+") or _name(tag) == "caption":
                caption = self._in_line(tag.contents, " ")
                captions.append(caption.lstrip("+ "))
                continue
            is_header = _name(tag) == "th"
            spans = (
                table_rows.span(
                    str(tag.get(name).value or "") if tag.has(name) else None
                )
                for name in ("rowspan", "colspan")
            )
            text = self._in_line(tag.contents, " " if is_header else ", ")
            text = _ATTRIBUTES.sub("", text)
            found.append(table_rows.Cell(text, is_header, *spans))
        return found

    def _in_line(self, code, separator=", "):
        """What a cell shows, its lines one after the other."""
        before, self._in_cell = self._in_cell, True
        text = self.render(code).replace(_ITEM, "\n")
        self._in_cell = before
        lines = (" ".join(line.split()) for line in text.split("\n"))
        return separator.join(filter(None, lines))

    def _link(self, node):
        title = str(node.title).strip()
        prefix, colon, _ = title.partition(":")
        prefix = prefix.strip().lower()
        if colon and (prefix in self._silent or _LANGUAGE.match(title)):
            return ""
        if node.text is None:
            return _escaped(html.unescape(title.lstrip(":")))
        # Links in a link's text do not nest: only captions hold them.
        return _LINK_MARK.sub("", self.render(node.text))

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
        if node.contents is None or name in NAMES["dropped_elements"]:
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


def _escaped(text):
    return _MARKS.sub("", text).replace("'", _APOSTROPHE).replace("<", _LESS)


def _finish(text):
    """Text with marks to paragraphs and link places."""
    paragraphs = []
    starts = []
    limits = []
    offset = 0
    # Tags that the parser did not understand.
    text = _TAG_RESIDUE.sub("", text)
    for is_item, paragraph in _paragraphs(text):
        paragraph = _tidy(paragraph)
        paragraph = paragraph.replace(_APOSTROPHE, "'").replace(_LESS, "<")
        plain, link_starts, link_limits = _take_links(paragraph)
        if not any(character.isalpha() for character in plain):
            continue
        if is_item and not (
            len(plain) >= MIN_ITEM_LENGTH and _SENTENCE_END.search(plain)
        ):
            continue
        paragraphs.append(plain)
        starts += [offset + start for start in link_starts]
        limits += [offset + limit for limit in link_limits]
        offset += len(plain) + 1
    return PlainText("\n".join(paragraphs), starts, limits)


def _paragraphs(text):
    """Yields (is a list item, text): lines of one paragraph are joined."""
    lines = []
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        # What a malformed table or infobox leaves.
        if stripped.startswith(("|", "{|", "!")):
            stripped = ""
        is_item = stripped.startswith(_ITEM)
        if (is_item or not stripped) and lines:
            yield False, " ".join(lines)
            lines = []
        if is_item:
            item = stripped.lstrip(_ITEM + " ").replace(_ITEM, ": ")
            yield True, item
        elif stripped:
            lines.append(stripped.replace(_ITEM, ": "))


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


def strip_tags(text: str) -> str:
    """Text without the elements and tags that an extractor left in it."""
    return _TAG_RESIDUE.sub("", _ELEMENT.sub("", text))


def _tidy(paragraph: str) -> str:
    """Drops residue and what dropped templates leave: "(; born 1950)"."""
    paragraph = _QUOTES.sub("", INVISIBLE.sub("", paragraph))
    paragraph = _BRACKET_RESIDUE.sub("", paragraph)
    paragraph = _EMPTY_BRACKETS.sub("", paragraph)
    paragraph = _BRACKET_START.sub("(", paragraph)
    paragraph = _BRACKET_END.sub(")", paragraph)
    paragraph = _DOUBLE_SEPARATOR.sub(r"\1", paragraph)
    paragraph = _LOOSE_PUNCTUATION.sub(r"\1", paragraph)
    return paragraph


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
    return [first, *rest] if first else rest


def _name(node):
    return str(getattr(node, "tag", "")).strip().lower()
