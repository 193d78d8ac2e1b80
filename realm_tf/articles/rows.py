"""Reading files with one row for each article: JSONL, TSV, CSV, Parquet.

JSONL may be WikiExtractor's (`wikiextractor --json`), TSV is DPR's, Parquet as
that of wikimedia/wikipedia. CSV rows with "id", "title" and "text" are
articles. A row of any other CSV file is an article too: its cells with the
headers of their columns, with the name of the file and its first cell as the
title. The other columns of articles, and all of any other CSV file, are
fields.
"""

import collections
import csv
import decimal
import functools
import html
import io
import itertools
import json
import re
import sys

from realm_tf.articles import documents
from realm_tf.articles import pages
from realm_tf.articles import table_rows
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import PlainText
from realm_tf.articles.pages import plain_paragraphs
from realm_tf.articles.pages import read_lines
from realm_tf.articles.pages import without_title
from realm_tf.articles.wiki_markup import strip_tags
from realm_tf.errors import InputError

_WIKIEXTRACTOR_KEYS = {"id", "url", "title", "text"}
# What a page has of its own; the rest of a row are fields.
_OF_PAGES = ("id", "_id", "title", "text", "url")
# How an object begins; "{{" and "{%" begin templates of site generators.
_OBJECT = re.compile(r"\{\s*(\"|\}|\Z)")
# facebookresearch/DPR, psgs_w100.tsv.
_DPR_HEADER = ["id", "text", "title"]
_JSON = "jsonl|ndjson|json"
_REQUIRED = ("id", "title", "text")
_DELIMITERS = ",;\t|"
# Enough to tell encoding and delimiter.
_HEAD_BYTES = 1 << 20
_NUM_SNIFFED = 100
# Of one row (our choice): a quote that is open longer is text.
_MOST_LINES = 2000


def _is_wikiextractor(head, text):
    """Whether a line has these keys and no others, with a ?curid= URL."""
    line = text.split("\n", 1)[0]
    if not line.startswith("{") or "?curid=" not in line:
        return False
    try:
        keys = json.loads(line).keys()
    except ValueError:
        return False
    return _WIKIEXTRACTOR_KEYS <= keys <= _WIKIEXTRACTOR_KEYS | {"revid"}


def _wikiextractor_text(page):
    """Text without the tags and entities that are left in it."""
    text = plain_paragraphs(strip_tags(html.unescape(page.text)))
    # WikiExtractor repeats the title of a page without text, too.
    return PlainText(without_title(page, text, alone=True))


def _read_json(file, path, _):
    """The rows of JSONL as `Page`; what lacks a field is dropped."""
    number = 0
    for line_number, line in read_lines(file, path):
        if not line.strip():
            continue
        number += 1
        place = f"{path}:{line_number}"
        try:
            # A number as it is written.
            row = json.loads(line, parse_float=decimal.Decimal)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{place}: broken JSON ({error}): expected "
                '{"id": ..., "title": ..., "text": ...} on one line.'
            ) from error
        yield to_page(row, number, place)


def to_page(row, number: int, place: str) -> Page:
    """A row as `Page`; what lacks a field is dropped.

    Args:
        row: dict. `id`, or `_id` as in a BEIR folder's corpus.jsonl, `title`,
            `text` and, if it has one, `url`; all else are fields, and those in a
            dict `fields` that the row itself has not.
        number: int. See `Page`.
        place: str. See `Page`.
    """
    page = Page(number, place)
    if not isinstance(row, dict):
        page.dropped = "bad_record_no_object"
        return page
    article_id = row.get("id", row.get("_id"))
    if isinstance(article_id, int) and not isinstance(article_id, bool):
        article_id = str(article_id)
    found = {**row, "id": article_id or None}
    for name in _REQUIRED:
        if not isinstance(found.get(name), str):
            page.dropped = f"bad_record_no_{name}"
            return page
    page.article_id, page.title, page.text = map(found.get, _REQUIRED)
    if isinstance(row.get("url"), str):
        page.url = row["url"]
    page.fields = {k: v for k, v in row.items() if k not in _OF_PAGES}
    if isinstance(row.get("fields"), dict):
        page.fields = page.fields.pop("fields") | page.fields
    return page


def _is_dpr(head, text):
    return text.split("\n", 1)[0].rstrip("\r").split("\t")[:3] == _DPR_HEADER


def _read_csv(file, path, base_url):
    # The default, 128 KiB, is shorter than a long article.
    csv.field_size_limit(1 << 30)
    text = io.TextIOWrapper(file, encoding=_encoding(file, path), newline="")
    try:
        delimiter = "\t"
        if pages.extension_of(path) != "tsv":
            delimiter = _delimiter(text)
        lines = _records(text, delimiter, path)
        headers = [cell.strip() for cell in next(lines, [])]
        yield from _csv_pages(lines, headers, path, base_url)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no CSV file in UTF-8 ({error}): convert it."
        ) from error
    finally:
        # The wrapper must not close a file that is not its own.
        text.detach()


def _encoding(file, path):
    """The encoding of a file of lines, by its beginning."""
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    return pages.encoding_of(head[: head.rfind(b"\n") + 1] or head, path)


def _delimiter(text):
    """The character that separates cells: as often in most of the rows."""
    lines = list(itertools.islice(_lines(text), _NUM_SNIFFED))
    text.seek(0)

    def agreement(delimiter):
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        widths = collections.Counter(len(row) for row in rows if row)
        (width, count), *_ = widths.most_common(1) or [(1, 0)]
        return width > 1, count / max(1, widths.total()), width

    return max(_DELIMITERS, key=agreement)


def _lines(text):
    return iter(lambda: text.readline(pages.MOST_BYTES), "")


def _records(text, delimiter, path):
    """Yields the rows, where a quote that nothing closes is text."""
    parse = functools.partial(
        csv.reader, delimiter=delimiter, skipinitialspace=True, strict=True
    )
    lines, waiting = _lines(text), collections.deque()
    width, number, wrong = None, 0, []
    while True:
        # A record goes on in the next line until its quotes are even.
        held, num_quotes = [], 0
        while not held or num_quotes % 2 and len(held) < _MOST_LINES:
            line = waiting.popleft() if waiting else next(lines, "")
            if not line:
                break
            held.append(line)
            num_quotes += line.count('"')
        if not held:
            break
        try:
            found = list(parse(held))
            is_right = (
                width is None
                or len(held) == 1
                or {width} == set(map(len, found))
            )
        except csv.Error:
            is_right = False
        if not is_right:
            waiting.extendleft(reversed(held[1:]))
            wrong.append(number + 1)
            found = list(parse(held[:1], quoting=csv.QUOTE_NONE))
        number += len(found)
        # Nothing, or what tells Excel the delimiter, is no header.
        if width is None and (
            not any(map(any, found)) or found[0][0].startswith("sep=")
        ):
            continue
        width = width or len(found[0])
        yield from found
    if wrong:
        print(
            f"warning: {path}: {len(wrong)} rows have an unclosed quote "
            f"(the first is row {wrong[0]}): their quotes are read as text.",
            file=sys.stderr,
        )


def _csv_pages(lines, headers, path, base_url):
    name = documents.name_of(path)
    are_articles = set(_REQUIRED) <= set(headers)
    seen = collections.Counter()
    for number, cells in enumerate(lines, start=1):
        if not cells:
            continue
        place = f"{path}:row {number}"
        if are_articles:
            row = dict(zip(headers, cells, strict=False))
            page = to_page(row, number, place)
            if any(cells[len(headers) :]):
                page.dropped = "bad_record_columns"
            yield page
            continue
        cells = [" ".join(cell.split()) for cell in cells]
        found = table_rows.table_lines(headers, [cells])
        first = cells[0]
        # The id stays when rows come and go around it.
        seen[first] += 1
        again = f"~{seen[first]}" if seen[first] > 1 else ""
        yield Page(
            number,
            place,
            article_id=f"{path}#{first}{again}",
            title=": ".join(filter(None, (name, first))),
            text="\n".join(found),
            url=documents.url_of(path, base_url),
            fields=dict(zip(headers, cells, strict=False)),
        )


def _read_parquet(file, path, _):
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
        missing = set(_REQUIRED) - set(table.schema_arrow.names)
        if missing:
            raise InputError(
                f"{path} has no column {', '.join(sorted(missing))}: expected "
                "id, title, text and, if you like, url."
            )
        read = [e.name for e in table.schema_arrow if _is_field(e.type)]
        number = 0
        for batch in table.iter_batches(columns=read):
            for row in _as_python(batch, path):
                number += 1
                yield to_page(row, number, f"{path}:row {number}")
    except pyarrow.ArrowException as error:
        raise InputError(
            f"{path} is no whole Parquet file ({error}): fetch it again."
        ) from error


def _as_python(batch, path):
    try:
        return batch.to_pylist()
    except (ArithmeticError, LookupError, ValueError) as error:
        # A year after 9999, nanoseconds, an unknown time zone.
        raise InputError(
            f"{path} has a date that Python cannot hold ({error}): write that "
            "column as text."
        ) from error


def _is_field(type):
    """Whether a column can be a field: embeddings, images are not read."""
    from pyarrow import types

    if types.is_list(type) or types.is_large_list(type):
        type = type.value_type
        return types.is_string(type) or types.is_large_string(type)
    return not (
        types.is_nested(type)
        or types.is_binary(type)
        or types.is_large_binary(type)
        or types.is_fixed_size_binary(type)
    )


def _is_json(head, text):
    return bool(_OBJECT.match(text))


def _is_parquet(head, text):
    return head.startswith(b"PAR1")


# Of one extension, the last is for what is none of the others.
FORMATS = (
    Format(
        "wikiextractor",
        _is_wikiextractor,
        _read_json,
        _JSON,
        text=_wikiextractor_text,
    ),
    Format("jsonl", _is_json, _read_json, _JSON),
    # Rows of CSV with an id.
    Format("dpr", _is_dpr, _read_csv, "tsv"),
    Format("parquet", _is_parquet, _read_parquet, "parquet"),
    Format("csv", None, _read_csv, "csv|tsv"),
)
