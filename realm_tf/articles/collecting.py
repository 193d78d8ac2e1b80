"""The documents of files and folders, as rows that `realm chunk` reads."""

import collections
import os
import sys
from collections.abc import Iterable

from realm_tf.articles import documents
from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.articles.fields import fields_of
from realm_tf.errors import InputError

# Whose ids begin with the path of the file.
_OF_FILES = {each.name for each in documents.FORMATS} | {"csv"}


def collect(
    paths: Iterable[str],
    *,
    base_url: str | None = None,
    fields: tuple[str, ...] = (),
) -> tuple[dict[str, dict], collections.Counter]:
    """All articles of some files and folders.

    Of a folder all files are read that have a known format, at any depth; those
    whose names begin with a dot are passed over. The id of a document is its
    path below the folder (of a file, its name), a "#" and the headings of its
    section; rows and dumps bring their own ids.

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
        `(rows, counts)`: id to a dict of `id`, `title`, `text`, `url`, `file`
        (the path, of a document; "" of rows and dumps) and `fields` (name to
        list of str, see `fields_of`), by id; and counts by name: `files`,
        `files_of_no_known_format`, and pages that were dropped.

    Raises:
        InputError: if a path matches nothing, a file that was named has no
            known format, or two documents have one id.
    """
    rows, counts = {}, collections.Counter()
    places = {}
    for page, row in _rows(paths, base_url, fields, counts):
        if rows.setdefault(page.article_id, row) != row:
            raise InputError(
                f"{places[page.article_id]} and {page.place} have one id, "
                f"{page.article_id!r}, and different contents: give "
                "each its own, or leave one of the files out."
            )
        places[page.article_id] = page.place
    return dict(sorted(rows.items())), counts


def _rows(paths, base_url, fields, counts):
    """Yields each page that has text, and its row."""
    source, found = {}, {}
    for root, path in _files(paths):
        format = _format(path, is_named=root is None)
        if format is None:
            counts["files_of_no_known_format"] += 1
            continue
        counts["files"] += 1
        file = _below(path, root) if format in _OF_FILES else ""
        for page in _read(path, root, format, base_url):
            reason = readers.drop_reason(
                page, format=format, keep_all_titles=format != readers.MEDIAWIKI
            )
            text = ""
            if not reason:
                text = readers.article_text(
                    page, format=format, keep_tables=True
                ).text
            if not text:
                counts[f"dropped_{reason or 'empty'}"] += 1
                continue
            # Sections share theirs: they are made, and complained of, once.
            if page.fields is not source:
                source = page.fields
                found = fields_of(source, fields, page.place)
            yield (
                page,
                {
                    "id": page.article_id,
                    "title": page.title,
                    "text": text,
                    "url": page.url,
                    "file": file,
                    "fields": found,
                },
            )


def _files(paths):
    """(folder or `None`, file) of each file, once, sorted."""
    found = {}
    for path in paths:
        if os.path.isdir(path):
            root = os.path.abspath(path)
            for folder, folders, names in os.walk(root):
                folders[:] = [each for each in folders if each[0] != "."]
                for name in names:
                    if name[0] != ".":
                        found.setdefault(os.path.join(folder, name), root)
        else:
            for file in pages.find_files([path]):
                found[file] = None
    return sorted(
        ((root, path) for path, root in found.items()), key=lambda e: e[1]
    )


def _format(path, *, is_named):
    try:
        return readers.detect_format(path)
    except InputError:
        if is_named:
            raise
        print(
            f"warning: {path} is of no known format and is left out.",
            file=sys.stderr,
        )
        return None


def _below(path, root):
    return os.path.relpath(path, root) if root else os.path.basename(path)


def _read(path, root, format, base_url):
    if format not in _OF_FILES:
        yield from readers.read_pages(path, format=format, base_url=base_url)
        return
    below = _below(path, root)
    folder = os.path.dirname(below)
    # Something, or a page would have no URL.
    base = "/".join(filter(None, ((base_url or ".").rstrip("/"), folder)))
    for page in readers.read_pages(path, format=format, base_url=base):
        page.article_id = below + page.article_id.removeprefix(path)
        page.url = page.url.removeprefix("./")
        yield page
