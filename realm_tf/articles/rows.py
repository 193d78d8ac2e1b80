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
import html
import io
import json
import re

from realm_tf.articles import documents
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
_REQUIRED = ("id", "title", "text")
_DELIMITERS = ",;\t|"


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
            row = json.loads(line)
        except ValueError as error:
            raise InputError(
                f"{place}: broken JSON ({error}): expected "
                '{"id": ..., "title": ..., "text": ...} on one line.'
            ) from error
        yield _to_page(row, number, place)


def _to_page(row, number: int, place: str) -> Page:
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
    if not isinstance(article_id, str) or not article_id:
        page.dropped = "bad_record_no_id"
    elif not isinstance(row.get("title"), str):
        page.dropped = "bad_record_no_title"
    elif not isinstance(row.get("text"), str):
        page.dropped = "bad_record_no_text"
    else:
        page.article_id = article_id
        page.title = row["title"]
        page.text = row["text"]
        if isinstance(row.get("url"), str):
            page.url = row["url"]
        page.fields = {k: v for k, v in row.items() if k not in _OF_PAGES}
        if isinstance(row.get("fields"), dict):
            page.fields = page.fields.pop("fields") | page.fields
    return page


def _is_dpr(head, text):
    return text.split("\n", 1)[0].rstrip("\r").split("\t")[:3] == _DPR_HEADER


def _read_csv(file, path, base_url):
    try:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        delimiter = _delimiter(text)
        # The default, 128 KiB, is shorter than a long article.
        csv.field_size_limit(1 << 30)
        lines = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
        headers = [cell.strip() for cell in next(lines, [])]
        yield from _csv_pages(lines, headers, path, base_url)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} is no CSV file in UTF-8 ({error}): convert it."
        ) from error
    finally:
        # The wrapper must not close a file that is not its own.
        text.detach()


def _delimiter(text):
    """The character that separates cells, by the first line."""
    line = text.readline()
    text.seek(0)
    # The first of those that are there as often as none other.
    outside = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


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
            page = _to_page(row, number, place)
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
                yield _to_page(row, number, f"{path}:row {number}")
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


FORMATS = (
    # Before all other JSONL.
    Format("wikiextractor", _is_wikiextractor, _read_json, _wikiextractor_text),
    Format("jsonl", lambda head, text: bool(_OBJECT.match(text)), _read_json),
    # Rows of CSV with an id, in a file of any name.
    Format("dpr", _is_dpr, _read_csv),
    Format(
        "parquet", lambda head, text: head.startswith(b"PAR1"), _read_parquet
    ),
    Format("csv", None, _read_csv, is_named=documents.suffix(".csv", ".tsv")),
)
