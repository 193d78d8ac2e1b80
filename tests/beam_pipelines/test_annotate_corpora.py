"""Annotating articles of other kinds and of another corpus."""

import os

import pytest
from annotate_runs import annotate
from annotate_runs import break_off
from beam_runs import TWO_THREADS
from beam_runs import chunk
from beam_runs import dump
from beam_runs import page

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Passages
from realm_tf.errors import InputError


def test_blocks_of_another_corpus(tmp_path, blocks, expected):
    output = str(tmp_path / "out")
    metadata = annotate(
        output, blocks=blocks, other_corpus=True, beam_options=TWO_THREADS
    )
    passages = list(Passages(output).read())
    of_blocks = list(Passages(expected).read())
    assert [passage.block_id for passage in passages] == [-1] * 7
    for passage, number in zip(of_blocks, range(7), strict=True):
        assert passage.block_id == number
        passage.block_id = -1
    assert passages == of_blocks
    before = artifact.read(expected, kind="annotated")
    assert metadata["counts"] == before["counts"]
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))
    assert metadata["parents"] == {
        "articles": before["parents"]["blocks"],
        "tagger": "rules",
    }
    assert Passages(output).blocks is None


def test_ids_of_another_kind_are_not_mixed_in(tmp_path, monkeypatch, blocks):
    output = tmp_path / "out"
    break_off(monkeypatch, output, blocks=blocks)
    with pytest.raises(InputError, match="begun with"):
        annotate(str(output), blocks=blocks, other_corpus=True)


def _cut(tmp_path, vocabulary_path, text, **options):
    """The blocks of a dump of one page."""
    path, output = tmp_path / "dump.xml", str(tmp_path / "blocks")
    path.write_text(dump(page(1, "Graz", text)))
    chunk(str(path), output, vocabulary_path, **options)
    return output


def test_links_of_a_dump(tmp_path, vocabulary_path, blocks):
    text = "Graz 🚢 lies on the [[Mur (river)|Mür]] since 1128."
    output = str(tmp_path / "out")
    cut = _cut(tmp_path, vocabulary_path, text)
    metadata = annotate(output, blocks=cut, tagger="links")
    (passage,) = Passages(output).read()
    assert passage.spans() == ["Mür", "1128"]
    assert passage.span_label == ["link", "date"]
    assert metadata["counts"]["spans_link"] == 1
    # Plain text has none.
    with pytest.raises(InputError, match="links found no span in 7 passages"):
        annotate(str(tmp_path / "none"), tagger="links", blocks=blocks)
    assert sorted(os.listdir(tmp_path)) == ["blocks", "dump.xml", "out"]


def test_dates_are_of_the_language_of_the_passages(tmp_path, vocabulary_path):
    text = "Graz liegt an der [[Mur]]. Am 3. Mai 1128, im Juni 1233, war es so."
    spans = ["Mur", "3. Mai 1128", "Juni 1233"]
    cut = _cut(tmp_path, vocabulary_path, text, language="de-DE")
    metadata = annotate(str(tmp_path / "out"), tagger="links", blocks=cut)
    (passage,) = Passages(str(tmp_path / "out")).read()
    assert passage.spans() == spans
    assert metadata["parents"]["tagger"] == "links, dates of de"
    with pytest.raises(InputError, match="rules knows English"):
        annotate(str(tmp_path / "none"), tagger="rules", blocks=cut)
