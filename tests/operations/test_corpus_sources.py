"""A corpus is equal to its sources, and loses nothing of what is absent."""

import collections
import contextlib
import errno
import io
import os
import pathlib
import random
import tempfile

import backends
import live_corpora
import numpy as np
import pytest

import realm_tf as realm
from realm_tf.articles import collecting
from realm_tf.articles.sources import Source
from realm_tf.artifacts.live_corpus import LiveCorpus

WORDS = ["the", "river", "of", "Rome", "fire", "in", "London", "Ada", "was"]
# Folders of equal names, a glob, a file.
PATHS = ("docs", "other/docs", "notes/**/*.md", "rows.csv")
FOLDERS = ("docs", "docs/sub", "other/docs", "notes/x", "notes")
NUM_STEPS = 20


def _text(draw):
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 30)))


def _edit(draw, root):
    """Writes, renames, moves or removes some files and rows."""
    for _ in range(draw.randint(1, 5)):
        name = f"{draw.choice('abcd')}{draw.choice(('.md', '.txt', '.png'))}"
        path = root / draw.choice(FOLDERS) / name
        other = root / draw.choice(FOLDERS) / f"{draw.choice('ef')}.md"
        if not path.exists() or draw.random() < 0.3:
            tag, title = draw.choice("xy"), draw.choice("TUV")
            live_corpora.write(
                path.parent,
                {
                    name: f"---\ntags: {tag}\n---\n# {title}\n{_text(draw)}.\n"
                    f"## S\n{_text(draw)}"
                },
            )
        elif draw.random() < 0.5:
            path.rename(other)
        else:
            path.unlink()
    rows = [f"{name},{_text(draw)}" for name in draw.sample("abcdef", 3)]
    (root / "rows.csv").write_text("\n".join(["Name,Text", *rows]))


@contextlib.contextmanager
def _absent(draw, root, patch):
    """Yields the label of a source that cannot be read meanwhile.

    More of what can be absent: `test_what_is_absent_is_not_removed`.
    """
    kind = draw.choice(("vanished", "file", "disk"))
    top, away = root / "docs", root / "away"
    real_open = open

    def fail(*_):
        if kind == "disk":
            raise OSError(errno.EIO, "Input/output error")
        raise PermissionError(errno.EACCES, "Permission denied")

    def opened(path, *arguments, **options):
        if str(path) != str(top / "keep.md"):
            return real_open(path, *arguments, **options)
        if kind == "file":
            fail()
        file = io.BytesIO()
        file.read = fail
        return file

    if kind == "vanished":
        top.rename(away)
    with patch.context() as patch:
        patch.setattr(collecting, "open", opened, raising=False)
        yield "docs"
    if kind == "vanished":
        away.rename(top)


def _texts(corpus):
    """Label to the text of each of its articles."""
    found = collections.defaultdict(dict)
    for name, row in LiveCorpus(corpus).state().rows().items():
        found[row["file"].partition("/")[0]][name] = row["text"]
    return found


def _wanted(corpus):
    """The same of the sources, as they are now."""
    return {
        source.label: {
            name: row["text"]
            for name, row in collecting.collect(source).rows.items()
        }
        for source in LiveCorpus(corpus).manifest().sources
    }


@pytest.mark.slow
@backends.exports
def test_any_edits_equal_a_corpus_made_from_nothing(
    tmp_path, model_dir, monkeypatch
):
    draw = random.Random(0)
    corpus, new = str(tmp_path / "corpus"), str(tmp_path / "new")
    for name in FOLDERS:
        text = f"---\ntags: x\n---\nIt is in {name}."
        live_corpora.write(tmp_path / name, {"keep.md": text})
    _edit(draw, tmp_path)

    def create(output):
        return realm.CreateCorpus(
            documents=[str(tmp_path / path) for path in PATHS],
            output=output,
            model=model_dir,
            fields=("tags",),
        )

    create(corpus).run()
    sync = realm.SyncCorpus(corpus=corpus, max_removed="all")
    called, num_absent = {}, 0
    for _ in range(NUM_STEPS):
        before = _texts(corpus)
        _edit(draw, tmp_path)
        if draw.random() < 0.4:
            wanted = _wanted(corpus)
            with _absent(draw, tmp_path, monkeypatch) as label:
                assert sync.status(sync.run()) == 4
                wanted[label] = before[label]
                num_absent += 1
        else:
            assert sync.status(sync.run()) != 4
            wanted = _wanted(corpus)
        assert _texts(corpus) == wanted
        if draw.random() < 0.2:
            realm.CompactCorpus(corpus=corpus).run()
        # What a block is called says the same for ever.
        state = LiveCorpus(corpus).state()
        for name, text in zip(
            state.block_ids().tolist(), state.records().texts, strict=True
        ):
            assert called.setdefault(name, text) == text
    assert num_absent > 3
    sync.run()
    create(new).run()
    (blocks, rows), (wanted, wanted_rows) = map(
        live_corpora.contents, (corpus, new)
    )
    assert blocks == wanted
    np.testing.assert_allclose(rows, wanted_rows, atol=1e-5)
    live_corpora.assert_same_answers(corpus, new)
    for tag in "xy":
        found, other = (
            live_corpora.outputs(each, live_corpora.QUESTIONS, f"tags={tag}")
            for each in (corpus, new)
        )
        found, other = found["candidate_text"], other["candidate_text"]
        assert np.sort(found).tolist() == np.sort(other).tolist()


@pytest.mark.fast
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("name", ["sub", "sub/a.md"])
def test_what_must_not_be_read_makes_a_source_unreadable(name):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        root.chmod(0o755)
        live_corpora.write(root, {"sub/a.md": "A.", "b.md": "B."})
        source = Source.of(folder)
        (root / name).chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError, match=name):
                collecting.collect(source)
        finally:
            os.seteuid(0)
        assert len(collecting.collect(source).rows) == 2
