"""Reading articles: dumps of a wiki, rows, documents, REALM's own blocks.

Every format becomes a stream of `Page`, in the order of the file, one at a
time: a dump is never in memory as a whole. `drop_reason` and `article_text`
decide which pages are articles and what of them is text.
"""

from collections.abc import Iterator

from realm_tf.articles import converted
from realm_tf.articles import documents
from realm_tf.articles import mediawiki
from realm_tf.articles import pages
from realm_tf.articles import published_texts
from realm_tf.articles import rows
from realm_tf.articles import wiki_markup
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import PlainText
from realm_tf.articles.pages import open_bytes
from realm_tf.articles.pages import page_url
from realm_tf.articles.pages import valid_text
from realm_tf.errors import InputError

# Modules of this folder with their `FORMATS`. A file is of the first format
# whose `is_in` says so.
_MODULES = (mediawiki, rows, published_texts, documents, converted)
_FORMATS = {each.name: each for module in _MODULES for each in module.FORMATS}
FORMATS = tuple(_FORMATS)
MEDIAWIKI = mediawiki.MEDIAWIKI.name

# Guu et al., 2020; original code: language/orqa/preprocessing.
LIST_TITLES = (
    *("List of ", "Index of ", "Outline of "),
    *("Liste der ", "Liste des ", "Liste von "),
)

# How much of a file decides its format, and how much a message shows of one
# that has none.
_HEAD_BYTES = 1 << 16
_SHOWN_BYTES = 40
_EXPECTED = (
    "the extension of a document (.md, .html, .txt, .pdf, .docx, ...) or table "
    "(.csv, .tsv, .jsonl, .parquet), a MediaWiki dump (.xml), or without "
    "extension what begins as one of these. `realm chunk --format` names the "
    "format if it is one of these."
)


class UnknownFormat(InputError):
    """A file that nothing here can read."""


def detect_format(path: str) -> str:
    """The format of a file, from its extension, else from its first bytes.

    Args:
        path: str. May be compressed (bz2, gzip), whatever its name.

    Returns:
        str, one of `FORMATS`.

    Raises:
        UnknownFormat: if neither is of a known format; it shows the extension,
            or how the file begins.
        InputError: if the file is damaged.
    """
    with open_bytes(path) as file:
        head = file.read(_HEAD_BYTES)
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    named = [each for each in _FORMATS.values() if each.is_named(path)]
    # The extension decides, the content where there is none, or among those of
    # one extension.
    extension = pages.extension_of(path)
    for format in named or ([] if extension else _FORMATS.values()):
        if format.is_in and format.is_in(head, text):
            return format.name
    if named:
        return named[-1].name
    if extension:
        raise UnknownFormat(
            f"{path} is of no known format (extension .{extension}): expected "
            f"{_EXPECTED}"
        )
    shown = f"begins with {head[:_SHOWN_BYTES]!r}" if text else "is empty"
    raise UnknownFormat(
        f"{path} is of no known format (it {shown}): expected {_EXPECTED}"
    )


def read_pages(
    path: str, *, format: str | None = None, base_url: str | None = None
) -> Iterator[Page]:
    """All pages of a file, in their order.

    Args:
        path: str. May be compressed (bz2, gzip), whatever its name.
        format: str. One of `FORMATS`. Defaults to `None`: by content.
        base_url: str. What comes before the title in the URL of a page that
            brings none, such as `"https://en.wikipedia.org/wiki/"`. Defaults
            to `None`: for a dump what its `<siteinfo>` says, else no URL.

    Yields:
        `Page`.

    Raises:
        InputError: if the file is missing or damaged, or a line is not of
            the format; file and line are named. A row that can be read but
            lacks a field is a page with `dropped` set.
    """
    format = format or detect_format(path)
    with open_bytes(path) as file:
        for page in _FORMATS[format].read(file, path, base_url):
            page.article_id = valid_text(page.article_id)
            page.title = " ".join(valid_text(page.title).split())
            page.text, page.url = valid_text(page.text), valid_text(page.url)
            if not page.url and base_url and page.title:
                page.url = page_url(base_url, page.title)
            yield page


def drop_reason(
    page: Page, *, format: str, keep_all_titles: bool = False
) -> str:
    """Why a page is not an article of the corpus, or `""` if it is one.

    Args:
        page: `Page`.
        format: str. The format it was read from.
        keep_all_titles: bool. Keep pages whose title says that they are a
            list or a disambiguation. Defaults to `False`, as in the paper.

    Returns:
        str, the end of a counter's name: `"redirect"`, `"namespace"`,
        `"list_title"`, `"disambiguation"` or `"bad_record_..."`.
    """
    if page.dropped:
        return page.dropped
    if not keep_all_titles and page.title.startswith(LIST_TITLES):
        return "list_title"
    title = "" if keep_all_titles else page.title
    markup = page.text if format == MEDIAWIKI else ""
    if mediawiki.is_disambiguation(title, markup):
        return "disambiguation"
    return ""


def article_text(
    page: Page, *, format: str, keep_tables: bool = False
) -> PlainText:
    """The running text of a page: one paragraph a line, single spaces.

    Wiki markup is removed from dumps; left-over tags and entities from what
    WikiExtractor wrote. In rows of the other formats only white space
    changes. A first line that repeats the title is dropped.

    Args:
        page: `Page`.
        format: str. The format it was read from.
        keep_tables: bool. Tell the rows of tables and infoboxes of wiki markup
            (those of documents always are). Defaults to `False`.
    """
    if format == MEDIAWIKI:
        plain = wiki_markup.to_plain_text(
            page.text,
            silent_prefixes=page.silent_prefixes,
            keep_tables=keep_tables,
        )
    else:
        plain = _FORMATS[format].text(page)
    plain.title = page.title
    return plain
