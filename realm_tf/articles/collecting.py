"""The documents of files and folders, as rows that `realm chunk` reads."""

import collections
import datetime
import decimal
import os
import reprlib
import sys
import urllib.parse
from collections.abc import Iterable
from collections.abc import Mapping

from realm_tf.articles import converted
from realm_tf.articles import documents
from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.articles.pages import Unreadable
from realm_tf.articles.pages import valid_text
from realm_tf.articles.worker import Worker
from realm_tf.errors import InputError

# Whose ids begin with the path of the file.
_DOCUMENTS = {each.name for each in (*documents.FORMATS, *converted.FORMATS)}
_OF_FILES = _DOCUMENTS | {"csv"}
# Our choice: what recurs on fewer pages is no sign, more of the text is no menu,
# and a title or a date may stand between what recurs.
_LEAST_PAGES = 5
_MOST_RECURRING = 0.8
_MOST_BETWEEN = 3
# Reads documents, and the markup of wikis: nothing in one can hold up the rest.
_WORKER = Worker()
# In a filter: between conditions, and between the alternatives of one.
_SEPARATORS = frozenset(";|")


def collect(
    paths: Iterable[str],
    *,
    base_url: str | None = None,
    fields: tuple[str, ...] = (),
) -> tuple[dict[str, dict], collections.Counter, dict[str, str]]:
    """All articles of some files and folders.

    Of a folder all files are read that have a known format, at any depth; those
    whose names begin with a dot are passed over, and those that cannot be read
    are named, whatever is wrong with them. Links out of a folder, devices and
    pipes are not read. The id of a document is its path below the folder (of several,
    below the one that holds them; of a file, its name), a "#" and the headings
    of its section, or the first cell of a row; rows with an id and dumps bring
    their own.

    Args:
        paths: iterable of str. Files, folders or globs.
        base_url: str. What comes before that path in a document's URL. Defaults
            to `None`: nothing.
        fields: tuple of str. Names of what a search can filter by: keys of
            JSONL (or of its `fields`), columns of CSV and Parquet (single
            values and lists of text), of Markdown's front matter, `<meta>` of
            HTML. The id, title, text and url of a row are none. Defaults to
            `()`.

    Returns:
        `(rows, counts, unread)`: dict of id to a dict of `id`, `title`, `text`,
        `url`, `file` (its path) and `fields` (name to list of str, see
        `fields_of`); Counter of `files`, `files_of_no_known_format`,
        `files_without_text`, and pages that were dropped; dict of `file` to the
        reason, of those that cannot be read.

    Raises:
        InputError: if a path matches nothing, the only file that was named
            cannot be read, or two documents have one id.
    """
    counts, unread = collections.Counter(), {}
    rows, places = {}, {}
    for page, row in _rows(_files(paths), base_url, fields, counts, unread):
        other = rows.setdefault(page.article_id, row)
        if {**other, "file": row["file"]} != row:
            raise InputError(
                f"{places[page.article_id]} and {page.place} have one id, "
                f"{page.article_id!r}, and different contents: give "
                "each its own, or leave one of the files out."
            )
        places[page.article_id] = page.place
    if num_empty := _drop_recurring(rows):
        counts["dropped_empty"] += num_empty
    return dict(sorted(rows.items())), counts, unread


def _drop_recurring(rows):
    """Drops what stands around the text on most HTML pages, such as menus
    without a role and notices, from all but the first of them: whatever it says
    can still be found. Returns the number of sections that are left empty."""
    files = collections.defaultdict(list)
    for row in rows.values():
        if documents.HTML.is_named(row["file"]):
            files[row["file"]] += row["text"].split("\n")
    num_files = collections.Counter(
        line for lines in files.values() for line in set(lines)
    )
    common = {line for line, num in num_files.items() if 2 * num > len(files)}
    at_edges = {
        file: _at_edge(lines, common) | _at_edge(lines[::-1], common)
        for file, lines in files.items()
    }
    length = dropped = 0
    for file, lines in files.items():
        length += sum(map(len, lines))
        dropped += sum(len(line) for line in lines if line in at_edges[file])
    # Versions of one page have their text in common.
    if len(files) < _LEAST_PAGES or dropped > _MOST_RECURRING * length:
        return 0
    seen, num_before = set(), len(rows)
    for name, row in list(rows.items()):
        edge, kept = at_edges.get(row["file"], ()), []
        for line in row["text"].split("\n"):
            if line not in edge or line not in seen:
                kept.append(line)
            if line in edge:
                seen.add(line)
        row["text"] = "\n".join(kept)
        if not kept:
            del rows[name]
    return num_before - len(rows)


def _at_edge(lines, common):
    """The common lines before the text, between which few others stand."""
    found, num_others = set(), 0
    for line in lines:
        if line in common:
            found.add(line)
        elif (num_others := num_others + 1) > _MOST_BETWEEN:
            break
    return found


def _rows(files, base_url, fields, counts, unread):
    """Yields each page that has text, and its row."""
    source, texts = None, {}
    for root, path, is_named in files:
        found, below = [], _below(path, root)
        before = counts.total()
        try:
            format = _format_of(path, root)
            counts["files"] += 1
            before = counts.total()
            for page, file in _read(path, root, format, base_url):
                if page.dropped == documents.UNREADABLE:
                    unread[below] = page.text
                if row := _row(page, file, format, counts, unread):
                    # The sections of a document share fields and warnings.
                    if page.fields is not source:
                        source = page.fields
                        texts = fields_of(source, fields, page.place)
                    row["fields"] = texts
                    found.append((page, row))
        # Whatever a reader raises, the other files are read.
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            # A sync keeps the documents that it had: it may be written again.
            unread[below] = reason = pages.reason_of(error)
            if is_named and len(files) == 1:
                raise InputError(reason) from error
            kind = f"dropped_{documents.UNREADABLE}"
            if isinstance(error, readers.UnknownFormat):
                kind = "files_of_no_known_format"
                extension = pages.extension_of(path)
                unread[below] = reason = (
                    f"files of .{extension} are not read"
                    if extension
                    else "neither extension nor content is of a known format"
                )
            counts[kind] += 1
            print(
                f"warning: {path} is left out: {reason}",
                file=sys.stderr,
            )
            continue
        if not found and counts.total() == before:
            print(f"warning: {path} has no text.", file=sys.stderr)
            counts["files_without_text"] += 1
        yield from found


def _format_of(path, root):
    """The format of a file, unless it is a link to one outside a folder."""
    if root and not os.path.realpath(path).startswith(
        os.path.join(os.path.realpath(root), "")
    ):
        raise Unreadable(
            "it is a link out of the folder: name its target to read it"
        )
    return readers.detect_format(path)


def _row(page, file, format, counts, unread):
    """A page as a row, or `None` if it is none, which is counted."""
    reason = readers.drop_reason(
        page, format=format, keep_all_titles=format != readers.MEDIAWIKI
    )
    text = ""
    if not reason:
        try:
            text = _text_of(page, format)
        except Unreadable as error:
            reason = documents.UNREADABLE
            unread[file] = str(error)
            print(
                f"warning: {page.place} is left out: {error}", file=sys.stderr
            )
    if not text:
        counts[f"dropped_{reason or 'empty'}"] += 1
        return None
    return {
        "id": page.article_id,
        "title": page.title,
        "text": text,
        "url": page.url,
        "file": file,
    }


def _text_of(page, format):
    if format != readers.MEDIAWIKI:
        return readers.article_text(page, format=format).text
    return _WORKER.call(
        readers.article_text, page, format=format, keep_tables=True
    ).text


def _files(paths):
    """(folder or `None`, file, whether it was named) of each, once, sorted."""
    folders = [os.path.abspath(path) for path in paths if os.path.isdir(path)]
    root = os.path.commonpath(folders) if folders else None
    found = {}
    for top in folders:
        for folder, below, names in os.walk(top):
            below[:] = [each for each in below if each[0] != "."]
            for name in names:
                if name[0] != ".":
                    found[os.path.join(folder, name)] = root, False
    named = [path for path in paths if not os.path.isdir(path)]
    for path in pages.find_files(named) if named else ():
        found[path] = None, True
    return sorted(
        (root or "", path, is_named) for path, (root, is_named) in found.items()
    )


def _below(path, root):
    return os.path.relpath(path, root) if root else os.path.basename(path)


def _read(path, root, format, base_url):
    """Yields each page, and the file that it is in."""
    below = _below(path, root)
    if format not in _OF_FILES:
        for page in readers.read_pages(path, format=format, base_url=base_url):
            yield page, below
        return
    read = _read_document if format in _DOCUMENTS else readers.read_pages
    folder = urllib.parse.quote(os.path.dirname(below))
    base = "/".join(filter(None, ((base_url or "").rstrip("/"), folder)))
    for page in read(
        # Something, or a page would have no URL.
        path,
        format=format,
        base_url=base or ".",
    ):
        of_file = page.article_id.startswith(f"{path}#")
        if of_file:
            page.article_id = below + page.article_id.removeprefix(path)
        if not base_url and of_file:
            # The path of its file.
            page.url = urllib.parse.unquote(page.url.removeprefix("./"))
        elif page.url == pages.page_url(base or ".", page.title):
            # It has none of its own.
            page.url = pages.page_url(base_url, page.title) if base_url else ""
        yield page, below


def _read_document(path, **options):
    return _WORKER.call(_pages_of, path, **options)


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
