import bz2

import pytest
from annotate_runs import TEXTS
from annotate_runs import annotate
from annotate_runs import articles
from beam_runs import VOCABULARY
from beam_runs import chunk
from beam_runs import dump
from beam_runs import page

from realm_tf.beam_pipelines import sources


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY))
    return str(path)


@pytest.fixture
def inputs(tmp_path):
    """Two dumps that hold a page for every counter."""
    text = "'''Graz''' lies on the [[Mur (river)|Mur]]. It is old."
    graz = page(1, "Graz", text)
    first = dump(
        graz,
        page(
            2, "Gratz", "#REDIRECT [[Graz]]", redirect='<redirect title="x"/>'
        ),
        page(3, "Talk:Graz", "Hm.", namespace=1),
        page(4, "List of towns", "Graz is one."),
        page(5, "Mur (disambiguation)", "A river."),
        page(6, "Mur", "Rivers. {{disambig}}"),
        page(7, "Empty", "{{Infobox|a=b}}"),
        graz,
    )
    second = dump(
        page(9, "Linz", "Linz is wide. " * 3 + "Ships go there."),
        graz,
        page(8, "Wels", "Wels is small."),
    )
    (tmp_path / "a.xml").write_text(first)
    (tmp_path / "b.xml.bz2").write_bytes(bz2.compress(second.encode()))
    return [str(tmp_path / "a.xml"), str(tmp_path / "b.xml.bz2")]


@pytest.fixture
def small_parts(monkeypatch):
    # Parts, and duplicates in others, without thousands of pages.
    monkeypatch.setattr(sources, "PAGES_PER_PART", 2)


@pytest.fixture(scope="module")
def annotate_world(tmp_path_factory, vocabulary_path):
    """Seven articles, the blocks of them, and those of other articles."""
    directory = tmp_path_factory.mktemp("annotate")
    path = articles(directory / "articles.jsonl")
    other = articles(directory / "other.jsonl", TEXTS[::-1])
    for name, source in (("blocks", path), ("other", other)):
        chunk(source, str(directory / name), vocabulary_path, per_shard=4)
    return directory


@pytest.fixture(scope="module")
def blocks(annotate_world):
    return str(annotate_world / "blocks")


@pytest.fixture(scope="module")
def expected(annotate_world, blocks):
    """The annotated blocks, three shards, by one worker."""
    output = str(annotate_world / "expected")
    annotate(output, blocks=blocks)
    return output
