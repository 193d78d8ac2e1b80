"""Reading single documents: plain text, Markdown, HTML, PDF.

A section below a heading becomes a page of its own, whose title is that of the
document and the headings: so each of its blocks is found, read and shown with
them. (A document without a title has the name of its file.) What stands in
Markdown's front matter and in the `<meta>` of HTML are fields of all sections.
A file that cannot be read is counted and named, and the rest goes on.
"""

import collections
import html
import io
import os
import re
import sys
import urllib.parse

from realm_tf.articles import html_sections
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page

_HTML = ("<!doctype html", "<html")
UNREADABLE = "bad_record_document"
# YAML that site generators keep above the text. As in Pandoc, an empty line
# after the first mark makes a rule of it.
_FRONT_MATTER = re.compile(
    r"\A---[ \t\r]*(\n(?![ \t\r]*\n).*?)^---\s*?$", re.DOTALL | re.MULTILINE
)
_TAG = re.compile(r"<([a-z][\w-]*)[^<>]*>", re.I)
# HTML needs no closing tag of these.
_UNCLOSED = (
    *("br", "hr", "img", "input", "p", "li"),
    *("dd", "dt", "td", "th", "tr"),
)
# An item of a list in plain text.
_ITEM = re.compile(r"(?:[-*\u2022\u2013]|\d{1,3}[.)])\s+\S")
_COMPRESSED = re.compile(r"\.(gz|bz2)$")
_HYPHENS = ("-", "\u00ad", "\u2010")


def _reader(parse):
    """Makes a `Format.read` that yields a page for each section.

    A file that cannot be read is reported and counted as one dropped page.

    Args:
        parse: function of a binary file and its path that returns a title, a
            list of `Section` and a mapping of fields.
    """

    def read(file, path, base_url):
        try:
            yield from _pages(*parse(file, path), path, base_url)
        except ImportError:
            raise
        # Libraries raise many types of exception for a damaged file.
        except Exception as error:
            print(
                f"warning: {path} cannot be read ({type(error).__name__}: "
                f"{' '.join(str(error).split())}) and is left out.",
                file=sys.stderr,
            )
            yield Page(1, path, dropped=UNREADABLE)

    return read


def _parse_markdown(file, path):
    # Only documents need these libraries, and importing them takes time.
    import markdown_it

    renderer = markdown_it.MarkdownIt("commonmark").enable("table")
    for kind in ("html_block", "html_inline"):
        renderer.add_render_rule(kind, _tags_alone)
    fields, text = _without_front_matter(_decoded(file), path)
    markup = renderer.render(text, {"text": text.lower()})
    title, sections, _ = html_sections.read(markup)
    own_title = fields.get("title")
    if isinstance(own_title, str):
        title = " ".join(own_title.split()) or title
    return title, sections, fields


def _tags_alone(renderer, tokens, place, options, env):
    """HTML in Markdown, but for what nothing closes: "<name>" is a word."""
    return _TAG.sub(
        lambda tag: (
            tag[0]
            if tag[1].lower() in _UNCLOSED
            or f"</{tag[1].lower()}" in env["text"]
            else html.escape(tag[0])
        ),
        tokens[place].content,
    )


def _without_front_matter(text, path):
    """(the values of the front matter by name, the text below it)."""
    import yaml

    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    try:
        # With the line feed after its mark: errors name the line of the file.
        fields = yaml.safe_load(found[1]) or {}
    # PyYAML lets through what Python raises, as for a 30th of February.
    except Exception as error:
        print(
            f"warning: {path} begins with front matter that is not YAML "
            f"({' '.join(str(error).split())}) and is read without it.",
            file=sys.stderr,
        )
        fields = {}
    if not isinstance(fields, dict):
        # Words between two rules.
        return {}, text
    return fields, text[found.end() :]


def _parse_html(file, path):
    return html_sections.read(file.read())


def _parse_text(file, path):
    # Empty lines and the items of lists separate paragraphs.
    paragraphs, words = [], []
    for line in (*_decoded(file).splitlines(), ""):
        line = line.strip()
        if words and (not line or _ITEM.match(line)):
            paragraphs.append(" ".join(words))
            words = []
        if line:
            words.append(line)
    return "", [html_sections.Section([], "", paragraphs)], {}


def _parse_pdf(file, path):
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(file.read()))
    title = (reader.metadata and reader.metadata.title) or ""
    sections = [
        html_sections.Section(
            [], f"page={number}", _paragraphs(page.extract_text())
        )
        for number, page in enumerate(reader.pages, start=1)
    ]
    return title, sections, {}


def _decoded(file):
    return file.read().decode("utf-8-sig")


def _paragraphs(text):
    """The lines of a page of a PDF, those of one sentence joined again."""
    found = [""]
    for line in text.splitlines():
        line = " ".join(line.split())
        if not line:
            found.append("")
        elif found[-1].endswith(_HYPHENS) and line[:1].islower():
            found[-1] = found[-1][:-1] + line
        else:
            found[-1] = f"{found[-1]} {line}".strip()
    return [paragraph for paragraph in found if paragraph]


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
    name = urllib.parse.quote(os.path.basename(path))
    return f"{base_url.rstrip('/')}/{name}"


def name_of(path: str) -> str:
    """The name of a file as a title: without folder and suffix."""
    name = _COMPRESSED.sub("", os.path.basename(path))
    return os.path.splitext(name)[0].replace("_", " ")


def suffix(*suffixes: str):
    """A function of a path: whether a name, also a compressed one, ends so."""
    return lambda path: _COMPRESSED.sub("", path.lower()).endswith(suffixes)


FORMATS = (
    Format(
        "html",
        lambda head, text: text[:100].lower().startswith(_HTML),
        _reader(_parse_html),
        is_named=suffix(".html", ".htm"),
    ),
    Format(
        "pdf", lambda head, text: head.startswith(b"%PDF-"), _reader(_parse_pdf)
    ),
    Format(
        "markdown",
        None,
        _reader(_parse_markdown),
        is_named=suffix(".md", ".markdown"),
    ),
    Format("text", None, _reader(_parse_text), is_named=suffix(".txt")),
)
