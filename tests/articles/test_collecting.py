"""Files and folders as documents: what they are called, what is left out."""

import gzip
import io
import os
import zipfile

import live_corpora
import pytest
from small_pdf import small_pdf

from realm_tf.articles import collecting
from realm_tf.articles import pages
from realm_tf.articles.sources import Source
from realm_tf.articles.sources import grouped
from realm_tf.errors import InputError

pytestmark = pytest.mark.fast

LEAVE = "# Leave\n25 days.\n"


def collect(path, **options):
    return collecting.collect(Source.of(str(path)), **options)


@pytest.fixture
def write(tmp_path):
    """A function that writes a file below `docs` and gives its path."""

    def write(name, content=LEAVE):
        live_corpora.write(tmp_path / "docs", {name: content})
        return str(tmp_path / "docs" / name)

    return write


BAD = {
    "package.json": ('{\n "name": "x"\n}\n', "package.json:1: broken JSON"),
    "picture.svg": ("<html>", "files of .svg are not read"),
    "deep.html": ("<div>" * 3000 + "x", "nested more than 2,000 deep"),
    "bomb.md.gz": (gzip.compress(bytes(65 << 20), 1), "more than 64 MiB"),
    "bad.jsonl": ('{"id": 1, "title": "a", "text": "b"}\n{x\n', "jsonl:2:"),
    "broken.gz": (b"\x1f\x8b\x08junk", "broken.gz is truncated"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_file_of_a_folder_is_left_out(write, tmp_path, name):
    content, message = BAD[name]
    write(name, content), write("leave.md")
    found = collect(tmp_path / "docs")
    assert list(found.rows) == ["docs/leave.md"]
    assert list(found.unread) == [f"docs/{name}"]
    assert message in found.unread[f"docs/{name}"]


def test_only_regular_files_of_the_folder_are_read(write, tmp_path):
    inside, secret = write("leave.md"), tmp_path / "secret.md"
    secret.write_text("Secret.")
    folder = tmp_path / "docs"
    os.mkfifo(folder / "pipe.md")
    for name, target in (
        ("out.md", secret),
        ("zero.txt", "/dev/zero"),
        ("loop.md", "loop.md"),
        ("away", "/"),
        ("self", "."),
        ("same.md", inside),
    ):
        (folder / name).symlink_to(target)
    found = collect(folder)
    assert list(found.rows) == ["docs/leave.md", "docs/same.md"]
    assert {name: reason[:19] for name, reason in found.unread.items()} == {
        "docs/away": "it is a link out of",
        "docs/loop.md": "it is a link to its",
        "docs/out.md": "it is a link out of",
        "docs/pipe.md": "it is no regular fi",
        "docs/zero.txt": "it is a link out of",
    }
    # What it led to may be back tomorrow.
    (folder / "dead.md").symlink_to("nowhere.md")
    with pytest.raises(FileNotFoundError, match="dead.md"):
        collect(folder)


def test_a_page_of_a_wiki_that_is_malformed_stops_nothing(write, tmp_path):
    table = f"{{|\n| rowspan={'9' * 5000} | Oslo\n|}}\nText."
    page = "<page><title>T{0}</title><id>{0}</id><revision><text>{1}</text></revision></page>"
    dump = page.format(1, table) + page.format(2, "It is fine.")
    write("dump.xml", f"<mediawiki>{dump}</mediawiki>")
    rows = collect(tmp_path / "docs").rows
    assert [row["text"] for row in rows.values()] == [
        "Oslo.\nText.",
        "It is fine.",
    ]


MENU = "<div>Home</div><div>Docs</div>"
NOTICE = "<p>We use cookies. <button>Accept</button></p><p>Imprint</p>"


def test_what_recurs_around_the_text_is_no_text(write, tmp_path):
    texts = [f"Room {n} has {n + 7} seats. Type: small." for n in range(6)]
    for number, text in enumerate(texts):
        write(
            f"{number}.html",
            f"{MENU}<p>Page {number}<h1>Room</h1><p>{text}<p>Type: small."
            f"<p>a{number}<p>b{number}<p>Imprint<p>c{number}<p>d{number}<p>"
            f"e{number}<p>f{number}{NOTICE}",
        )
    rows = collect(tmp_path / "docs").rows
    lines = [row["text"].split("\n") for row in rows.values()]
    # The first page keeps it.
    assert lines[0] == ["Home", "Docs", "Page 0"]
    assert {"Type: small.", "Accept"} < set(lines[1])
    assert lines[2::2] == [[f"Page {n}"] for n in range(1, 6)]
    assert [[line[:1] for line in each] for each in lines[3::2]] == [
        [*"RabIcdef"]
    ] * 5


def test_versions_of_a_page_keep_what_they_have_in_common(write, tmp_path):
    for number in range(6):
        write(f"{number}.html", f"<p>{'Same text. ' * 20}<p>Version {number}.")
    rows = collect(tmp_path / "docs").rows
    assert all(row["text"].startswith("Same text.") for row in rows.values())


def test_a_file_without_text_is_named(write, tmp_path):
    write("leave.md"), write("empty.md", "---\ntitle: Empty\n---\n")
    # Pictures of pages.
    write("scanned.pdf", small_pdf([[""], [""]]))
    found = collect(tmp_path / "docs")
    names = ("docs/empty.md", "docs/scanned.pdf")
    assert found.unread == dict.fromkeys(names, collecting.NO_TEXT)


def _zip(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_archives(write, tmp_path, monkeypatch):
    write("x.zip/real.md"), write("x.zip/y.zip", _zip({"z.md": LEAVE}))
    files = {
        "a/leave.md": LEAVE,
        "b.csv.gz": gzip.compress(b"City,Stay\nOslo,1"),
    }
    others = {
        ".no.md": "",
        "__MACOSX/no.md": "",
        "c.zip": _zip(files),
        "d.pdf": "",
    }
    path = write("y.ZIP", _zip(files | others))
    write("bad.zip", b"PK"), write("bomb.zip", _zip({"a.txt": bytes(65 << 20)}))
    found = collect(tmp_path / "docs", base_url="https://b")
    assert {name: row["url"] for name, row in found.rows.items()} == {
        "docs/x.zip/real.md": "https://b/x.zip/real.md",
        "docs/x.zip/y.zip/z.md": "https://b/x.zip/y.zip/z.md",
        "docs/y.ZIP/a/leave.md": "https://b/y.ZIP/a/leave.md",
        "docs/y.ZIP/b.csv.gz#Oslo": "https://b/y.ZIP/b.csv.gz",
    }
    assert {name: why[:22] for name, why in found.unread.items()} == {
        "docs/bad.zip": "it is no whole zip arc",
        "docs/bomb.zip/a.txt": "it holds more than 64 ",
        "docs/y.ZIP/c.zip": "files of .zip are not ",
        "docs/y.ZIP/d.pdf": "PdfiumError: Failed to",
    }
    for limit, reason in (
        ("FILES", "5 files"),
        ("INFLATED", "0 MiB, inflated"),
    ):
        monkeypatch.setattr(pages, f"_MOST_{limit}", 5)
        with pytest.raises(pages.Unreadable, match=f"more than {reason}"):
            pages.files_in(path)
        monkeypatch.undo()


def test_what_is_said_of_a_file(write, tmp_path, capsys):
    write("a.txt", "Caf\u00e9".encode("latin-1"))
    write("b.csv", 'a,b\n1,"2\n3,4\n')
    warnings = collect(tmp_path / "docs").warnings
    assert [each["reason"].split("/")[-1] for each in grouped(warnings)] == [
        "a.txt is not UTF-8 and is read as cp1252.",
        "b.csv: 1 rows have an unclosed quote (the first is row 2): their quotes "
        "are read as text.",
    ]
    assert capsys.readouterr().err == ""


def test_urls(write, tmp_path):
    write("s 2/rates #1.csv", "City,Stay\nOslo,160\n")
    write("a.csv", "id,title,text,url\n17,A,x,https://y\n18,B b,x,\n")
    folder = str(tmp_path / "docs")
    for base_url, of_file, of_row in (
        (None, "docs/s 2/rates #1.csv", ""),
        ("https://b/", "https://b/s%202/rates%20%231.csv", "https://b/B_b"),
    ):
        rows = collect(folder, base_url=base_url).rows
        assert {name: row["url"] for name, row in rows.items()} == {
            "docs/s 2/rates #1.csv#Oslo": of_file,
            "docs/a.csv#17": "https://y",
            "docs/a.csv#18": of_row,
        }
        assert rows["docs/a.csv#17"]["file"] == "docs/a.csv"


def _files(folder, pattern="", **filters):
    source = Source.of(f"{folder}/{pattern}".rstrip("/"), **filters)
    paths, _ = source.find(str(folder / "corpus"))
    return [os.path.relpath(path, folder) for path in paths]


def test_what_git_ignores_and_what_is_hidden_is_no_document(write, tmp_path):
    for name in (
        *("a.md", ".b.md", "corpus/c.md", ".git/d.md", "build/e.md"),
        *("sub/build/f.md", "sub/g.tmp", "sub/keep.tmp", "sub/h.md"),
        *("other/corpus.json", "other/segments/1/documents.jsonl"),
    ):
        write(name)
    write(".gitignore", "build/\n*.tmp\n!\n")
    write("sub/.gitignore", "!keep.tmp\n/h.md\n")
    folder = tmp_path / "docs"
    assert _files(folder) == ["a.md", "sub/keep.tmp"]
    assert _files(folder, exclude=["*.tmp"]) == ["a.md"]
    everything = _files(folder, all=True)
    assert {".b.md", "build/e.md", "sub/g.tmp", "sub/h.md"} < {*everything}
    assert not {"corpus/c.md", ".git/d.md", "other/corpus.json"} & {*everything}
    # Rules of the repository hold in its folders; a named one is read.
    assert _files(folder / "sub") == ["keep.tmp"]
    assert _files(folder / "build") == ["e.md"]
    assert _files(folder / "build" / "e.md") == ["."]
    with pytest.raises(InputError, match="--exclude"):
        _files(folder, exclude=["!"])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.md", ["a.md"]),
        ("*/*.md", ["s/b.md"]),
        ("**/*.md", ["a.md", "s/b.md", "s/t/c.md"]),
        ("s/**", ["s/b.md", "s/t/c.md", "s/x.txt"]),
        ("s/?.[mt]*", ["s/b.md", "s/x.txt"]),
        ("z*", []),
    ],
)
def test_globs(write, tmp_path, pattern, names):
    for name in ("a.md", "s/b.md", "s/t/c.md", "s/x.txt"):
        write(name)
    assert _files(tmp_path / "docs", pattern) == names


def test_names_that_differ_in_the_form_of_a_character(write, tmp_path):
    write("caf\u00e9.md", "One."), write("cafe\u0301.md", "Two.")
    rows = collect(tmp_path / "docs").rows
    assert list(rows) == ["docs/caf\u00e9.md", "docs/caf\u00e9.md~2"]


def test_names_that_are_no_text(write, tmp_path):
    folder = os.fsencode(tmp_path / "docs")
    write("leave.md")
    for name in (b"caf\xe9.txt", b"\x1b[31m.md", b"a\nb.md"):
        with open(os.path.join(folder, name), "w") as file:
            file.write("Ada was in London.")
    found = collect(tmp_path / "docs", base_url="https://x")
    assert not found.unread
    assert sorted(found.rows) == [
        r"docs/\x1b[31m.md",
        r"docs/a\nb.md",
        "docs/caf\ufffd.txt",
        "docs/leave.md",
    ]
    urls = {row["url"] for row in found.rows.values()}
    assert "https://x/caf%E9.txt" in urls


def test_unread_files_are_grouped():
    unread = {f"d/{n}.png": "files of .png are not read" for n in range(5)}
    unread |= {f"d/{n}.jsonl": f"/x/d/{n}.jsonl:{n}: broken" for n in (8, 9)}
    assert grouped(unread) == [
        {
            "reason": "files of .png are not read",
            "extension": "png",
            "files": 5,
            "examples": ["d/0.png", "d/1.png", "d/2.png"],
        },
        {
            "reason": "/x/d/8.jsonl:8: broken",
            "extension": "jsonl",
            "files": 2,
            "examples": ["d/8.jsonl", "d/9.jsonl"],
        },
    ]
