"""`realm annotate --input`: articles of another corpus."""

import os

import pytest
from annotate_runs import TEXTS
from annotate_runs import annotate
from annotate_runs import articles
from annotate_runs import break_off
from annotate_runs import count_calls
from beam_runs import TWO_THREADS

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Passages
from realm_tf.errors import InputError
from realm_tf.operations.chunk import Chunk


def _annotate_input(output, path, vocabulary_path, **arguments):
    return annotate(
        str(output),
        tagger=arguments.pop("tagger", "rules"),
        input=path,
        vocab=vocabulary_path,
        passages_per_shard=3,
        **arguments,
    )


def test_articles_of_another_corpus(
    tmp_path, annotate_world, expected, vocabulary_path
):
    output = str(tmp_path / "out")
    path = str(annotate_world / "articles.jsonl")
    metadata = _annotate_input(
        output, path, vocabulary_path, beam_options=TWO_THREADS
    )
    passages = list(Passages(output).read())
    of_blocks = list(Passages(expected).read())
    assert [passage.block_id for passage in passages] == [-1] * 7
    for passage, number in zip(of_blocks, range(7), strict=True):
        assert passage.block_id == number
        passage.block_id = -1
    assert passages == of_blocks
    assert metadata["chunk_counts"]["articles_kept"] == 7
    assert (
        metadata["counts"]
        == artifact.read(expected, kind="annotated")["counts"]
    )
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))
    assert metadata["parents"] == {
        "articles": artifact.read(
            str(annotate_world / "blocks"), kind="blocks"
        )["fingerprint"],
        "tagger": "rules",
    }
    parameters = artifact.read(output, kind="annotated")["parameters"]
    assert parameters["inputs"] == [path]


def test_articles_are_cut_once_when_a_run_broke_off(
    tmp_path, monkeypatch, expected, vocabulary_path
):
    path = articles(tmp_path / "articles.jsonl")
    cut = []
    run = Chunk.run

    def count(chunk):
        cut.append(chunk)
        return run(chunk)

    monkeypatch.setattr(Chunk, "run", count)
    output = tmp_path / "out"
    arguments = {"input": path, "vocab": vocabulary_path}
    partial = break_off(monkeypatch, output, **arguments)
    os.remove(partial / "annotated-00002-of-00003.arrow")
    with monkeypatch.context() as patch:
        tagged = count_calls(patch)
        _annotate_input(output, path, vocabulary_path)
        assert tagged == [6]
    assert len(cut) == 1
    # Other articles under the same name are no reason to go on.
    other = tmp_path / "again"
    break_off(monkeypatch, other, **arguments)
    articles(tmp_path / "articles.jsonl", [*TEXTS, "They saw Bach."])
    with pytest.raises(InputError, match="begun with another articles"):
        _annotate_input(other, path, vocabulary_path)
    assert len(cut) == 2


def test_broken_articles_leave_nothing(tmp_path, vocabulary_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"id": "1", "title": "T", "text": "A."}\n{"id" "x"}\n')
    with pytest.raises(InputError, match=f"^{path}:2: broken JSON"):
        _annotate_input(tmp_path / "out", str(path), vocabulary_path)
    assert os.listdir(tmp_path) == ["broken.jsonl"]


def _dump(path, text):
    path.write_text(
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">'
        "<page><title>Graz</title><ns>0</ns><id>1</id><revision><id>1</id>"
        f"<text>{text}</text></revision></page></mediawiki>"
    )
    return path


def test_links_of_a_dump(tmp_path, vocabulary_path, blocks):
    text = "Graz 🚢 lies on the [[Mur (river)|Mür]] since 1128."
    dump = _dump(tmp_path / "dump.xml", text)
    output = str(tmp_path / "out")
    metadata = _annotate_input(
        output, str(dump), vocabulary_path, tagger="links"
    )
    (passage,) = Passages(output).read()
    assert passage.spans() == ["Mür", "1128"]
    assert passage.span_label == ["link", "date"]
    assert metadata["counts"]["spans_link"] == 1
    # Plain text has none.
    with pytest.raises(InputError, match="found no link in 7 passages"):
        annotate(str(tmp_path / "none"), tagger="links", blocks=blocks)
    assert sorted(os.listdir(tmp_path)) == ["dump.xml", "out"]


def test_dates_are_of_the_language_of_the_passages(tmp_path, vocabulary_path):
    text = "Graz liegt an der [[Mur]]. Am 3. Mai 1128, im Juni 1233, war es so."
    dump = str(_dump(tmp_path / "dump.xml", text))
    spans = ["Mur", "3. Mai 1128", "Juni 1233"]
    chunk = Chunk(
        input=dump,
        vocab=vocabulary_path,
        language="de",
        output=str(tmp_path / "blocks"),
    )
    given = (
        {"blocks": chunk.run()},
        {
            "input": dump,
            "vocab": vocabulary_path,
            "language": "de",
        },
    )
    for number, arguments in enumerate(given):
        output = str(tmp_path / f"out{number}")
        metadata = annotate(output, tagger="links", **arguments)
        (passage,) = Passages(output).read()
        assert passage.spans() == spans
        assert metadata["parents"]["tagger"] == "links, dates of de"
        with pytest.raises(InputError, match="rules knows English"):
            annotate(str(tmp_path / "none"), tagger="rules", **arguments)


def test_no_span_at_all_is_refused(tmp_path, vocabulary_path):
    path = articles(tmp_path / "articles.jsonl", ["It is so."])
    with pytest.raises(InputError, match="rules found no span in 1 passages"):
        _annotate_input(tmp_path / "out", path, vocabulary_path)
    assert os.listdir(tmp_path) == ["articles.jsonl"]
