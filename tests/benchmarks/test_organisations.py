"""The documents and questions that the package's reader learned from."""

import html
import json
import re
import tarfile

import handbook
import organisations
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return organisations.unpack(str(tmp_path_factory.mktemp("organisations")))


def _asked(folder):
    for path in sorted(folder.glob("*/questions.jsonl")):
        for line in path.read_text().splitlines():
            yield path.parent, json.loads(line)


def test_every_question_is_answered_by_its_document(folder):
    asked = list(_asked(folder))
    # By its question a retriever knows whose documents it is asked over.
    assert len({each["question"] for _, each in asked}) == len(asked) == 8095
    names = {where.name for where, _ in asked}
    assert len(names) == 184 and names > set(organisations.DEV)
    for where, each in asked:
        text = (where / each["document"]).read_text()
        plain = " ".join(re.sub(r"<[^>]+>", " ", text).split())
        assert any(answer in plain for answer in each["answer"]), each
        assert any(answer in each["excerpt"] for answer in each["answer"])


def test_the_pages_of_products_answer_their_questions(folder):
    products = folder.parent / "products"
    asked = list(_asked(products))
    missed = [
        (path.parent, json.loads(line))
        for path in products.glob("*/near_misses.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert (len(asked), len(missed)) == (4728, 2731)
    questions = {each["question"] for _, each in (*asked, *missed)}
    assert len(questions) == 4728 + 2731
    for where, each in asked:
        text = (where / each["document"]).read_text()
        if each["document"].endswith(".html"):
            text = html.unescape(re.sub(r"<[^>]+>", " ", text))
        plain = " ".join(re.sub(r"[`*|]", " ", text).split())
        for answer in each["answer"]:
            assert answer in plain or answer in " ".join(text.split()), each
        assert any(answer in each["excerpt"] for answer in each["answer"])
    assert all((where / each["document"]).exists() for where, each in missed)


def test_only_regular_files_below_a_folder_are_unpacked(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("x")
    (tmp_path / "link").symlink_to("text")
    archive_path = tmp_path / "archive.tar.xz"
    with tarfile.open(archive_path, "w:xz") as archive:
        archive.add(tmp_path / "text", "organisations/a/text")
        archive.add(tmp_path / "text", "../outside")
        archive.add(tmp_path / "link", "organisations/a/link")
    monkeypatch.setattr(organisations, "_ARCHIVE", archive_path)
    # Python 3.11.0 to 3.11.3 have no `filter` argument.
    monkeypatch.delattr(tarfile.TarFile, "extractall")
    organisations.unpack(str(tmp_path / "into" / "folder"))
    found = {path for path in (tmp_path / "into").rglob("*") if path.is_file()}
    assert found == {tmp_path / "into/folder/organisations/a/text"}
    assert not (tmp_path / "into" / "outside").exists()


def test_they_know_nothing_of_the_handbook_that_is_asked_in_the_tests(folder):
    """It measures how a model reads what it has never seen."""
    names = {
        name
        for path in handbook.DOCUMENTS.rglob("*.*")
        if path.suffix != ".pdf"
        for name in re.findall(
            r"[A-Z][a-z]+ [A-Z][a-z]{3,}", path.read_text("utf-8")
        )
        if not name.endswith(("day", "days")) and not name.startswith("In ")
    }
    names = re.compile("|".join([*sorted(names), "kettle"]))
    history = handbook.DOCUMENTS / "company" / "history.md"
    assert names.search(history.read_text("utf-8"))
    found = {
        match
        for path in folder.rglob("*.*")
        for match in names.findall(path.read_text())
    }
    assert not found


@pytest.mark.slow
def test_dev_is_asked_over_its_own_documents(tmp_path, model_dir):
    told = organisations.main(model=model_dir, output=str(tmp_path / "output"))
    assert {name: each["questions"] for name, each in told.items()} == {
        "organisations": 264,
        "products": 200,
    }
    assert told["products"]["near misses"] == 75
    lines = tmp_path / "output/organisations/answers.jsonl"
    asked = [json.loads(line) for line in lines.read_text().splitlines()]
    for each in asked:
        owner, _, _ = each["file"].partition("/")
        assert {file.partition("/")[0] for file in each["files"]} == {owner}
        assert not each.get("near_miss") or each["file"] not in each["files"]
    assert sum("near_miss" in each for each in asked) == 264
    lines = tmp_path / "output/products/answers.jsonl"
    asked = [json.loads(line) for line in lines.read_text().splitlines()]
    read = {file for each in asked for file in each["files"]}
    assert {file.rpartition(".")[2] for file in read} == {"html", "md", "rst"}
