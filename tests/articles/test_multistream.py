import bz2
import dataclasses
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
# Wikimedia's dumps have 100; ids rise but leave gaps.
PAGES_PER_STREAM = 3


def page(page_id):
    return (
        f"<page><title>Ä: {page_id}</title><ns>0</ns><id>{page_id}</id>"
        f"<revision><id>1</id><text>Text of {page_id}. {'x' * page_id}</text>"
        "</revision></page>\n"
    )


def write_dump(folder, num_pages, *, name="w-multistream", first=7):
    """A dump and its index; returns the path of the dump."""
    dump = folder / f"{name}.xml.bz2"
    lines = []
    content = bz2.compress(HEAD.encode())
    ids = [first + 5 * n for n in range(num_pages)]
    for begin in range(0, num_pages, PAGES_PER_STREAM):
        some = ids[begin : begin + PAGES_PER_STREAM]
        lines += [f"{len(content)}:{i}:Ä: {i}\n" for i in some]
        content += bz2.compress("".join(map(page, some)).encode())
    dump.write_bytes(content + bz2.compress(b"</mediawiki>\n"))
    index = multistream.index_path(str(dump))
    with open(index, "wb") as file:
        file.write(bz2.compress("".join(lines).encode()))
    return str(dump)


def read(dump, streams=None):
    return list(readers.read_pages(dump, streams=streams))


def ranges_of(dump, pages_per_range):
    return multistream.read_ranges(
        dump, multistream.index_path(dump), pages_per_range=pages_per_range
    )


@pytest.mark.parametrize(
    ("dump", "index"),
    [
        (
            "/d/enwiki-20240601-pages-articles-multistream.xml.bz2",
            "/d/enwiki-20240601-pages-articles-multistream-index.txt.bz2",
        ),
        (
            "gs://b/w-multistream12.xml-p5p99.bz2",
            "gs://b/w-multistream-index12.txt-p5p99.bz2",
        ),
        ("w-multistream.xml", "w-multistream-index.txt"),
        ("/x-multistream/w-pages-articles.xml.bz2", None),
    ],
)
def test_names(dump, index):
    assert multistream.index_path(dump) == index
    assert not multistream.is_index(dump)
    if index:
        assert multistream.is_index(index)


@pytest.mark.parametrize("num_pages", [1, 3, 4, 17])
@pytest.mark.parametrize("pages_per_range", [1, 3, 5, 100])
def test_ranges_are_the_dump(tmp_path, num_pages, pages_per_range):
    dump = write_dump(tmp_path, num_pages)
    whole = read(dump)
    ranges = ranges_of(dump, pages_per_range)
    found = list(itertools.chain.from_iterable(read(dump, r) for r in ranges))

    assert len(whole) == num_pages
    # Numbers, places for messages, URLs and namespaces, too.
    assert found == whole
    assert found[0].silent_prefixes == {"datei"}
    # A range ends with the stream that reaches the wanted number.
    at_most = -(-pages_per_range // PAGES_PER_STREAM) * PAGES_PER_STREAM
    assert [r.first_number for r in ranges] == list(
        range(1, num_pages + 1, at_most)
    )
    assert ranges[-1].limit == os.path.getsize(dump)


def test_ranges_read_only_their_bytes(tmp_path):
    dump = write_dump(tmp_path, 9)
    first, second, third = ranges_of(dump, 3)
    with open(dump, "r+b") as file:
        file.seek(second.start)
        file.write(b"\0" * (second.limit - second.start))

    assert len(read(dump, first)) == len(read(dump, third)) == 3
    with pytest.raises(InputError, match="but no bz2 stream does"):
        read(dump, second)


def test_the_index_of_another_dump_is_refused(tmp_path):
    dump = write_dump(tmp_path, 7)
    shorter = write_dump(tmp_path, 4, name="a-multistream")
    longer = write_dump(tmp_path, 30, name="b-multistream")
    # Streams as long as those of the dump, with other pages in them.
    twin = ranges_of(dump, 3)[0]
    digest = ranges_of(longer, 3)[1].digest
    other_ids = dataclasses.replace(twin, digest=digest)

    with pytest.raises(InputError, match="which has"):
        multistream.read_ranges(
            dump, multistream.index_path(longer), pages_per_range=3
        )
    with pytest.raises(InputError, match="does not name the pages that"):
        read(dump, other_ids)
    # The last range runs to the end of the dump: too many pages.
    last = multistream.read_ranges(
        dump, multistream.index_path(shorter), pages_per_range=3
    )[-1]
    with pytest.raises(InputError, match="Fetch the index of w-multistream"):
        read(dump, last)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "names no page"),
        ("12\n", ":1: expected byte:page id:title"),
        ("9:x:A\n", ":1: expected byte:page id:title"),
        ("90:1:A\n80:2:B\n", ":2: byte 80 follows byte 90"),
    ],
)
def test_damaged_indices(tmp_path, lines, message):
    dump = write_dump(tmp_path, 4)
    (tmp_path / "index.txt").write_text(lines)

    with pytest.raises(InputError, match=message):
        multistream.read_ranges(
            dump, str(tmp_path / "index.txt"), pages_per_range=3
        )


def test_a_range_that_is_no_thousand_pages(tmp_path, monkeypatch):
    """An index that was cut at the end of a line."""
    dump = write_dump(tmp_path, 9)
    size = max(each.limit - each.start for each in ranges_of(dump, 3))
    monkeypatch.setattr(multistream, "_MAX_RANGE_BYTES", size)
    assert ranges_of(dump, 3)
    with bz2.open(multistream.index_path(dump), "rt") as lines:
        cut = "".join(itertools.islice(lines, 4))
    (tmp_path / "index.txt").write_text(cut)
    with pytest.raises(InputError, match="ends before the dump does"):
        multistream.read_ranges(
            dump, str(tmp_path / "index.txt"), pages_per_range=3
        )


def test_a_dump_that_is_not_compressed(tmp_path):
    dump = tmp_path / "w.xml"
    dump.write_text(f"{HEAD}{page(1)}</mediawiki>")
    (tmp_path / "index.txt").write_text("9:1:A\n")
    (streams,) = multistream.read_ranges(
        str(dump), str(tmp_path / "index.txt"), pages_per_range=3
    )

    with pytest.raises(InputError, match="but no bz2 stream does"):
        read(str(dump), streams)


def test_a_truncated_dump(tmp_path):
    dump = write_dump(tmp_path, 7)
    last = ranges_of(dump, 3)[-1]
    os.truncate(dump, last.start + 20)
    (shorter,) = ranges_of(dump, 3)[-1:]

    for streams in (last, shorter):
        with pytest.raises(InputError, match="is truncated"):
            read(dump, streams)
    # Exactly between two streams: the end tag is missing.
    dump = write_dump(tmp_path, 7)
    os.truncate(dump, last.limit - len(bz2.compress(b"</mediawiki>\n")))
    with pytest.raises(InputError, match="truncated or damaged"):
        read(dump, last)
