"""The documents of files and folders, as rows that `realm chunk` reads."""

import collections
import contextlib
import dataclasses
import datetime
import decimal
import errno
import io
import os
import reprlib
import stat
import sys
import urllib.parse
from collections.abc import Iterable
from collections.abc import Mapping

from realm_tf.articles import converted
from realm_tf.articles import documents
from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.articles import recurring
from realm_tf.articles import rows
from realm_tf.articles.pages import Unreadable
from realm_tf.articles.pages import valid_text
from realm_tf.articles.sources import Source
from realm_tf.articles.worker import Worker
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError
from realm_tf.progress import Progress

# Whose ids begin with the path of the file.
_DOCUMENTS = {each.name for each in (*documents.FORMATS, *converted.FORMATS)}
_OF_FILES = _DOCUMENTS | {"csv"}
_READ_BYTES = 1 << 20
NO_TEXT = "it has no text"
# Reads documents, and the markup of wikis: nothing in one can hold up the rest.
_WORKER = Worker()
# In a filter: between conditions, and between the alternatives of one.
_SEPARATORS = frozenset(";|")


@dataclasses.dataclass
class Collected:
    """What a source holds.

    Args:
        rows: dict. Id to a dict of `id`, `title`, `text`, `url`, `file` (label
            and path), `document` (its id: the file, or in a table or dump the
            row) and `fields` (name to list of str, see `fields_of`).
        mounts: list of str. See `Source`.
        unread: dict. File to the reason, of those that cannot be read, or
            `NO_TEXT`.
        warnings: dict. File to what was said of one that was read.
        dropped: Counter. Reasons of records that are no documents.
    """

    rows: dict[str, dict]
    mounts: list[str]
    unread: dict[str, str] = dataclasses.field(default_factory=dict)
    warnings: dict[str, str] = dataclasses.field(default_factory=dict)
    dropped: collections.Counter = dataclasses.field(
        default_factory=collections.Counter
    )


def collect(
    source: Source,
    *,
    without: str | None = None,
    base_url: str | None = None,
    fields: tuple[str, ...] = (),
) -> Collected:
    """All articles of a source.

    All files are read that have a known format, also in zip archives; what is
    wrong with the others is said of each. Links out of a folder, devices and pipes are not read. The id
    of an article is the label of its source, its path below it, a "#" and the
    headings of its section, its own id, or the first cell of a row.

    Args:
        source: `Source`.
        without: str. See `Source.find`. Defaults to `None`.
        base_url: str. What comes before the path below the source in a URL.
            Defaults to `None`: the label.
        fields: tuple of str. Names of what a search can filter by: keys of
            JSONL (or of its `fields`), columns of CSV and Parquet (single
            values and lists of text), of Markdown's front matter, `<meta>` of
            HTML. The id, title, text and url of a row are none. Defaults to
            `()`.

    Returns:
        `Collected`.

    Raises:
        OSError: if any file or folder cannot be read.
    """
    paths, mounts = source.find(without)
    found = Collected({}, mounts)
    for path, file in _files(paths, source, found):
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                read, dropped = _rows(
                    path, file, source, base_url, fields, found
                )
        # Whatever a reader raises, the other files are read.
        except Exception as error:
            if isinstance(error, OSError | MemoryError):
                raise
            found.unread[file] = _reason(error, path)
            continue
        if not read and file not in found.unread and set(dropped) <= {"empty"}:
            found.unread[file] = NO_TEXT
        elif said.getvalue() and file not in found.unread:
            found.warnings[file] = said.getvalue().rstrip()
        found.dropped += dropped
        found.rows.update(read)
    if num_empty := recurring.drop(found.rows):
        found.dropped["empty"] += num_empty
    found.rows = dict(sorted(found.rows.items()))
    return found


def _files(paths, source, found):
    """Yields path and name of each file, and of those in archives."""
    seen, progress = set(), Progress("read", "files", len(paths))
    for path in paths:
        progress.add(1)
        file, names = source.name_of(path), [""]
        if pages.extension_of(path) == "zip":
            try:
                names = _checked(path, source, _files_in)
            except Unreadable as error:
                found.unread[file] = str(error)
                continue
        for name in names:
            shown = file + pages.valid_text(name)
            # Names that differ in the form of a character.
            while shown in seen:
                shown += "~2"
            seen.add(shown)
            yield path + name, shown


def _files_in(path):
    return [f"/{name}" for name in _WORKER.call(pages.files_in, path)]


def _checked(path, source, function):
    """Calls a function with a path; all of it is there, or it is `OSError`."""
    if not source.holds(path):
        raise Unreadable(
            "it is a link out of the folder: name its target to read it"
        )
    if is_remote(path) or pages.in_archive(path)[1]:
        return function(path)
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unreadable("it is a link to itself") from error
        raise
    if not is_file:
        raise Unreadable("it is no regular file, but a device, pipe or folder")
    with open(path, "rb", buffering=0) as file:
        file.read(_READ_BYTES)
        result = function(path)
        while file.read(_READ_BYTES):
            pass
    return result


def _reason(error, path):
    if isinstance(error, readers.UnknownFormat):
        extension = pages.extension_of(path)
        if extension:
            return f"files of .{extension} are not read"
        return "neither extension nor content is of a known format"
    return pages.reason_of(error)


def _rows(path, file, source, base_url, fields, found):
    """(id to the row of each page of a file that has text, reasons of others)."""
    format = _checked(path, source, readers.detect_format)
    found_rows, places, values, texts = {}, {}, None, {}
    dropped = collections.Counter()
    for page in _read(path, format, base_url):
        try:
            row, reason = _row(page, format)
        except Unreadable as error:
            found.unread[file] = str(error)
            continue
        if row is None:
            dropped[reason] += 1
            continue
        # The sections of a document share fields and warnings.
        if page.fields is not values:
            values = page.fields
            texts = fields_of(values, fields, page.place)
        _name(row, path, file, source, base_url)
        row.update(
            file=file,
            document=file if format in _DOCUMENTS else row["id"],
            fields=texts,
        )
        if found_rows.setdefault(row["id"], row) != row:
            raise Unreadable(
                f"{places[row['id']]} and {page.place} have one id and different "
                "contents: give each its own"
            )
        places[row["id"]] = page.place
    return found_rows, dropped


def _name(row, path, file, source, base_url):
    """Gives a row its id in the corpus, and its URL."""
    key, (url, mark, anchor) = row["id"], row["url"].partition("#")
    prefix = f"{pages.valid_text(path)}#"
    if key.startswith(prefix):
        key, url = key.removeprefix(prefix), file
        if base_url:
            below = urllib.parse.quote(
                os.fsencode(path[len(source.root) :].strip("/"))
            )
            url = f"{base_url.rstrip('/')}/{below}"
        row["url"] = url + mark + anchor
    elif not base_url and row["url"] == pages.page_url(".", row["title"]):
        # It has none of its own.
        row["url"] = ""
    row["id"] = f"{file}#{key}" if key else file


def _row(page, format):
    """(a page as a row, `""`), or (`None`, why it is none)."""
    if page.dropped == documents.UNREADABLE:
        raise Unreadable(page.text)
    reason = readers.drop_reason(
        page, format=format, keep_all_titles=format != readers.MEDIAWIKI
    )
    text = "" if reason else _text_of(page, format)
    if not text:
        return None, reason or "empty"
    row = {
        "id": page.article_id,
        "title": page.title,
        "text": text,
        "url": page.url,
    }
    return row, ""


def row_of(
    record: Mapping, label: str, fields: tuple[str, ...], place: str
) -> dict:
    """A record of a feed as a row, as of `collect`.

    Args:
        record: mapping. `id`, `title`, `text` and, if it has them, `url` and
            fields.
        label: str. Of the feed.
        fields: tuple of str. See `collect`.
        place: str. Of the record, for messages.

    Raises:
        InputError: if it lacks one of these, or has no text.
    """
    page = rows.to_page(dict(record), 1, place)
    row, reason = _row(page, "jsonl")
    if row is None:
        raise InputError(
            f"{place}: {reason.replace('_', ' ')}: expected `id`, `title` and "
            "`text`, each a string that is not empty."
        )
    row = {name: valid_text(text) for name, text in row.items()}
    row["id"] = row["document"] = f"{label}#{row['id']}"
    return {
        **row,
        "file": label,
        "fields": fields_of(page.fields, fields, place),
    }


def _text_of(page, format):
    if format != readers.MEDIAWIKI:
        return readers.article_text(page, format=format).text
    return _WORKER.call(
        readers.article_text, page, format=format, keep_tables=True
    ).text


def _read(path, format, base_url):
    # Something, or a page would have no URL.
    base_url = base_url or ("." if format in _OF_FILES else None)
    options = {"format": format, "base_url": base_url}
    if format in _DOCUMENTS:
        return _WORKER.call(_pages_of, path, **options)
    return readers.read_pages(path, **options)


def _pages_of(path, **options):
    return list(readers.read_pages(path, **options))


def fields_of(
    values: Mapping, names: Iterable[str], place: str
) -> dict[str, list[str]]:
    """The fields of a document, as text.

    A list is several values. Dates and times are written as in ISO 8601, true
    and false in small letters. White space is collapsed; empty and repeated
    values are dropped. A value is left out if it is no text, number, date or
    list of these, or holds a separator of filters. Each such document gets
    one warning.

    Args:
        values: mapping. What the source says of it, see `Page`.
        names: iterable of str. Of the fields.
        place: str. Of the document, for the warning.

    Returns:
        dict, name to list of str; without the names that have no value.

    Example:

    >>> fields_of({"tags": ["a", "b  c", "a"], "x": 1}, ("tags", "date"), "")
    {'tags': ['a', 'b c']}
    """
    found, left_out = {}, []
    for name in names:
        value = values.get(name)
        texts = []
        for each in value if isinstance(value, list) else [value]:
            text = _text(each)
            if text is None or _SEPARATORS.intersection(text):
                left_out.append(f"{name} {reprlib.repr(each)}")
            elif text and text not in texts:
                texts.append(text)
        if texts:
            found[name] = texts
    if left_out:
        print(
            f"warning: {place}: left out of its fields: {', '.join(left_out)}: "
            "expected text without ; and |, a number, a date, true, false, or "
            "a list of these.",
            file=sys.stderr,
        )
    return found


def _text(value):
    """A single value as text, or `None` if it is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, str | int | float | decimal.Decimal):
        return valid_text(" ".join(str(value).split()))
    return None
