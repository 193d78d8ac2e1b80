import os

import numpy as np
import pytest

from realm_tf.articles.pages import Page
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


NAMES = ("pages", "counts", "blocks", "records")


def write(directory, part):
    writer = parts.PartWriter(unknown_id=4)
    writer.counts["pages_read"] += 1
    writer.add([(PAGE, BLOCKS)])
    writer.write(str(directory), part)


def test_a_part_is_read_as_it_was_written(tmp_path):
    assert not parts.is_there(str(tmp_path), (3, 12))
    write(tmp_path, (3, 12))
    assert parts.is_there(str(tmp_path), (3, 12))
    pages, counts, table, records = parts.read(str(tmp_path), (3, 12), NAMES)

    assert counts.tolist() == [("pages_read", 1)]
    assert pages[["number", "blocks"]].tolist() == [(7, 2)]
    found = [
        schema.from_example(schema.Block, record.tobytes())
        for record in np.split(records, np.cumsum(table["size"]))[:-1]
    ]
    assert found == [
        schema.Block(0, "é7", "Tëst", url="http://u", **vars(block))
        for block in BLOCKS
    ]
    # Wordpieces of the text and of the title, unknown ones, sentences.
    assert [row[1:] for row in table.tolist()] == [(2, 2, 0, 1), (3, 2, 1, 2)]
    assert os.listdir(tmp_path) == ["00003-00000012.npz"]


def test_a_part_without_blocks(tmp_path):
    writer = parts.PartWriter(unknown_id=4)
    writer.counts["dropped_redirect"] += 1
    writer.write(str(tmp_path), (0, 0))
    pages, counts, *others = parts.read(str(tmp_path), (0, 0), NAMES)

    assert [len(each) for each in (pages, *others)] == [0, 0, 0]
    assert counts.tolist() == [("dropped_redirect", 1)]


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
