"""Reading tables: CSV, and Parquet as that of wikimedia/wikipedia.

Rows with "id", "title" and "text" are articles. A row of another CSV file is
an article, too: its cells with the headers of their columns, under the name of
the file and its first cell. The other columns of articles, and all of another
CSV file, are fields.
"""

import collections
import csv
import io
import re

from realm_tf.articles import documents
from realm_tf.articles import rows
from realm_tf.articles import table_rows
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.errors import InputError

_REQUIRED = ("id", "title", "text")
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"sep=(.)", re.I)
# What Arrow raises for text that is not UTF-8, a year after 9999, an unknown
# time zone.
_UNHELD = (ValueError, OverflowError, LookupError)


def _read_csv(file, path, base_url):
    try:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        delimiter = _delimiter(text)
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
    """What separates cells, by the first line; the text goes on behind `sep=`."""
    line = text.readline()
    # Excel's own way to say it.
    if named := _SEPARATOR.fullmatch(line.strip()):
        return named[1]
    text.seek(0)
    # The first of those that are there as often as none other.
    outside = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


def _csv_pages(lines, headers, path, base_url):
    name = documents.name_of(path)
    are_articles = set(_REQUIRED) <= set(headers)
    seen = collections.Counter()
    for number, cells in enumerate(lines, start=1):
        place = f"{path}:row {number}"
        if are_articles:
            row = dict(zip(headers, cells, strict=False))
            page = rows.to_page(row, number, place)
            if any(cells[len(headers) :]):
                page.dropped = "bad_record_columns"
            yield page
            continue
        if not cells:
            continue
        cells = [" ".join(cell.split()) for cell in cells]
        found = table_rows.table_lines(headers, [cells])
        first = cells[0] if cells else ""
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
            names = batch.schema.names
            columns = map(_cells, batch.columns)
            for cells in zip(*columns, strict=True):
                number += 1
                row = dict(zip(names, cells, strict=True))
                yield rows.to_page(row, number, f"{path}:row {number}")
    except pyarrow.ArrowException as error:
        raise InputError(
            f"{path} is no whole Parquet file ({error}): fetch it again."
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


def _cells(column):
    """The values of a column.

    One that Python cannot hold stays as it is: it does no harm where nobody
    needs it, and is named where somebody does.
    """
    try:
        return column.to_pylist()
    except _UNHELD:
        return [_cell(each) for each in column]


def _cell(scalar):
    try:
        return scalar.as_py()
    except _UNHELD:
        return scalar


FORMATS = (
    Format(
        "parquet", lambda head, text: head.startswith(b"PAR1"), _read_parquet
    ),
    Format(
        "csv",
        None,
        _read_csv,
        is_named=documents.suffix(".csv", ".tsv"),
    ),
)
