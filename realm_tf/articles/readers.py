"""Reading articles: MediaWiki XML, WikiExtractor, JSONL, DPR's TSV, REALM's own.

Every format becomes a stream of `Page`, in the order of the file, one at a
time: a dump is never in memory as a whole. `drop_reason` and `article_text`
decide which pages are articles and what of them is text.
"""

import contextlib
import csv
import html
import json
import re
from collections.abc import Iterator

from realm_tf.articles import multistream
from realm_tf.articles import published_texts
from realm_tf.articles import wiki_markup
from realm_tf.articles.mediawiki import read_mediawiki
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import open_bytes
from realm_tf.articles.pages import page_url
from realm_tf.articles.pages import read_lines
from realm_tf.errors import InputError

MEDIAWIKI = "mediawiki"
WIKIEXTRACTOR = "wikiextractor"
WIKIEXTRACTOR_JSON = "wikiextractor-json"
JSONL = "jsonl"
DPR = "dpr"
BLOCK_RECORDS = "block-records"
ORQA = "orqa"
FORMATS = (
    MEDIAWIKI,
    WIKIEXTRACTOR,
    WIKIEXTRACTOR_JSON,
    JSONL,
    DPR,
    BLOCK_RECORDS,
    ORQA,
)

# facebookresearch/DPR, psgs_w100.tsv.
DPR_HEADER = ["id", "text", "title"]

# Guu et al., 2020; original code: language/orqa/preprocessing.
LIST_TITLES = ("List of ", "Index of ", "Outline of ")

_DOC = re.compile(r'<doc id="([^"]*)"(.*?) title="(.*)">\s*$')
_DOC_URL = re.compile(r' url="([^"]*)"')
_SURROGATE = re.compile("[\ud800-\udfff]")
# How much of a file decides its format.
_HEAD_BYTES = 1 << 16


def detect_format(path: str) -> str:
    """The format of a file, from its first bytes.

    Args:
        path: str. May be compressed (bz2, gzip), whatever its name.

    Returns:
        str, one of `FORMATS`.

    Raises:
        InputError: if the content is of no known format or is damaged.
    """
    with open_bytes(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"\x93NUMPY"):
        return BLOCK_RECORDS
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    first_line = text.split("\n", 1)[0].rstrip("\r")
    if text.startswith(("<mediawiki", "<?xml")) and "<mediawiki" in text:
        return MEDIAWIKI
    if text.startswith("<doc "):
        return WIKIEXTRACTOR
    if text.startswith("{"):
        return _detect_json(first_line)
    if first_line.split("\t")[:3] == DPR_HEADER:
        return DPR
    what = "is empty" if not text else "is of no known format"
    raise InputError(
        f"{path} {what}: expected a MediaWiki XML dump, WikiExtractor output, "
        'JSONL with "id", "title" and "text", a TSV with the header id, text, '
        "title, or REALM's published blocks (block_records.npy; blocks.tfr "
        f"with --format {ORQA}). Name it with --format if it is one of these."
    )


def _detect_json(line: str) -> str:
    try:
        keys = set(json.loads(line))
    except ValueError:
        # Broken or longer than the head; the reader says where.
        return JSONL
    # wikiextractor --json writes these and no others, with ?curid= URLs.
    wikiextractor = {"id", "url", "title", "text"}
    if wikiextractor <= keys <= wikiextractor | {"revid"} and "?curid=" in line:
        return WIKIEXTRACTOR_JSON
    return JSONL


def read_pages(
    path: str,
    *,
    format: str | None = None,
    base_url: str | None = None,
    streams: multistream.StreamRange | None = None,
) -> Iterator[Page]:
    """All pages of a file, in their order.

    Args:
        path: str. May be compressed (bz2, gzip), whatever its name.
        format: str. One of `FORMATS`. Defaults to `None`: by content.
        base_url: str. What comes before the title in the URL of a page that
            brings none, such as `"https://en.wikipedia.org/wiki/"`. Defaults
            to `None`: for a dump what its `<siteinfo>` says, else no URL.
        streams: `StreamRange`. The pages of a multistream dump to read.
            Defaults to `None`: the whole file, from the front.

    Yields:
        `Page`.

    Raises:
        InputError: if the file is missing or damaged, or a line is not of
            the format; file and line are named. A row that can be read but
            lacks a field is a page with `dropped` set.
    """
    format = format or detect_format(path)
    if format not in FORMATS:
        raise InputError(
            f"--format {format} is unknown: expected one of "
            f"{', '.join(FORMATS)}."
        )
    with contextlib.ExitStack() as stack:
        if streams is not None:
            file = stack.enter_context(multistream.open_range(path, streams))
            pages = read_mediawiki(
                file, path, base_url, first_number=streams.first_number
            )
            pages = multistream.check_pages(pages, path, streams)
        else:
            file = stack.enter_context(open_bytes(path))
            pages = _reader(format)(file, path, base_url)
        for page in pages:
            page.title = " ".join(_valid(page.title).split())
            page.text = _valid(page.text)
            if not page.url and base_url and page.title:
                page.url = page_url(base_url, page.title)
            yield page


def _reader(format):
    if format == MEDIAWIKI:
        return read_mediawiki
    if format == WIKIEXTRACTOR:
        return _read_wikiextractor
    if format == BLOCK_RECORDS:
        return lambda file, path, _: published_texts.read_records(path)
    if format == ORQA:
        return lambda file, path, _: published_texts.read_tfrecords(path)
    return _read_dpr if format == DPR else _read_json


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
    if wiki_markup.is_disambiguation(title, markup):
        return "disambiguation"
    return ""


def article_text(page: Page, *, format: str) -> wiki_markup.PlainText:
    """The running text of a page: one paragraph a line, single spaces.

    Wiki markup is removed from dumps; left-over tags, links and entities from
    what WikiExtractor wrote. In rows of the other formats only white space
    changes. A first line that repeats the title is dropped.
    """
    if format == MEDIAWIKI:
        return wiki_markup.to_plain_text(
            page.text, silent_prefixes=page.silent_prefixes
        )
    text = page.text
    if format in (WIKIEXTRACTOR, WIKIEXTRACTOR_JSON):
        text = wiki_markup.strip_residue(html.unescape(text))
    text = wiki_markup.plain_paragraphs(text)
    first_line, _, rest = text.partition("\n")
    # WikiExtractor repeats the title of a page without text too.
    if first_line == page.title and (rest or format == WIKIEXTRACTOR):
        text = rest
    return wiki_markup.PlainText(text)


def _valid(text):
    # JSON can spell half a surrogate pair, which UTF-8 cannot hold.
    return _SURROGATE.sub("\ufffd", text)


def _read_wikiextractor(file, path, _):
    number = 0
    page = None
    body = []
    for line_number, line in read_lines(file, path):
        if page is None:
            if not line.strip():
                continue
            match = _DOC.match(line)
            if not match:
                raise InputError(
                    f"{path}:{line_number}: expected <doc id=... url=... "
                    f"title=...> as WikiExtractor writes it, found "
                    f"{line[:40]!r}."
                )
            number += 1
            article_id, attributes, title = match.groups()
            url = _DOC_URL.search(attributes)
            page = Page(
                number,
                f"{path}:{line_number}",
                article_id=article_id,
                title=html.unescape(title),
                url=html.unescape(url[1]) if url else "",
            )
        elif line.strip() == "</doc>":
            page.text = "\n".join(body)
            yield page
            page = None
            body = []
        else:
            body.append(line)
    if page is not None:
        raise InputError(
            f"{page.place}: the file ends before </doc>; it is truncated. "
            "Run WikiExtractor again."
        )


def _read_json(file, path, _):
    number = 0
    for line_number, line in read_lines(file, path):
        if not line.strip():
            continue
        number += 1
        place = f"{path}:{line_number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            message = getattr(error, "msg", None) or type(error).__name__
            column = getattr(error, "colno", 1)
            raise InputError(
                f"{place}: broken JSON at column {column} ({message}): "
                'expected {"id": ..., "title": ..., "text": ...} on one line.'
            ) from error
        yield _json_page(row, number, place)


def _json_page(row, number, place):
    page = Page(number, place)
    if not isinstance(row, dict):
        page.dropped = "bad_record_no_object"
        return page
    article_id = row.get("id")
    if isinstance(article_id, int) and not isinstance(article_id, bool):
        article_id = str(article_id)
    if not isinstance(article_id, str) or not article_id:
        page.dropped = "bad_record_no_id"
    elif not isinstance(row.get("title"), str):
        page.dropped = "bad_record_no_title"
    elif not isinstance(row.get("text"), str):
        page.dropped = "bad_record_no_text"
    else:
        page.article_id = _valid(article_id)
        page.title = row["title"]
        page.text = row["text"]
        if isinstance(row.get("url"), str):
            page.url = _valid(row["url"])
    return page


def _read_dpr(file, path, _):
    # The default, 128 KiB, is shorter than a long article.
    csv.field_size_limit(1 << 30)
    number = 0
    for line_number, line in read_lines(file, path):
        row = _split_columns(line)
        if line_number == 1:
            if row[:3] != DPR_HEADER:
                raise InputError(
                    f"{path}:1: expected the header id, text, title "
                    f"(tab-separated), found {line[:60]!r}."
                )
            continue
        if not line.strip():
            continue
        number += 1
        page = Page(number, f"{path}:{line_number}")
        if len(row) < 3:
            page.dropped = "bad_record_columns"
        elif not row[0]:
            page.dropped = "bad_record_no_id"
        else:
            page.article_id, page.text, page.title = row[:3]
        yield page


def _split_columns(line):
    # Line by line, so that a stray quote spoils one row only.
    try:
        return next(csv.reader([line], delimiter="\t"), [])
    except csv.Error:
        return []
