"""Files and folders as documents: what they are called, what is left out."""

import gzip
import os

import pytest

from realm_tf.articles.collecting import collect
from realm_tf.errors import InputError

pytestmark = pytest.mark.fast

LEAVE = "# Leave\n25 days.\n"


@pytest.fixture
def write(tmp_path):
    """A function that writes a file below `docs` and gives its path."""

    def write(name, content=LEAVE):
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return str(path)

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
    rows, counts, unread = collect([str(tmp_path / "docs")])
    assert list(rows) == ["leave.md#"]
    assert message in unread[name]
    known = counts["dropped_bad_record_document"]
    assert known + counts["files_of_no_known_format"] == 1
    assert list(unread) == [name]


def test_the_only_file_that_is_named_must_be_readable(write):
    bad = write("bad.jsonl", "{x\n")
    with pytest.raises(InputError, match="bad.jsonl:1: broken JSON"):
        collect([bad])
    assert list(collect([bad, write("leave.md")])[0]) == ["leave.md#"]


def test_only_regular_files_of_the_folder_are_read(write, tmp_path):
    inside, secret = write("leave.md"), tmp_path / "secret.md"
    secret.write_text("Secret.")
    folder = tmp_path / "docs"
    os.mkfifo(folder / "pipe.md")
    for name, target in (
        ("out.md", secret),
        ("zero.txt", "/dev/zero"),
        ("loop.md", "loop.md"),
        ("dead.md", "nowhere.md"),
        ("same.md", inside),
    ):
        (folder / name).symlink_to(target)
    rows, _, unread = collect([str(folder)])
    assert list(rows) == ["leave.md#", "same.md#"]
    assert {
        name: reason.split("(")[-1][:20] for name, reason in unread.items()
    } == {
        "dead.md": "No such file or dire",
        "loop.md": "Too many levels of s",
        "out.md": "it is a link out of ",
        "pipe.md": "no regular file): ex",
        "zero.txt": "it is a link out of ",
    }


def test_a_page_of_a_wiki_that_is_malformed_stops_nothing(write, tmp_path):
    table = f"{{|\n| rowspan={'9' * 5000} | Oslo\n|}}\nText."
    page = "<page><title>T{0}</title><id>{0}</id><revision><text>{1}</text></revision></page>"
    pages = page.format(1, table) + page.format(2, "It is fine.")
    write("dump.xml", f"<mediawiki>{pages}</mediawiki>")
    rows, *_ = collect([str(tmp_path / "docs")])
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
            f"<p>a{number}<p>b{number}{NOTICE}",
        )
    rows, *_ = collect([str(tmp_path / "docs")])
    lines = [row["text"].split("\n") for row in rows.values()]
    # The first page keeps it.
    assert lines[0] == ["Home", "Docs", "Page 0"]
    assert {"Type: small.", "Accept", "Imprint"} < set(lines[1])
    assert lines[2::2] == [[f"Page {n}"] for n in range(1, 6)]
    assert lines[3::2] == [
        [text, f"a{n}", f"b{n}"] for n, text in enumerate(texts) if n
    ]


def test_versions_of_a_page_keep_what_they_have_in_common(write, tmp_path):
    for number in range(6):
        write(f"{number}.html", f"<p>{'Same text. ' * 20}<p>Version {number}.")
    rows, *_ = collect([str(tmp_path / "docs")])
    assert all(row["text"].startswith("Same text.") for row in rows.values())


def test_templates_of_site_generators_are_no_rows(write, tmp_path):
    write("nav.md", "{% include nav.md %}\n\nHello.\n")
    write("toc.md", "{toc}\nYes.\n")
    rows, *_ = collect([str(tmp_path / "docs")])
    assert [row["text"] for row in rows.values()] == [
        "{% include nav.md %}\nHello.",
        "{toc} Yes.",
    ]


def test_a_file_without_text_is_named(write, tmp_path, capsys):
    write("leave.md")
    path = write("empty.md", "---\ntitle: Empty\n---\n")
    _, counts, _ = collect([str(tmp_path / "docs")])
    assert counts["files_without_text"] == 1
    assert capsys.readouterr().err == f"warning: {path} has no text.\n"


def test_compressed_documents_have_their_names(write, tmp_path):
    write("leave.md.gz", gzip.compress(b"25 days."))
    rows, *_ = collect([str(tmp_path / "docs")])
    assert rows["leave.md.gz#"]["title"] == "leave"


def test_files_of_one_name_in_several_folders(write, tmp_path):
    write("hr/README.md"), write("it/sub/README.md")
    folders = [str(tmp_path / "docs" / name) for name in ("hr", "it")]
    assert list(collect(folders)[0]) == ["hr/README.md#", "it/sub/README.md#"]
    assert list(collect(folders[:1])[0]) == ["README.md#"]


def test_urls(write, tmp_path):
    write("s 2/rates #1.csv", "City,Stay\nOslo,160\n")
    write("a.csv", "id,title,text,url\n17,A,x,https://y\n18,B b,x,\n")
    folder = str(tmp_path / "docs")
    for base_url, of_file, of_row in (
        (None, "s 2/rates #1.csv", ""),
        ("https://b/", "https://b/s%202/rates%20%231.csv", "https://b/B_b"),
    ):
        rows, *_ = collect([folder], base_url=base_url)
        assert {name: row["url"] for name, row in rows.items()} == {
            "s 2/rates #1.csv#Oslo": of_file,
            "17": "https://y",
            "18": of_row,
        }
        assert rows["17"]["file"] == "a.csv"
        assert rows["s 2/rates #1.csv#Oslo"]["file"] == "s 2/rates #1.csv"
