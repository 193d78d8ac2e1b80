import bz2
import itertools
import os

import pytest

from realm_tf.articles import multistream
from realm_tf.articles import readers
from realm_tf.errors import InputError

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">
  <siteinfo><base>https://w.example.org/wiki/Main</base>
  <namespaces><namespace key="6">Datei</namespace></namespaces></siteinfo>
"""
END = bz2.compress(b"</mediawiki>\n")
# Wikimedia's dumps have 100.
PAGES_PER_STREAM = 3


def page(page_id):
    return (
        f"<page><title>Ä: {page_id}</title><ns>0</ns><id>{page_id}</id>"
        f"<revision><id>1</id><text>Text of {page_id}. {'x' * page_id}</text>"
        "</revision></page>\n"
    )


def write_dump(folder, num_pages):
    """A dump; returns its path and the byte where each stream begins."""
    pieces = [HEAD]
    for first in range(0, num_pages, PAGES_PER_STREAM):
        ids = range(first, min(first + PAGES_PER_STREAM, num_pages))
        pieces.append("".join(page(each) for each in ids))
    streams = [bz2.compress(each.encode()) for each in pieces] + [END]
    dump = folder / "w-multistream.xml.bz2"
    dump.write_bytes(b"".join(streams))
    return str(dump), [0, *itertools.accumulate(map(len, streams[:-1]))]


def read(dump, byte_range=None):
    return list(readers.read_pages(dump, byte_range=byte_range))


def contents(pages):
    return [(p.article_id, p.title, p.text, p.url) for p in pages]


@pytest.mark.parametrize("num_pages", [1, 3, 4, 17])
@pytest.mark.parametrize("step", [100, 250, 1 << 20])
def test_ranges_are_the_dump(tmp_path, num_pages, step):
    dump, _ = write_dump(tmp_path, num_pages)
    whole = read(dump)
    ranges = [(n, n + step) for n in range(0, os.path.getsize(dump), step)]
    found = [each for r in ranges for each in read(dump, r)]

    assert len(whole) == num_pages
    assert contents(found) == contents(whole)
    assert all(each.silent_prefixes == {"datei"} for each in found)


def test_a_range_reads_only_its_bytes(tmp_path):
    dump, (_, first, second, third, end) = write_dump(tmp_path, 9)
    with open(dump, "r+b") as file:
        file.seek(second + 20)
        file.write(b"\0" * (third - second - 20))

    assert len(read(dump, (first, second))) == 3
    assert len(read(dump, (third, end))) == 3
    with pytest.raises(InputError, match="truncated or damaged"):
        read(dump, (second, third))


def test_dumps_that_are_no_multistream_dumps(tmp_path):
    """A compressor with several threads cuts pages in two."""
    dump, (_, header_limit, *_) = write_dump(tmp_path, 4)
    assert multistream.header_bytes(dump) == header_limit
    pages = f"{HEAD}{page(1)}".encode()
    for content in (
        pages,
        bz2.compress(pages) + END,
        bz2.compress(HEAD.encode())[:-9],
        bz2.compress(HEAD.encode())[:20] + b"\0" * 90,
    ):
        path = tmp_path / "other"
        path.write_bytes(content)
        assert multistream.header_bytes(path) == 0


def test_a_truncated_dump(tmp_path):
    dump, starts = write_dump(tmp_path, 7)
    whole = starts[-2], os.path.getsize(dump)
    # Exactly between two streams: the end tag is missing.
    os.truncate(dump, starts[-1])
    with pytest.raises(InputError, match="truncated or damaged"):
        read(dump, whole)
    os.truncate(dump, starts[-1] - 20)
    with pytest.raises(InputError, match="is truncated"):
        read(dump, whole)
