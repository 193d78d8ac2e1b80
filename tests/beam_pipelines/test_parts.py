import os

import pytest

from realm_tf.articles.pages import Page
from realm_tf.artifacts import schema
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
    writer = parts.PartWriter(5)
    writer.count("pages_read")
    writer.add(PAGE, BLOCKS)
    return writer.write(str(directory), part)


def read(directory, part=(0, 0), **options):
    return parts.read(str(directory), part, **{"with_records": True, **options})


def test_records_are_those_of_the_schema():
    expected = [
        schema.to_example(
            schema.Block(
                0,
                "é7",
                "Tëst",
                block.text,
                "http://u",
                block.title_ids,
                block.token_ids,
                block.token_starts,
                block.token_limits,
                block.sentence_starts,
                block.link_starts,
                block.link_limits,
            )
        )
        for block in BLOCKS
    ]
    found = parts.records(PAGE, BLOCKS)

    assert [schema.from_example(schema.Block, record) for record in found] == [
        schema.from_example(schema.Block, record) for record in expected
    ]
    # Every feature is there, even where it is empty.
    assert found == expected
    for block_id in (1, 300, 1 << 40):
        numbered = schema.from_example(
            schema.Block, parts.with_block_id(found[1], block_id)
        )
        assert (numbered.block_id, numbered.text) == (block_id, "Ç. D.")


def test_a_part_is_read_as_it_was_written(tmp_path):
    assert read(tmp_path, (3, 12)) is None
    written = write(tmp_path, (3, 12))
    found = read(tmp_path, (3, 12))

    assert found.counts == written.counts == {"pages_read": 1}
    assert found.pages.tolist() == written.pages.tolist()
    assert found.pages[["number", "blocks"]].tolist() == [(7, 2)]
    assert [row[1:] for row in found.blocks.tolist()] == [
        (2, 2, 0, 1),
        (2, 3, 1, 2),
    ]
    assert found.records == b"".join(parts.records(PAGE, BLOCKS))
    assert found.blocks["bytes"].sum() == len(found.records)
    assert read(tmp_path, (3, 12), with_records=False).records == b""
    assert os.listdir(tmp_path) == ["00003-00000012.npz"]


def test_a_part_without_blocks(tmp_path):
    writer = parts.PartWriter(1)
    writer.count("dropped_redirect")
    writer.write(str(tmp_path), (0, 0))
    found = read(tmp_path)

    assert len(found.pages) == len(found.blocks) == len(found.records) == 0
    assert found.counts == {"dropped_redirect": 1}


def test_what_a_failure_leaves_is_removed(tmp_path):
    with (
        pytest.raises(RuntimeError),
        resumable.writing(f"{tmp_path}/part") as path,
    ):
        open(path, "wb").close()
        raise RuntimeError("stop")
    assert os.listdir(tmp_path) == []
    # Of a run that was killed.
    with resumable.writing(f"{tmp_path}/part") as path:
        open(path, "wb").close()
        resumable.clean(str(tmp_path))
        assert os.listdir(tmp_path) == []
        open(path, "wb").close()
    assert os.listdir(tmp_path) == ["part"]
