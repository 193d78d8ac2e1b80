import os

import pytest

from realm_tf.articles.pages import Page
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import writing
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.text import blocks

PAGE = Page(
    7, "here", article_id="é7", title="Tëst", text="markup", url="http://u"
)
BLOCKS = [
    blocks.BlockText("A b.", [9, 8], [1, 2], [0, 2], [1, 4], [0], [0], [1]),
    blocks.BlockText(
        "Ç. D.", [9, 8], [300, 4, 5], [0, 1, 3], [1, 2, 5], [0, 3], [], []
    ),
]


def write(directory, part):
    writer = parts.PartWriter()
    writer.counts["pages_read"] += 1
    writer.add([(PAGE, BLOCKS)])
    writer.write(str(directory), part)


def test_a_part_is_read_as_it_was_written(tmp_path):
    assert not parts.is_there(str(tmp_path), (3, 12))
    write(tmp_path, (3, 12))
    assert parts.is_there(str(tmp_path), (3, 12))
    pages, counts = parts.read_pages(str(tmp_path), (3, 12))

    assert counts == {"pages_read": 1}
    assert pages[["number", "blocks"]].tolist() == [(7, 2)]
    table = parts.read_blocks(str(tmp_path), (3, 12))
    assert list(record_files.read_rows(schema.Block, table)) == [
        schema.Block(0, "é7", "Tëst", url="http://u", **vars(block))
        for block in BLOCKS
    ]
    assert os.listdir(tmp_path) == ["00003-00000012.arrow"]


def test_a_part_without_blocks(tmp_path):
    writer = parts.PartWriter()
    writer.counts["dropped_redirect"] += 1
    writer.write(str(tmp_path), (0, 0))
    pages, counts = parts.read_pages(str(tmp_path), (0, 0))

    assert len(pages) == len(parts.read_blocks(str(tmp_path), (0, 0))) == 0
    assert counts == {"dropped_redirect": 1}


def test_what_a_failure_leaves_is_removed(tmp_path):
    with (
        pytest.raises(RuntimeError),
        writing(f"{tmp_path}/part") as path,
    ):
        open(path, "wb").close()
        raise RuntimeError("stop")
    assert os.listdir(tmp_path) == []
    # Of a run that was killed.
    with writing(f"{tmp_path}/part") as path:
        open(path, "wb").close()
        resumable.clean(str(tmp_path))
        assert os.listdir(tmp_path) == []
        open(path, "wb").close()
    assert os.listdir(tmp_path) == ["part"]
