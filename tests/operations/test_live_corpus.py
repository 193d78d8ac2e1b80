"""A corpus of documents that change, on the tiny model."""

import json
import os
import random

import keras
import numpy as np
import pytest
from small_pdf import small_pdf

import realm_tf as realm
from realm_tf import cli
from realm_tf.answering.answerer import Answerer
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.errors import InputError
from realm_tf.operations import live_corpus

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="a SavedModel is made with the TensorFlow backend",
)

FILES = {
    "rivers/nile.md": "# Nile\nThe Nile flows to Egypt.\n## Source\nIt is in Rome.",
    "rivers/tiber.html": "<html><title>Tiber</title><p>The river of Rome.</p>",
    "ada.txt": "Ada was in London.\n\nAda was in Paris.",
    "cities.csv": "City,River\nRome,Tiber\nLondon,Thames\n",
}


def _write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)


def _create(folder, output, model_dir, **options):
    operation = realm.CreateCorpus(
        documents=str(folder), output=str(output), model=model_dir, **options
    )
    return operation.run()


@pytest.fixture(scope="module")
def created(tmp_path_factory, model_dir):
    """A folder and the corpus of it."""
    root = tmp_path_factory.mktemp("corpus")
    _write(root / "docs", FILES)
    _write(
        root / "docs",
        {"fire.pdf": small_pdf([["Fire in the city."]]), "x.bin": b"\0\1"},
    )
    _write(root / "docs", {".hidden.md": "# Hidden"})
    counts = _create(root / "docs", root / "corpus", model_dir)
    return root, counts


def _contents(corpus):
    """(id, title, text, url) and embedding of each block of the state."""
    state = LiveCorpus(corpus).current
    blocks = [
        (block.article_id, block.title, block.text, block.url)
        for block in state.blocks.read()
    ]
    return blocks, np.asarray(state.index.embeddings)


def test_what_is_made(created):
    root, counts = created
    assert counts["documents"] == 7 and counts["files"] == 5
    assert counts["files_of_no_known_format"] == 1
    assert counts["blocks"] == counts["blocks_embedded"] == 7
    blocks, _ = _contents(root / "corpus")
    assert ("rivers/nile.md#Source", "Nile: Source", "It is in Rome.") in {
        block[:3] for block in blocks
    }
    assert {block[3] for block in blocks} == {
        *("ada.txt", "rivers/nile.md", "rivers/tiber.html"),
        "cities.csv",
        "fire.pdf#page=1",
    }
    # It answers as its parts do.
    state = LiveCorpus(root / "corpus").current
    model = LiveCorpus(root / "corpus").manifest()["settings"]["model"]
    answerer = Answerer(model, state.blocks, state.index, retriever="hybrid")
    question = "What flows to Egypt?"
    wanted = answerer.ask(question)
    ask = realm.Ask(question=question, saved_model=f"{root}/corpus/saved_model")
    (view,) = ask.run()
    assert view.answer.answer == wanted.answer != ""
    assert view.answer.block_id == wanted.block_id


def test_there_is_one_already(created, model_dir):
    root, _ = created
    with pytest.raises(InputError, match="is a corpus already"):
        _create(root / "docs", root / "corpus", model_dir)


def test_changes_equal_a_corpus_made_from_nothing(tmp_path, model_dir, capsys):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    _write(docs, FILES)
    _create(docs, corpus, model_dir, retriever="realm")
    # Nothing has changed.
    before = LiveCorpus(corpus).manifest()
    realm.SyncCorpus(corpus=str(corpus)).run()
    assert LiveCorpus(corpus).manifest() == before
    (docs / "ada.txt").write_text("Ada was in London.\n\nAda was in Leipzig.")
    (docs / "rivers/tiber.html").unlink()
    _write(docs, {"etna.md": "# Etna\nEtna is fire."})
    # A section moves, and stays what it was.
    _write(
        docs,
        {"rivers/nile.md": "# Nile\n## Source\nIt is in Rome.\n## End\nEgypt."},
    )
    capsys.readouterr()
    arguments = ["corpus", "sync", str(corpus)]
    assert cli.main([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told == (
        "added           2  etna.md#, rivers/nile.md#End\n"
        "changed         1  ada.txt#\n"
        "removed         2  rivers/nile.md#, rivers/tiber.html#\n"
        "the same        3\n"
    )
    assert LiveCorpus(corpus).manifest() == before
    assert cli.main(arguments) == 0
    manifest = LiveCorpus(corpus).manifest()
    assert manifest["state"] == 2
    assert manifest["counts"]["blocks"] == 6
    assert manifest["counts"]["blocks_embedded"] == 3
    _create(docs, tmp_path / "anew", model_dir, retriever="realm")
    (blocks, rows), (wanted, wanted_rows) = map(
        _contents, (corpus, tmp_path / "anew")
    )
    assert blocks == wanted
    np.testing.assert_allclose(rows, wanted_rows, atol=1e-5)


@pytest.mark.slow
def test_random_changes_equal_a_corpus_made_from_nothing(tmp_path, model_dir):
    draw = random.Random(0)
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    _write(docs, FILES)
    _create(docs, corpus, model_dir, retriever="realm")
    words = [
        "the",
        "river",
        "of",
        "Rome",
        "fire",
        "in",
        "London",
        "Ada",
        "was",
        "Etna",
        "Nile",
    ]
    for step in range(4):
        for _ in range(draw.randint(1, 4)):
            path = docs / f"{draw.randint(0, 5)}.md"
            if path.exists() and draw.random() < 0.4:
                path.unlink()
            else:
                text = " ".join(draw.choices(words, k=draw.randint(1, 30)))
                path.write_text(f"# T{step % 3}\n{text}.\n## S\n{text[:20]}")
        realm.SyncCorpus(corpus=str(corpus)).run()
        _create(docs, tmp_path / f"anew{step}", model_dir, retriever="realm")
        (blocks, rows), (wanted, wanted_rows) = map(
            _contents, (corpus, tmp_path / f"anew{step}")
        )
        assert blocks == wanted
        np.testing.assert_allclose(rows, wanted_rows, atol=1e-5)


def test_add_and_remove(tmp_path, model_dir, capsys):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    _write(docs, FILES)
    _create(docs, corpus, model_dir, retriever="realm")
    rows = tmp_path / "more.jsonl"
    rows.write_text(
        json.dumps(
            {"id": "bach", "title": "Bach", "text": "Bach was in Leipzig."}
        )
    )
    _write(tmp_path, {"other/ada.txt": "Ada was in Egypt."})
    realm.AddToCorpus(
        corpus=str(corpus), documents=(str(rows), str(tmp_path / "other"))
    ).run()
    found = LiveCorpus(corpus).current.documents()
    assert found["bach"]["text"] == "Bach was in Leipzig."
    assert found["ada.txt#"]["text"] == "Ada was in Egypt."
    assert len(found) == 7
    # A "#" in the id of a row is part of it.
    for number in "12":
        line = {"id": f"n#{number}", "title": "N", "text": f"It is {number}."}
        rows.write_text(json.dumps(line))
        realm.AddToCorpus(corpus=str(corpus), documents=(str(rows),)).run()
    found = LiveCorpus(corpus).current.documents()
    assert {"n#1", "n#2", "bach"} <= set(found)
    realm.RemoveFromCorpus(
        corpus=str(corpus), ids=("rivers/*", "bach", "n#?")
    ).run()
    found = LiveCorpus(corpus).current.documents()
    assert sorted(found) == ["ada.txt#", "cities.csv#1", "cities.csv#2"]
    # The state before is there for who still reads it; the first is not.
    assert sorted(os.listdir(corpus / "states")) == ["000004", "000005"]
    assert sorted(os.listdir(corpus / "saved_model")) == ["4", "5"]
    remove = realm.RemoveFromCorpus(corpus=str(corpus), ids=("nothing",))
    with pytest.raises(InputError, match="has no document nothing"):
        remove.run()
    with pytest.raises(InputError, match="No document is left"):
        realm.RemoveFromCorpus(corpus=str(corpus), ids=("*",)).run()
    assert LiveCorpus(corpus).manifest()["state"] == 5
    capsys.readouterr()
    assert cli.main(["corpus", "status", str(corpus), "--list"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("state 5: 3 documents, 3 blocks (0 of them")
    assert told[-3:] == ["ada.txt#", "cities.csv#1", "cities.csv#2"]


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("BuildIndex", marks=pytest.mark.slow),
        pytest.param("Export", marks=pytest.mark.slow),
        "commit",
    ],
)
def test_an_update_that_was_killed_changes_nothing(
    tmp_path, model_dir, monkeypatch, where
):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    _write(docs, {"ada.txt": "Ada was in London."})
    _create(docs, corpus, model_dir, retriever="realm")
    before = LiveCorpus(corpus).manifest()
    _write(docs, {"nile.txt": "The Nile flows to Egypt."})

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if where == "commit":
            patch.setattr(LiveCorpus, "commit", killed)
        else:
            kind = getattr(live_corpus, where)
            name = "write_version" if where == "Export" else "run"
            patch.setattr(kind, name, killed)
        with pytest.raises(KeyboardInterrupt):
            realm.SyncCorpus(corpus=str(corpus)).run()
    assert LiveCorpus(corpus).manifest() == before
    if where == "BuildIndex":
        # It goes on with what is there.
        realm.SyncCorpus(corpus=str(corpus)).run()
        assert LiveCorpus(corpus).manifest()["state"] == 2
        return
    # Meanwhile the documents change again.
    _write(docs, {"nile.txt": "The Nile is a river."})
    realm.SyncCorpus(corpus=str(corpus)).run()
    # Whoever has loaded what was made just before the end must see another.
    assert LiveCorpus(corpus).manifest()["state"] == 3
    assert sorted(os.listdir(corpus / "states")) == ["000001", "000003"]
    blocks, _ = _contents(corpus)
    assert [block[2] for block in blocks] == [
        "Ada was in London.",
        "The Nile is a river.",
    ]
    ask = realm.Ask(question="Nile?", saved_model=str(corpus / "saved_model"))
    (view,) = ask.run()
    assert {each.text for each in view.answer.candidates} == {
        block[2] for block in blocks
    }


def test_two_documents_of_one_id_are_refused(tmp_path, model_dir):
    for name, text in (("a", "One."), ("b", "Two.")):
        _write(tmp_path, {f"{name}/x.txt": text})
    operation = realm.CreateCorpus(
        documents=(str(tmp_path / "a"), str(tmp_path / "b")),
        output=str(tmp_path / "corpus"),
        model=model_dir,
    )
    with pytest.raises(InputError, match=r"have one id, 'x.txt#'"):
        operation.run()
    assert not (tmp_path / "corpus").exists()
