"""A corpus of documents that change, on the tiny model."""

import dataclasses
import gc
import itertools
import json
import os
import pathlib
import shutil
import weakref

import backends
import keras
import live_corpora
import numpy as np
import pytest
import tiny_models
from small_pdf import small_pdf

import realm_tf as realm
from realm_tf import cli
from realm_tf.answering import calibration
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.live_corpus import Segment
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.export import live_version
from realm_tf.models import model_directory
from realm_tf.operations import corpus_change
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.hybrid import LEXICAL_WEIGHT
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable

pytestmark = backends.exports

CALIBRATION = Calibration(-1.0, 0.2, 0.1, questions=7)
FILES = {
    "rivers/nile.md": "# Nile\nThe Nile flows to Egypt.\n## Source\nIt is in Rome.",
    "rivers/tiber.html": "<html><title>Tiber</title><p>The river of Rome.</p>",
    "ada.txt": "Ada was in London.\n\nAda was in Paris.",
    "cities.csv": "City,River\nRome,Tiber\nLondon,Thames\n",
}


def _create(folder, output, model_dir, **options):
    operation = realm.CreateCorpus(
        documents=str(folder), output=str(output), model=model_dir, **options
    )
    return operation.run()


@pytest.fixture(scope="module")
def created(tmp_path_factory, model_dir):
    """A folder and the corpus of it."""
    root = tmp_path_factory.mktemp("corpus")
    live_corpora.write(root / "docs", FILES)
    live_corpora.write(
        root / "docs",
        {"fire.pdf": small_pdf([["Fire in the city."]]), "x.bin": b"\0\1"},
    )
    live_corpora.write(root / "docs", {".hidden.md": "# Hidden"})
    # It comes with a calibration.
    loaded = model_directory.load(model_dir)
    model = str(tmp_path_factory.mktemp("calibrated") / "model")
    model_directory.save(
        dataclasses.replace(
            loaded, calibration=dataclasses.asdict(CALIBRATION)
        ),
        model,
    )
    counts = _create(root / "docs", root / "corpus", model)
    return root, counts


@pytest.fixture
def copied(created, tmp_path):
    """Its folder and corpus, moved and to be changed."""
    root, _ = created
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    sync = realm.SyncCorpus(corpus=str(corpus), drop="docs", add=docs)
    # They are called the same.
    assert sync.run()["state"] == 1
    return docs, corpus


def test_what_is_made(created):
    root, made = created
    assert made["documents"] == 6
    assert made["blocks"] == made["blocks_embedded"] == 7
    (source,) = made["sources"]
    assert (source["label"], source["path"]) == ("docs", str(root / "docs"))
    assert (source["documents"], source["blocks"]) == (6, 7)
    assert source["unread"] == [
        {
            "reason": "files of .bin are not read",
            "extension": "bin",
            "files": 1,
            "examples": ["docs/x.bin"],
        }
    ]
    blocks, rows = live_corpora.contents(root / "corpus")
    name = "docs/rivers/nile.md#Source"
    assert (name, "Nile: Source", "It is in Rome.") in {
        block[:3] for block in blocks
    }
    assert {block[3] for block in blocks} == {
        *("docs/ada.txt", "docs/rivers/nile.md", "docs/rivers/tiber.html"),
        "docs/cities.csv",
        "docs/fire.pdf#page=1",
    }
    # It answers as the Python code over its parts.
    state = LiveCorpus(root / "corpus").state()
    model = Model(LiveCorpus(root / "corpus").manifest().settings["model"])
    predictor = Predictor(
        Corpus(model_directory.load(model), state.records(), BruteForce(rows)),
        lexical_weight=LEXICAL_WEIGHT,
    )
    question = "What flows to Egypt?"
    (wanted,) = predictor.predict([question])
    (view,) = realm.Ask(question=question, saved_model=f"{root}/corpus").run()
    assert view.answer.answer == wanted.answer != ""
    assert view.answer.block_id == wanted.block_id
    chosen = calibration.choose(wanted, fitted=CALIBRATION)
    assert view.answer.confidence == pytest.approx(chosen.confidence, abs=1e-4)
    assert view.answer.answered == chosen.answered
    readme = (root / "corpus/saved_model/1/README.md").read_text()
    assert (
        "confidence fitted to 7 questions, `answered` from 0.100 on" in readme
    )


def test_a_document_is_that_of_its_sections(created):
    state = LiveCorpus(created[0] / "corpus").state()
    row, block_ids = state.document("docs/rivers/nile.md")
    parts = [
        state.document(f"docs/rivers/nile.md{x}")[1] for x in ("", "#Source")
    ]
    assert (row["id"], row["title"]) == ("docs/rivers/nile.md", "Nile")
    assert row["text"] == "The Nile flows to Egypt.\n\nSource\nIt is in Rome."
    assert len(block_ids) == 2 and parts == [block_ids, block_ids[1:]]
    row, block_ids = state.document("docs/fire.pdf")
    assert (row["id"], len(block_ids)) == ("docs/fire.pdf#page=1", 1)
    assert state.document("docs/rivers") is None


def test_there_is_one_already(created, model_dir):
    root, _ = created
    with pytest.raises(InputError, match="is a corpus already"):
        _create(root / "docs", root / "corpus", model_dir)


def test_it_has_a_directory_of_its_own(tmp_path, model_dir):
    live_corpora.write(tmp_path, FILES)
    for documents in (tmp_path, tmp_path / "*.md"):
        with pytest.raises(InputError, match="a directory of its own"):
            _create(documents, tmp_path, model_dir)


@pytest.mark.slow
def test_a_change_embeds_what_is_new(tmp_path, model_dir, capsys):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    live_corpora.write(docs, FILES)
    _create(docs, corpus, model_dir, retriever="realm")
    # Nothing has changed.
    before = LiveCorpus(corpus).manifest()
    realm.SyncCorpus(corpus=str(corpus)).run()
    after = LiveCorpus(corpus).manifest()
    assert dataclasses.replace(after, sources=before.sources) == before
    (docs / "ada.txt").write_text("Ada was in London.\n\nAda was in Leipzig.")
    (docs / "rivers/tiber.html").unlink()
    live_corpora.write(docs, {"etna.md": "# Etna\nEtna is fire."})
    # A section moves, and stays what it was.
    live_corpora.write(
        docs,
        {"rivers/nile.md": "# Nile\n## Source\nIt is in Rome.\n## End\nEgypt."},
    )
    capsys.readouterr()
    arguments = ["corpus", "sync", str(corpus), "--yes"]
    assert cli.main([*arguments, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "added           1  docs/etna.md\n"
        "changed         2  docs/ada.txt, docs/rivers/nile.md\n"
        "removed         1  docs/rivers/tiber.html\n"
        "the same        2\n"
        "--dry-run: nothing is changed in the corpus, which has\n"
    )
    assert "synced" not in told
    assert LiveCorpus(corpus).manifest() == after
    assert cli.main(arguments) == 0
    manifest = LiveCorpus(corpus).manifest()
    assert manifest.state == 2
    assert manifest.counts["blocks"] == 6
    assert manifest.counts["blocks_embedded"] == 3
    verify = realm.Verify(saved_model=str(corpus / "saved_model"))
    with pytest.raises(InputError, match="holds no expected answers"):
        verify.run()


@pytest.mark.slow
def test_one_graph_takes_all_states_of_all_corpora(tmp_path, model_dir):
    docs, corpora = tmp_path / "docs", [tmp_path / "a", tmp_path / "b"]

    def graph(corpus):
        live = LiveCorpus(corpus)
        version = live.version(live.manifest().state)
        return pathlib.Path(version.file("saved_model.pb")).read_bytes()

    live_corpora.write(
        docs, {"ada.txt": "Ada was in London, in Paris and in Rome."}
    )
    _create(docs, corpora[0], model_dir)
    first = graph(corpora[0])
    texts = [*(200 * ["The Nile flows."]), "Fire was in the city."]
    rows = [
        {"id": n, "title": f"{n}", "text": text} for n, text in enumerate(texts)
    ]
    live_corpora.write(docs, {"nile.jsonl": "\n".join(map(json.dumps, rows))})
    realm.SyncCorpus(corpus=str(corpora[0])).run()
    assert len(live_corpora.contents(corpora[0])[0]) == 202
    found = live_corpora.outputs(corpora[0], ["fire, city"])["candidate_text"][
        0
    ]
    assert b"Fire was in the city." in found.tolist()
    _create(docs, corpora[1], model_dir)
    assert graph(corpora[1]) == first
    live_corpora.assert_same_answers(*corpora)
    assert graph(corpora[0]) == first
    # Places in texts that two bytes cannot say need another graph, and
    # what an older version exported has none of these.
    live_corpora.write(docs, {"long.txt": " ".join(20 * ["x" * 10_000])})
    realm.SyncCorpus(corpus=str(corpora[0])).run()
    assert graph(corpora[0]) != first
    card = LiveCorpus(corpora[1]).version(1).file("assets.extra/card.json")
    facts = json.loads(pathlib.Path(card).read_text())
    del facts["tables"]
    pathlib.Path(card).write_text(json.dumps(facts))
    realm.SyncCorpus(corpus=str(corpora[1])).run()
    live_corpora.assert_same_answers(*corpora)


# Of blocks, by id.
FIELDS = {0: b"tags=b; date=2023-01-01", 2: b"tags=a|b; date=2024-05-01"}


@pytest.mark.slow
def test_documents_are_chosen_by_their_fields(tmp_path, model_dir, capsys):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    live_corpora.write(
        docs,
        {
            "nile.md": "---\ntags: [a, b]\ndate: 2024-05-01\n---\n"
            "The Nile flows to Egypt.",
            "ada.md": "---\ntags: b\ndate: 2023-01-01\n---\nAda was in Rome.",
            "fire.txt": "Fire is in the city.",
        },
    )
    _create(docs, corpus, model_dir, fields=("tags", "date", "writer"))
    assert "no document has writer\n" in capsys.readouterr().err
    for filter, wanted in (
        ("", {0, 1, 2}),
        ("tags=b", {0, 2}),
        ("tags=a;date>=2024", {2}),
        ("tags!=b", {1}),
        ("date<2023", set()),
    ):
        found = live_corpora.outputs(corpus, ["Egypt?", ""], filter)
        ids = found["candidate_block_id"]
        assert set(ids[0].tolist()) - {-1} == wanted
        assert set(ids[1].tolist()) == {-1}
        assert (found["answer"][0] != b"") == bool(wanted)
        # Nothing stands where there is no block.
        assert not any(found["candidate_text"][ids < 0])
        assert not any(found["candidate_title"][ids < 0])
        told = dict(
            zip(ids[0].tolist(), found["candidate_fields"][0], strict=True)
        )
        assert told == {n: FIELDS.get(n, b"") for n in ids[0].tolist()}
    with pytest.raises(RequestError, match="no field of this corpus"):
        live_corpora.outputs(corpus, ["Egypt?"], "tag=a")
    ask = realm.Ask(
        question="Egypt?",
        saved_model=str(corpus / "saved_model"),
        filter="tags=b;tags!=a",
    )
    (view,) = ask.run()
    assert view.answer.text == "Ada was in Rome."
    assert view.answer.fields == "tags=b; date=2023-01-01"
    # Another date, in the graph that there is.
    live_corpora.write(
        docs, {"ada.md": "---\ndate: 2022-01-01\n---\nAda was in Rome."}
    )
    realm.SyncCorpus(corpus=str(corpus)).run()
    (view,) = dataclasses.replace(ask, filter="date<2023").run()
    assert view.answer.fields == "date=2022-01-01"
    with pytest.raises(InputError, match="cannot leave blocks out of a search"):
        _create(docs, tmp_path / "x", model_dir, fields="tags", kind="scann")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", "scann"])
def test_other_kinds_of_index(tmp_path, model_dir, kind):
    """Every block may be found, so that any kind can search for them."""
    live_corpora.write(tmp_path / "docs", FILES)
    corpus = tmp_path / "corpus"
    _create(tmp_path / "docs", corpus, model_dir, kind=kind)
    titles = live_corpora.outputs(corpus, ["Nile"])["candidate_title"][0]
    assert b"Nile" in titles.tolist()


def test_documents_come_and_go(tmp_path, copied, capsys):
    docs, corpus = copied
    sync = realm.SyncCorpus(corpus=str(corpus), yes=True)
    # A "#" in the id of a row is part of it.
    line = {"id": "n#[1]", "title": "Bach", "text": "Bach was in Leipzig."}
    live_corpora.write(docs, {"more.jsonl": json.dumps(line)})
    sync.run()
    found = LiveCorpus(corpus).state().rows()
    assert found["docs/more.jsonl#n#[1]"]["text"] == "Bach was in Leipzig."
    assert len(found) == 8
    live_corpora.write(docs, {"ada.txt": "Ada was in Egypt."})
    sync.run()
    shutil.rmtree(docs / "rivers")
    for name in ("more.jsonl", "fire.pdf"):
        (docs / name).unlink()
    sync.run()
    found = LiveCorpus(corpus).state().rows()
    left = ["docs/ada.txt", "docs/cities.csv#London", "docs/cities.csv#Rome"]
    assert sorted(found) == left
    # The export before is there for who still serves it; the first is not.
    assert sorted(os.listdir(corpus / "saved_model")) == ["3", "4"]
    _assert_apart(LiveCorpus(corpus), 3, 4)
    with pytest.raises(InputError, match="No document is left"):
        dataclasses.replace(sync, drop="docs").run()
    with pytest.raises(
        InputError, match="expected the label of a source: docs"
    ):
        dataclasses.replace(sync, drop="dosc").run()
    assert LiveCorpus(corpus).manifest().state == 4
    capsys.readouterr()
    live_corpora.write(docs, {"new.md": "# New\nIt is new."})
    assert cli.main(["corpus", "status", str(corpus), "--list"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("state 4: 3 documents, 3 blocks (0 of them")
    assert told[2].startswith("3 blocks on the disk, in 1 segments")
    assert told[3].startswith(f"docs ({docs}): 3 documents, 3 blocks, synced")
    assert told[3].endswith(" ago), 1 files changed since then")
    assert told[4] == "  1 not read (files of .bin are not read): docs/x.bin"
    assert told[-3:] == left


def _assert_apart(corpus, old, new):
    """While both are served, each says what it said."""
    inputs = {"question": np.array([b"Where was Ada?"], object)}

    def ask(served):
        return served.run(inputs)["candidate_text"].tolist()

    with SavedModelServable(corpus.version(old).path) as before:
        said = ask(before)
        with SavedModelServable(corpus.version(new).path) as after:
            left = {
                row["text"].encode() for row in corpus.state().rows().values()
            }
            # Five blocks are read; three are left.
            assert set(ask(after)[0]) == left | {b""}
            assert set(said[0]) - left
            assert ask(before) == said


PLACES = {
    "cut": (Chunk, "run"),
    "embedded": (Embed, "write_rows"),
    "named": (Segment, "finish"),
    "exported": (live_version, "write"),
    "current": (LiveCorpus, "clean"),
    "before it is current": (corpus_change, "_export"),
    "compacted": (corpus_change, "compact"),
}


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory, model_dir):
    """A corpus of one document."""
    root = tmp_path_factory.mktemp("small")
    live_corpora.write(root / "docs", {"ada.txt": "Ada was in London."})
    _create(root / "docs", root / "corpus", model_dir)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "is_done"), [*itertools.product(PLACES, (False, True))]
)
def test_an_update_that_was_killed_changes_nothing_or_all(
    tmp_path, model_dir, small_corpus, monkeypatch, place, is_done
):
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    shutil.copytree(small_corpus / "docs", docs)
    shutil.copytree(small_corpus / "corpus", corpus)
    realm.SyncCorpus(corpus=str(corpus), drop="docs", add=docs).run()
    before = live_corpora.outputs(corpus, live_corpora.QUESTIONS)
    live_corpora.write(
        docs, {"nile.txt": "The Nile flows to Egypt.", "ada.txt": "Ada!"}
    )
    owner, name = PLACES[place]
    function = getattr(owner, name)

    def killed(*arguments, **options):
        if is_done:
            function(*arguments, **options)
        raise KeyboardInterrupt

    sync = realm.SyncCorpus(corpus=str(corpus))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            sync.run()
    is_new = place in ("current", "compacted")
    manifest = LiveCorpus(corpus).manifest()
    assert (manifest.state > 1) == is_new
    if not is_new:
        found = live_corpora.outputs(corpus, live_corpora.QUESTIONS)
        assert found["answer"].tolist() == before["answer"].tolist()
    # Meanwhile the documents change again, or they do not.
    if is_done:
        live_corpora.write(docs, {"nile.txt": "The Nile is a river."})
    sync.run()
    blocks, _ = live_corpora.contents(corpus)
    nile = "is a river" if is_done else "flows to Egypt"
    assert [block[2] for block in blocks] == ["Ada!", f"The Nile {nile}."]
    ids = LiveCorpus(corpus).state().block_ids()
    assert len(set(ids)) == len(ids) and 0 not in ids
    found = live_corpora.outputs(corpus, ["Nile?"])
    assert set(found["candidate_text"][0]) - {b""} == {
        block[2].encode() for block in blocks
    }
    # Nothing is left of what was killed.
    used = {each["name"] for each in LiveCorpus(corpus).manifest().segments}
    assert set(os.listdir(corpus / "segments")) == used


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [(live_version, "write"), (Segment, "finish")]
)
def test_what_a_killed_create_made_otherwise_is_made_anew(
    tmp_path, model_dir, vocabulary_path, monkeypatch, place
):
    """Nothing of one model is in the corpus of another, nor an id twice."""
    other = tiny_models.save(
        vocabulary_path, str(tmp_path / "model"), projection_dim=8, seed=4
    )
    docs, corpus = tmp_path / "docs", tmp_path / "corpus"
    live_corpora.write(docs, {"ada.txt": 30 * "Ada was in London. "})

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*place, killed)
        with pytest.raises(KeyboardInterrupt):
            _create(docs, corpus, model_dir)
    options = {"max_block_length": 40}
    _create(docs, corpus, other, **options)
    _create(docs, tmp_path / "other", other, **options)
    found, rows = live_corpora.contents(corpus)
    wanted, wanted_rows = live_corpora.contents(tmp_path / "other")
    assert found == wanted and len(found) > 2
    np.testing.assert_array_equal(rows, wanted_rows)
    live_corpora.write(docs, {"nile.txt": "The Nile is a river."})
    realm.SyncCorpus(corpus=str(corpus)).run()
    ids = LiveCorpus(corpus).state().block_ids()
    assert len(ids) == len(found) + 1 == len(set(ids))


def _sync(corpus, *options):
    return cli.main(["corpus", "sync", str(corpus), *options])


def test_one_process_changes_it(copied, capsys):
    _, corpus = copied
    with LiveCorpus(corpus).locked():
        assert _sync(corpus) == 2
    told = capsys.readouterr().err
    assert f"{corpus}/ is being written by another process: wait" in told
    assert "--output" not in told


def test_what_is_absent_is_not_removed(copied, monkeypatch, capsys):
    docs, corpus = copied
    before = LiveCorpus(corpus).state().articles()

    def check(wanted, message="", *options, status=4):
        assert _sync(corpus, "--dry-run", *options) == status
        told = capsys.readouterr()
        assert told.out.split("\n")[:4] == wanted
        assert message in told.out

    same = ["added           0", "changed         0", "removed         0"]
    same += ["the same        6"]
    # A file that cannot be understood keeps its own.
    live_corpora.write(docs, {"fire.pdf": b"%PDF-"})
    check(same, "docs/fire.pdf", status=3)
    # A source with anything that the disk does not give keeps all.
    live_corpora.write(docs, {"new.txt": "New.", "ada.txt": "Ada was in Rome."})
    (docs / "cities.csv").unlink()
    (docs / "link.txt").symlink_to("gone.txt")
    check(same, "No such file or directory")
    (docs / "link.txt").unlink()
    real = os.scandir

    def scandir(path):
        if str(path).endswith("rivers"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        check(same, f"Permission denied: '{docs}/rivers'")
        # Other sources go on.
        (docs.parent / "x.txt").write_text("X.")
        added = ["added           1  x.txt", *same[1:]]
        check(added, "", "--add", str(docs.parent / "x.txt"))
        check(same, "", "--add", str(docs.parent / "none*/*.txt"))
    moved = docs.rename(docs.parent / "moved")
    check(same, f"No such file or directory: '{docs}'")
    moved.rename(docs)
    # Nothing was changed by all of this.
    assert LiveCorpus(corpus).state().articles() == before
    assert _sync(corpus, "--max-removed", "2") == 3
    assert LiveCorpus(corpus).manifest().state == 2
    capsys.readouterr()
    same[3] = "the same        5"
    # A share that is no longer mounted.
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: path == str(docs))
        assert _sync(corpus) == 3
        capsys.readouterr()
    shutil.rmtree(docs)
    docs.mkdir()
    check(same, "Nothing is mounted there any more")


def test_much_is_removed_only_if_somebody_says_so(copied, monkeypatch, capsys):
    docs, corpus = copied
    (docs / "cities.csv").write_text("City,River\n")
    assert _sync(corpus) == 2
    told = capsys.readouterr().err
    assert f"2 of the 6 documents of docs ({docs}) would be removed" in told
    assert "give --yes or --max-removed 2" in told
    assert _sync(corpus, "--max-removed", "1") == 2
    asked = []

    def answer(text, answers=iter(("no", "yes"))):  # noqa: B008
        asked.append(text)
        return next(answers)

    with monkeypatch.context() as patch:
        patch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        patch.setattr("builtins.input", answer)
        assert _sync(corpus) == 2
        assert _sync(corpus) == 3
    assert "Type yes if they shall be" in asked[1]
    # All of a source needs a word.
    live_corpora.write(docs.parent, {"more/x.txt": "X."})
    assert _sync(corpus, "--add", str(docs.parent / "more")) == 3
    (docs.parent / "more/x.txt").unlink()
    (docs / "ada.txt").unlink()
    for options in ("--yes",), ("--max-removed", "1"), ():
        assert _sync(corpus, *options) == 2
    assert "give --max-removed all" in capsys.readouterr().err
    assert _sync(corpus, "--max-removed", "all") == 3
    assert {
        e.source for e in LiveCorpus(corpus).state().articles().values()
    } == {"docs"}


def test_sources_of_equal_names_and_what_they_leave_out(copied, capsys):
    docs, corpus = copied
    other = docs.parent / "other/docs"
    live_corpora.write(
        other, {"ada.txt": "Ada was in Rome.", "x.log.txt": "X."}
    )
    options = ["--add", str(other), "--exclude", "*.log.txt"]
    for _ in range(2):
        assert _sync(corpus, *options) == 3
    found = LiveCorpus(corpus).manifest()
    assert [each.label for each in found.sources] == ["docs", "docs-2"]
    rows = LiveCorpus(corpus).state().rows()
    assert len(rows) == 8
    assert rows["docs-2/ada.txt"]["text"] == "Ada was in Rome."
    assert rows["docs/ada.txt"]["text"] != "Ada was in Rome."
    assert _sync(corpus, "--exclude", "x.bin", "/rivers/nile.md") == 0
    assert len(LiveCorpus(corpus).state().rows()) == 6
    assert _sync(corpus, "--drop", "docs") == 0
    assert list(LiveCorpus(corpus).state().rows()) == ["docs-2/ada.txt"]


def test_a_feed_is_a_source_of_its_own(copied):
    docs, corpus = copied
    feed = realm.Corpus(corpus)
    row = {"id": 7, "title": "Oslo", "text": "Oslo is in Norway."}
    assert feed.update([row], deletes=["8"])["documents"] == 7
    assert feed.update([row])["blocks_embedded"] == 1
    assert LiveCorpus(corpus).manifest().state == 2
    live_corpora.write(docs, {"new.txt": "New."})
    assert _sync(corpus) == 3
    rows = LiveCorpus(corpus).state().rows()
    assert rows["feed#7"]["text"] == "Oslo is in Norway."
    with pytest.raises(InputError, match="upsert 2: bad record no text"):
        feed.update([row, {"id": "9", "title": "x"}])
    assert feed.update([{**row, "text": "Oslo."}])["documents"] == 8
    assert LiveCorpus(corpus).state().rows()["feed#7"]["text"] == "Oslo."
    feed.update(deletes=["7"])
    assert "feed#7" not in LiveCorpus(corpus).state().rows()


def test_a_new_state_lets_go_of_segments_that_it_lacks(created):
    """A server that follows a corpus would hold their deleted files open."""
    corpus = LiveCorpus(str(created[0] / "corpus"))
    manifest = corpus.manifest()
    first = weakref.ref(corpus.state(manifest).segments[0][0])
    assert first() is not None
    corpus.state(dataclasses.replace(manifest, segments=[]))
    gc.collect()
    assert first() is None


def test_an_older_corpus_is_refused(tmp_path):
    settings = {"model": "/m", "documents": ["/a", "/b"]}
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps({"state": 1, "settings": settings}))
    with pytest.raises(
        InputError, match=r"create NEW --model /m --documents /a /b`\.$"
    ):
        realm.CorpusStatus(corpus=str(tmp_path)).run()


def test_a_missing_model_is_named_with_its_option(tmp_path):
    with pytest.raises(InputError, match="model is no model"):
        realm.CreateCorpus(
            documents=str(tmp_path),
            output=str(tmp_path / "corpus"),
            model=str(tmp_path / "model"),
        ).run()


def test_the_model_of_the_package_is_made_once(
    tmp_path, monkeypatch, model_dir
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = []

    def make(init):
        made.append((init.from_, init.reader))
        shutil.copytree(model_dir, init.output)

    monkeypatch.setattr(realm.Init, "run", make)
    live_corpora.write(tmp_path / "docs", {"nile.txt": "The Nile flows."})
    for name in ("one", "two"):
        _create(tmp_path / "docs", tmp_path / name, None)
    assert made == [("minilm", "trained")]
    (folder,) = (tmp_path / "cache/realm/models").iterdir()
    settings = LiveCorpus(tmp_path / "one").manifest().settings
    assert settings["model"] == str(folder)
    # Without a network.
    shutil.rmtree(folder)
    monkeypatch.setattr(realm.Init, "run", _no_network)
    with pytest.raises(InputError, match="No network.* with --model"):
        _create(tmp_path / "docs", tmp_path / "three", None)


def _no_network(init):
    raise InputError("No network.")


def test_two_rows_of_one_id_are_no_documents(tmp_path, model_dir):
    line = '{"id": "1", "title": "T", "text": "%s"}\n'
    live_corpora.write(
        tmp_path, {"docs/x.jsonl": line % "One." + line % "Two."}
    )
    with pytest.raises(InputError, match=r"x.jsonl:2 have one id"):
        _create(tmp_path / "docs", tmp_path / "corpus", model_dir)
    assert not (tmp_path / "corpus").exists()


def test_another_model_is_refused(copied, tmp_path):
    docs, corpus = copied
    path = corpus / "corpus.json"
    manifest = json.loads(path.read_text())
    model = manifest["settings"]["model"]
    # Both have moved.
    shutil.copytree(model, tmp_path / "model")
    manifest["settings"]["model"] = "/moved"
    manifest["settings"]["model_from_corpus"] = "../model"
    path.write_text(json.dumps(manifest))
    (docs / "nile.txt").write_text("The Nile.")
    sync = realm.SyncCorpus(corpus=str(corpus))
    metadata = tmp_path / "model/metadata.json"
    known = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**known, "fingerprint": "another"}))
    with pytest.raises(InputError, match="is not the model that"):
        sync.run()
    metadata.write_text(json.dumps(known))
    sync.run()
    assert len(live_corpora.contents(corpus)[0]) == 8


def test_a_flipped_bit_gets_into_no_new_state(copied):
    docs, corpus = copied
    before = LiveCorpus(corpus).manifest()
    status = realm.CorpusStatus(corpus=str(corpus), check=True)
    assert "every file is as it was written" in status.report(status.run())
    sync = realm.SyncCorpus(corpus=str(corpus))
    compact = realm.CompactCorpus(corpus=str(corpus))
    live_corpora.write(docs, {"nile.txt": "The Nile is a river."})
    for name, operations in (
        ("documents.jsonl", [status]),
        ("block_ids.npy", [status]),
        ("blocks/blocks-00000-of-00001.arrow", [status]),
        ("embeddings/metadata.json", [status]),
        (
            "embeddings/embeddings-00000-of-00001.npy",
            [status, sync, compact],
        ),
    ):
        path = corpus / "segments/000001" / name
        content = path.read_bytes()
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 0x40])
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
        for operation in operations:
            with pytest.raises(InputError, match=f"1/{name} is .* backup"):
                operation.run()
        path.write_bytes(content)
    assert LiveCorpus(corpus).manifest() == before


def test_a_damaged_export_is_made_again(copied):
    docs, corpus = copied
    path = corpus / "saved_model/1/saved_model.pb"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="pb is missing or not as"):
        realm.CorpusStatus(corpus=str(corpus), check=True).run()
    live_corpora.write(docs, {"nile.txt": "The Nile is a river."})
    realm.SyncCorpus(corpus=str(corpus)).run()
    realm.CorpusStatus(corpus=str(corpus), check=True).run()
    assert live_corpora.outputs(corpus, ["Nile?"])["answer"][0]


def _changed(manifest, **changes):
    return json.dumps({**json.loads(manifest), **changes})


@pytest.mark.parametrize(
    "damaged",
    [
        *(lambda text: None, lambda text: "", lambda text: text[:-9]),
        *(lambda text: "null", lambda text: '{"state": 1}'),
        lambda text: _changed(text, state="1"),
        lambda text: _changed(text, settings=[]),
        lambda text: _changed(text, segments=[{"name": "000001"}]),
        lambda text: _changed(
            text, segments=[{"name": "../../x", "removed": []}]
        ),
    ],
)
def test_a_damaged_manifest_can_be_mended(copied, model_dir, damaged):
    docs, corpus = copied
    path, copy = corpus / "corpus.json", corpus / "corpus.copy.json"
    content = damaged(path.read_text())
    path.unlink() if content is None else path.write_text(content)
    status = realm.CorpusStatus(corpus=str(corpus))
    for run in (
        status.run,
        realm.SyncCorpus(corpus=str(corpus)).run,
        lambda: _create(docs, corpus, model_dir),
    ):
        with pytest.raises(
            InputError, match=f"{path} is missing or damaged.* Copy {copy} over"
        ):
            run()
    # As it says.
    shutil.copy(copy, path)
    assert status.run()["documents"] == 6


def test_another_backend_traces_no_graph(created, model_dir, monkeypatch):
    root, _ = created
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(InputError, match="here it is jax: unset"):
        _create(root / "docs", root / "x", model_dir, fields=("never",))
