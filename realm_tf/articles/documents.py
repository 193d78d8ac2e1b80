"""Reading single documents: plain text, Markdown, HTML, PDF.

A section below a heading becomes a page of its own, whose title is that of the
document and the headings: so each of its blocks is found, read and shown with
them. What stands in Markdown's front matter and in the `<meta>` of HTML are
fields of all sections. A file that cannot be read is counted and named, and the
rest goes on.
"""

import collections
import contextlib
import io
import os
import re
import sys

from realm_tf.articles import html_sections
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page

_HTML = ("<!doctype html", "<html")
_UNREADABLE = "bad_record_document"
# What site generators keep above the text, in YAML.
_FRONT_MATTER = re.compile(
    r"\A(---\r?\n.*?)^---\s*?$", re.DOTALL | re.MULTILINE
)


def _read_markdown(file, path, base_url):
    # Only documents need these libraries, and importing them takes time.
    import markdown_it

    with _named(path) as failed:
        renderer = markdown_it.MarkdownIt("commonmark").enable("table")
        text = _decoded(file)
        found = _FRONT_MATTER.match(text)
        fields = _front_matter(found[1], path) if found else {}
        markup = renderer.render(text[found.end() :] if found else text)
        title, sections, _ = html_sections.read(markup)
        own_title = fields.get("title")
        if isinstance(own_title, str):
            title = " ".join(own_title.split()) or title
        yield from _pages(title, sections, path, base_url, fields)
    yield from failed


def _front_matter(text, path):
    """What front matter says, by name; what is none is named."""
    import yaml

    try:
        found = yaml.safe_load(text)
    # PyYAML lets through what Python raises, as for a 30th of February.
    except Exception as error:
        found, reason = text, " ".join(str(error).split())
    else:
        reason = "it names no values"
    if found is None:
        # Empty, or comments alone.
        return {}
    if isinstance(found, dict):
        return found
    print(
        f"warning: {path} begins with front matter that is not YAML of names "
        f"and values ({reason}) and is read without it.",
        file=sys.stderr,
    )
    return {}


def _read_html(file, path, base_url):
    with _named(path) as failed:
        title, sections, metadata = html_sections.read(file.read())
        yield from _pages(title, sections, path, base_url, metadata)
    yield from failed


def _read_text(file, path, base_url):
    with _named(path) as failed:
        lines = _decoded(file).splitlines()
        # Paragraphs are what empty lines separate.
        paragraphs, words = [], []
        for line in (*lines, ""):
            if line.strip():
                words.append(line.strip())
            elif words:
                paragraphs.append(" ".join(words))
                words = []
        section = html_sections.Section([], "", paragraphs)
        yield from _pages("", [section], path, base_url, {})
    yield from failed


def _read_pdf(file, path, base_url):
    import pypdf

    with _named(path) as failed:
        reader = pypdf.PdfReader(io.BytesIO(file.read()))
        title = (reader.metadata and reader.metadata.title) or ""
        sections = [
            html_sections.Section(
                [], f"page={number}", _paragraphs(page.extract_text())
            )
            for number, page in enumerate(reader.pages, start=1)
        ]
        yield from _pages(title, sections, path, base_url, {})
    yield from failed


@contextlib.contextmanager
def _named(path):
    """Names a file that cannot be read; yields the pages that count it."""
    failed = []
    try:
        yield failed
    # Libraries raise what they like about a damaged file.
    except Exception as error:
        print(
            f"warning: {path} cannot be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())}) and is left out.",
            file=sys.stderr,
        )
        failed.append(Page(1, path, dropped=_UNREADABLE))


def _decoded(file):
    return file.read().decode("utf-8-sig")


def _paragraphs(text):
    """The lines of a page of a PDF, those of one sentence joined again."""
    found = [""]
    for line in text.splitlines():
        line = " ".join(line.split())
        if not line:
            found.append("")
        elif found[-1].endswith("-") and line[:1].islower():
            found[-1] = found[-1][:-1] + line
        else:
            found[-1] = f"{found[-1]} {line}".strip()
    return [paragraph for paragraph in found if paragraph]


def _pages(title, sections, path, base_url, fields):
    name = os.path.basename(path)
    title = title or os.path.splitext(name)[0].replace("_", " ")
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
    name = os.path.basename(path)
    return f"{base_url.rstrip('/')}/{name}" if base_url else ""


def _suffix(*suffixes):
    return lambda path: path.lower().endswith(suffixes)


FORMATS = (
    Format(
        "html",
        lambda head, text: text[:100].lower().startswith(_HTML),
        _read_html,
        is_named=_suffix(".html", ".htm"),
    ),
    Format("pdf", lambda head, text: head.startswith(b"%PDF-"), _read_pdf),
    Format(
        "markdown", None, _read_markdown, is_named=_suffix(".md", ".markdown")
    ),
    Format("text", None, _read_text, is_named=_suffix(".txt")),
)
