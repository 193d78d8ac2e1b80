import bz2
import csv
import gzip
import json

import pytest

from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.errors import InputError

XML = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">
  <siteinfo><base>https://xx.example.org/wiki/Main_Page</base>
    <namespaces><namespace key="0" /><namespace key="1">Talk</namespace>
      <namespace key="6">Datei</namespace></namespaces></siteinfo>
  <page><title>Žižka &amp; Co</title><ns>0</ns><id>7</id>
    <revision><id>70</id><text>old</text></revision>
    <revision><id>71</id><text xml:space="preserve">'''A''' &lt;b&gt;.</text>
    </revision></page>
  <page>
    <title>Moved</title><ns>0</ns><id>8</id><redirect title="A" />
    <revision><text>#REDIRECT [[A]]</text></revision></page>
  <page><title>Talk:A</title><ns>1</ns><id>9</id>
    <revision><text>Hello.</text></revision></page>
  <page><title>Empty</title><ns>0</ns><id>10</id>
    <revision><text /></revision></page>
</mediawiki>
"""


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    path.write_bytes(data)
    return str(path)


def read(path, **kwargs):
    return list(readers.read_pages(path, **kwargs))


def json_lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("version", ["0.10", "0.11"])
def test_mediawiki(tmp_path, version):
    path = write(tmp_path / "dump.xml", XML.replace("0.10", version))
    found = read(path)

    assert [page.article_id for page in found] == ["7", "8", "9", "10"]
    assert [page.number for page in found] == [1, 2, 3, 4]
    assert [page.dropped for page in found] == ["", "redirect", "namespace", ""]
    assert found[0].title == "Žižka & Co"
    assert found[0].text == "'''A''' <b>."
    assert found[0].url == "https://xx.example.org/wiki/%C5%BDi%C5%BEka_%26_Co"
    assert found[0].silent_prefixes == {"datei"}
    assert found[0].place == f"{path}, page 1 (Žižka & Co)"
    assert found[3].text == ""


def test_json_lines(tmp_path):
    rows = [
        {
            "id": 5,
            "title": " The  Lake ",
            "text": "It is deep.\n\nVery.",
            "x": 1,
        },
        {"id": "b", "title": "", "text": "No title \ud83d.", "url": "http://u"},
    ]
    path = write(
        tmp_path / "rows.gz", gzip.compress(json_lines(*rows).encode("utf-8"))
    )
    found = read(path)

    assert readers.detect_format(path) == "jsonl"
    assert [page.article_id for page in found] == ["5", "b"]
    assert found[0].title == "The Lake"
    assert found[1].text == "No title \ufffd."
    assert found[1].url == "http://u"
    assert readers.article_text(found[0], format="jsonl").text == (
        "It is deep.\nVery."
    )


def test_rows_that_lack_something_are_told_apart(tmp_path):
    rows = json_lines(
        {"id": "1", "title": "A", "text": "Fine."},
        ["no", "object"],
        {"title": "A", "text": "x"},
        {"id": "3", "text": "x"},
        {"id": "4", "title": "A", "body": "x"},
        {"id": True, "title": "A", "text": "x"},
    )
    found = read(write(tmp_path / "rows.jsonl", "\n" + rows))

    assert [page.dropped for page in found] == [
        *("", "bad_record_no_object", "bad_record_no_id"),
        *("bad_record_no_title", "bad_record_no_text", "bad_record_no_id"),
    ]
    assert found[0].place.endswith("rows.jsonl:2")


def test_wikiextractor_is_recognised_among_other_json(tmp_path):
    row = {
        "id": "1",
        "revid": "2",
        "url": "https://en.example.org/wiki?curid=1",
        "title": "A",
        "text": "A\nAT&amp;T <br> it is.\n\nSecond<ref>no</ref> one.",
    }
    empty = {**row, "id": "2", "title": "C", "text": "C\n"}
    path = write(tmp_path / "wiki_00", json_lines(row, empty))
    own = write(tmp_path / "own", json_lines({**row, "source": "mine"}))

    assert readers.detect_format(path) == "wikiextractor"
    assert readers.detect_format(own) == "jsonl"
    texts = [
        readers.article_text(page, format="wikiextractor").text
        for page in read(path)
    ]
    assert texts == ["AT&T it is.\nSecond one.", ""]
    page = read(path)[0]
    assert readers.article_text(page, format="jsonl").text.startswith(
        "AT&amp;T <br> it is."
    )


def test_dpr(tmp_path):
    # Python's default.
    csv.field_size_limit(1 << 17)
    long = "word " * 40_000
    path = write(
        tmp_path / "psgs",
        "id\ttext\ttitle\n"
        '1\t"He said ""no""."\tAaron\n'
        "2\tNo title\n"
        "\tno id\tA\n"
        f"5\t{long}\tA\n",
    )
    found = read(path)

    assert readers.detect_format(path) == "dpr"
    assert [page.dropped for page in found] == [
        *("", "bad_record_no_title", "bad_record_no_id", "")
    ]
    assert (found[0].article_id, found[0].text, found[0].title) == (
        "1",
        'He said "no".',
        "Aaron",
    )
    assert found[2].place == f"{path}:row 3"
    assert found[3].text == long


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (
            '{"id": "1", "title": "A", "text": "x"}\n{"id": \n',
            None,
            ":2: broken",
        ),
        (
            b'{"id": "1", "title": "A", "text": "x"}\n\xff',
            None,
            ":2: not UTF-8",
        ),
        (b"%!PS-3\n", None, r"of no known format (it begins with b'%!PS-3\n"),
        ('<?xml version="1.0"?>\n<rss version="2">', None, "<rss"),
        ("Zürich liegt".encode("latin-1"), None, r"Z\xfcrich"),
        ("", None, "is empty"),
        ("hello\n", "mediawiki", ":1: broken XML"),
        ("<html></html>", "mediawiki", "root <html>"),
        (XML[: XML.index("<title>Moved")], None, "broken XML at column"),
    ],
)
def test_bad_input_names_file_and_line(tmp_path, content, format, message):
    path = write(tmp_path / "input", content)

    with pytest.raises(InputError) as caught:
        read(path, format=format)

    assert message in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress])
def test_truncated_compressed_files(tmp_path, compress):
    data = compress(XML.encode("utf-8"))
    path = write(tmp_path / "dump.bin", data[:-20])

    with pytest.raises(InputError, match="dump.bin is truncated"):
        read(path)


def test_find_files(tmp_path):
    for name in ("b.xml", "a.xml", "c.txt", "a[1].xml"):
        write(tmp_path / name, "x")
    (tmp_path / "folder.xml").mkdir()
    expected = [str(tmp_path / name) for name in ("a.xml", "a[1].xml", "b.xml")]

    assert pages.find_files([f"{tmp_path}/*.xml"]) == expected
    # Each once, in the order of names, whatever the order of the patterns.
    assert (
        pages.find_files(
            [
                f"{tmp_path}/b.xml",
                f"{tmp_path}/a[1].xml",
                f"{tmp_path}/./a.*",
                f"{tmp_path}/b*",
            ]
        )
        == expected
    )
    with pytest.raises(InputError, match="matches no file"):
        pages.find_files([f"{tmp_path}/a.xml", f"{tmp_path}/*.bz2"])
    with pytest.raises(InputError, match="is a directory"):
        pages.find_files([str(tmp_path)])
    with pytest.raises(InputError, match="at least one"):
        pages.find_files([])


@pytest.mark.parametrize(
    ("title", "reason"),
    [
        ("List of rivers", "list_title"),
        ("Index of rivers", "list_title"),
        ("Outline of rivers", "list_title"),
        ("Liste der Flüsse", "list_title"),
        ("Lists", ""),
        ("River (disambiguation)", "disambiguation"),
        ("River", ""),
    ],
)
def test_titles(title, reason):
    page = pages.Page(1, "here", article_id="1", title=title, text="x")

    assert readers.drop_reason(page, format="jsonl") == reason
    assert not readers.drop_reason(page, format="jsonl", keep_all_titles=True)
