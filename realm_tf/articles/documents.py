"""Reading single documents: plain text, Markdown, HTML, PDF.

A section below a heading becomes a page of its own, whose title is that of the
document and the headings: so each of its blocks is found, read and shown with
them. (A document without a title has the name of its file.) What stands in
Markdown's front matter and in the `<meta>` of HTML are fields of all sections.
A file that cannot be read is counted and named, and the rest goes on.
"""

import collections
import os
import re
import sys
import urllib.parse

from realm_tf.articles import html_sections
from realm_tf.articles import pages
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page

_HTML = ("<!doctype html", "<html")
UNREADABLE = "bad_record_document"
# YAML that site generators keep above the text. As in Pandoc, an empty line
# after the first mark makes a rule of it.
_FRONT_MATTER = re.compile(
    r"\A---[ \t\r]*(\n(?![ \t\r]*\n).*?)^(?:---|\.\.\.)\s*?$",
    re.DOTALL | re.MULTILINE,
)
_FENCE = "~" * 30
_NULL = ("~", "null", "Null", "NULL")
_TAG = re.compile(r"<(?=([a-z][\w-]*)(?![:@.\w-])[^<>]*>)", re.I)
_CLOSED = re.compile(r"</([a-z][\w-]*)", re.I)
# HTML needs no closing tag of these.
_UNCLOSED = frozenset(
    (
        *("br", "hr", "img", "input", "p", "li", "wbr", "meta", "link"),
        *("dd", "dt", "td", "th", "tr", "thead", "tbody", "tfoot", "option"),
    )
)
# "<" that is text and no markup, while Markdown is read.
_LESS = "\ue004"
_META = re.compile(
    rb"<(?:meta|\?xml)[^<>]*?(?:charset|encoding)\s*=\s*[\"']?([\w-]+)"
)
_HEAD_BYTES = 2048
# An item of a list in plain text.
_ITEM = re.compile(
    r"(?:[-*\u2022\u2013\u25aa\u25cf\u25e6\u2023]|\d{1,3}[.)])\s+\S"
)
# What stands in a line of its own: "Phone: 555", columns.
_ENTRY = re.compile(r"[^\W\d_][^:.?!]{0,30}:\s+\S|\S.*?(?:\t| {3,})\S")
# The line below a heading, and rules.
_RULE = re.compile(r"([-=~^*_#+.])\1{2,}$")
_HYPHENS = "-\u00ad\u2010"
_COMPOUND = re.compile(r"\w+(?:-\w+)+|\w+")
# A line that could have held the first word of the next one and still be so
# much shorter than the longest ends a paragraph (our choice).
_SHORT_LINE = 0.75
# Lengths of full lines where text is wrapped, and one that never is.
_WRAPPED = range(40, 120)
_LONG_LINE = 200
# "pre- and post-war".
_AND = ("and", "or", "to", "und", "oder", "bis", "et", "ou")
# What programs call a document that has no title.
_NO_TITLE = re.compile(
    r"\s*(microsoft \w+ - .*|(?:untitled|document|unbenannt)[\d\W]*"
    r"|\S+\.(?:docx?|dvi|indd|odt|pdf|pptx?|tex|xlsx?))?\s*$",
    re.I,
)
# Far longer than a book (our choice).
_MOST_PAGES = 5000


def reader(parse):
    """Makes a `Format.read` that yields a page for each section.

    A file that cannot be read is reported and counted as one dropped page.

    Args:
        parse: function of a binary file and its path that returns a title, a
            list of `Section` and a mapping of fields.
    """

    def read(file, path, base_url):
        try:
            yield from _pages(*parse(file, path), path, base_url)
        # Libraries raise many types of exception for a damaged file.
        except Exception as error:
            reason = pages.reason_of(error)
            print(
                f"warning: {path} cannot be read ({reason}) and is left out.",
                file=sys.stderr,
            )
            yield Page(1, path, text=reason, dropped=UNREADABLE)

    return read


def _parse_markdown(file, path):
    # Only documents need this library.
    from cmarkgfm import cmark

    text = pages.decoded(file, path).replace(_LESS, "")
    fields, text = _without_front_matter(text, path)
    closed = {name.lower() for name in _CLOSED.findall(text)} | _UNCLOSED
    # "<name>" is a word where nothing closes it.
    text = _TAG.sub(
        lambda tag: "<" if tag[1].lower() in closed else _LESS, text
    )
    markup = cmark.markdown_to_html_with_extensions(
        text,
        options=cmark.Options.CMARK_OPT_UNSAFE,
        extensions=["table", "strikethrough"],
    )
    title, sections, _ = html_sections.read(markup.replace(_LESS, "&lt;"))
    own_title = fields.get("title")
    if isinstance(own_title, str):
        title = " ".join(own_title.split()) or title
    return title, sections, fields


def _without_front_matter(text, path):
    """(the values of the front matter by name, the text below it)."""
    import yaml

    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    try:
        # As written: 1.10, no, 01067 and 12:30 are text. With the line feed
        # after its mark: errors name the line of the file.
        fields = yaml.load(found[1], yaml.BaseLoader) or {}
    except (yaml.YAMLError, RecursionError) as error:
        print(
            f"warning: {path} begins with front matter that is not YAML "
            f"({' '.join(str(error).split())}) and is read as text.",
            file=sys.stderr,
        )
        # Line by line, and no heading because of the mark below.
        return {}, f"{_FENCE}\n{found[1]}{_FENCE}\n{text[found.end() :]}"
    if not isinstance(fields, dict):
        # Words between two rules.
        return {}, text
    fields = {k: None if v in _NULL else v for k, v in fields.items()}
    return fields, text[found.end() :]


def _parse_html(file, path):
    declared = _META.search(file.read(_HEAD_BYTES))
    declared = declared and declared[1].decode("ascii", "replace")
    file.seek(0)
    return html_sections.read(pages.decoded(file, path, declared))


def _parse_text(file, path):
    text = pages.decoded(file, path)
    return "", [html_sections.Section([], "", paragraphs(text))], {}


def _parse_pdf(file, path):
    import pypdfium2

    content = pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
    # Some programs write something before it.
    content = content[max(0, content[:_HEAD_BYTES].find(b"%PDF-")) :]
    with pypdfium2.PdfDocument(content) as pdf:
        if len(pdf) > _MOST_PAGES:
            raise pages.Unreadable(
                f"it has {len(pdf):,} pages, and at most {_MOST_PAGES:,} are "
                "read: split it"
            )
        title = pdf.get_metadata_dict().get("Title", "")
        texts = [page.get_textpage().get_text_bounded() for page in pdf]
    # Where the library has joined a word that was broken.
    words = set(_COMPOUND.findall("\n".join(texts)))
    sections = [
        html_sections.Section(
            [],
            f"page={number}",
            paragraphs(re.sub("[\x02\ufffe]", "-\n", text), words),
        )
        for number, text in enumerate(texts, start=1)
    ]
    return "" if _NO_TITLE.match(title) else title, sections, {}


def paragraphs(text: str, words: set[str] | None = None) -> list[str]:
    """The paragraphs of text in lines, those of one sentence joined again.

    Empty lines separate paragraphs. So do items of lists, columns, indented
    lines, and lines that end long before the others. A word that a hyphen breaks
    is one word.

    Args:
        text: str.
        words: set of str. Of the document, if breaking words added hyphens:
            these are dropped, but for words that occur with them. Defaults to
            `None`: hyphens stay.
    """
    lines = [line.expandtabs().rstrip() for line in text.splitlines()]
    lengths = sorted(map(len, filter(None, lines)))
    # As long as most full lines are.
    width = lengths[len(lengths) * 9 // 10] if lengths else 0
    found, group = [], []
    for line in (*lines, ""):
        if line and not _RULE.match(line.strip()):
            group.append(line)
        elif group:
            longest = max(map(len, group))
            full = width if width in _WRAPPED else longest
            found += _joined(group, full if longest < _LONG_LINE else 0, words)
            group = []
    return found


def _joined(lines, width, words):
    """The lines of one group without an empty line, as paragraphs.

    Args:
        lines: list of str.
        width: int. Of a full line; 0 if lines are not wrapped.
        words: see `paragraphs`.
    """
    # Of each paragraph its pieces.
    found, last, margin = [], "", 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = " ".join(line.split())
        room = _SHORT_LINE * width - len(last) - 1
        begins = _ITEM.match(text) or _ENTRY.match(line.strip())
        if begins or indent >= margin + 4 or not (found and width):
            found.append([text])
            margin = indent
        elif _is_broken(last, text):
            found[-1] += _mended(found[-1].pop(), text, words)
        elif len(text.split(" ", 1)[0]) < room:
            found.append([text])
        else:
            found[-1] += [" ", text]
        last = line
    return ["".join(pieces) for pieces in found]


def _is_broken(before, after):
    """Whether a word goes on in the next line."""
    first = _COMPOUND.match(after)
    return (
        before[-1] in _HYPHENS
        and before[-2:-1].isalnum()
        and first is not None
        and first[0] not in _AND
    )


def _mended(before, after, words):
    """Two lines as the pieces of one, a broken word whole again."""
    first = before.split(" ")[-1][:-1]
    whole = f"{_COMPOUND.findall(first)[-1]}-{_COMPOUND.match(after)[0]}"
    is_added = (
        words is not None
        and after[0].islower()
        and first[-1].islower()
        and "-" not in first
        and whole not in words
    )
    return [before[:-1] if is_added else before, after]


def _pages(title, sections, fields, path, base_url):
    title = title or name_of(path)
    url = url_of(path, base_url)
    seen = collections.Counter()
    for number, section in enumerate(sections, start=1):
        headings = [each for each in section.headings if each != title]
        anchor = section.anchor and f"#{section.anchor}"
        # The id stays when sections come and go around it.
        name_in_file = ": ".join(headings) or section.anchor
        seen[name_in_file] += 1
        again = f"~{seen[name_in_file]}" if seen[name_in_file] > 1 else ""
        yield Page(
            number,
            f"{path}:section {number}",
            article_id=f"{path}#{name_in_file}{again}",
            title=": ".join((title, *headings)),
            text="\n".join(section.lines),
            url=url and url + anchor,
            fields=fields,
        )


def url_of(path: str, base_url: str | None) -> str:
    """Where a file can be read: its name below `base_url`, or `""`."""
    if not base_url:
        return ""
    name = urllib.parse.quote(os.path.basename(os.fsencode(path)))
    return f"{base_url.rstrip('/')}/{name}"


def name_of(path: str) -> str:
    """The name of a file as a title: without folder and suffix."""
    name = pages.COMPRESSED.sub("", os.path.basename(path))
    return os.path.splitext(name)[0].replace("_", " ")


def _begins_html(head, text):
    return text[:100].lower().startswith(_HTML)


def _begins_pdf(head, text):
    return head.startswith(b"%PDF-")


HTML = Format("html", _begins_html, reader(_parse_html), "html?|xhtml")
FORMATS = (
    HTML,
    Format("pdf", _begins_pdf, reader(_parse_pdf), "pdf"),
    Format("markdown", None, reader(_parse_markdown), "md|markdown"),
    Format("text", None, reader(_parse_text), "txt"),
)
