"""Files and folders as documents: what they are called, what is left out."""

import gzip

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
    "latin.csv": (b"Name;Gr\xf6\xdfe\n", "no CSV file in UTF-8"),
    "bad.jsonl": ('{"id": 1, "title": "a", "text": "b"}\n{x\n', "jsonl:2:"),
    "broken.gz": (b"\x1f\x8b\x08junk", "broken.gz is truncated"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_file_of_a_folder_is_left_out(write, tmp_path, capsys, name):
    content, message = BAD[name]
    bad, _ = write(name, content), write("leave.md")
    rows, counts, unread = collect([str(tmp_path / "docs")])
    assert list(rows) == ["leave.md#"]
    assert message in capsys.readouterr().err
    known = counts["dropped_bad_record_document"]
    assert known + counts["files_of_no_known_format"] == 1
    assert unread == {name}
    with pytest.raises(InputError, match=name):
        collect([bad])


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
