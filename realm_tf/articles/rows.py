"""Reading files of a row for each article: JSONL and DPR's TSV."""

import csv
import json
import re

from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.articles.pages import read_lines
from realm_tf.errors import InputError

# What a page has of its own; the rest of a row are fields.
_OF_PAGES = ("id", "_id", "title", "text", "url")
# How an object begins; "{{" and "{%" begin templates of site generators.
_OBJECT = re.compile(r"\{\s*(\"|\}|\Z)")
# facebookresearch/DPR, psgs_w100.tsv.
DPR_HEADER = ["id", "text", "title"]


def read_json(file, path, _):
    """The rows of JSONL as `Page`; what lacks a field is dropped."""
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


def _is_dpr(head, text):
    return text.split("\n", 1)[0].rstrip("\r").split("\t")[:3] == DPR_HEADER


FORMATS = (
    Format("jsonl", lambda head, text: bool(_OBJECT.match(text)), read_json),
    Format("dpr", _is_dpr, _read_dpr),
)
