import os

import pytest

from realm_tf.articles.pages import Page
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import plans
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import shards
from realm_tf.errors import InputError
from realm_tf.text import blocks

BLOCK = blocks.BlockText("A b.", [9], [1, 2], [0, 2], [1, 4], [0], [0], [1])
LONG = blocks.BlockText("C.", [9], [3] * 7, [0] * 7, [2] * 7, [0], [], [])


@pytest.fixture
def written(tmp_path):
    """Two parts: pages 1 and 2 with two blocks each, page 3 with one."""
    directory = str(tmp_path / "parts")
    os.mkdir(directory)
    for part, numbers in (((0, 0), (1, 2)), ((0, 1), (3,))):
        writer = parts.PartWriter(directory, part)
        for number in numbers:
            found = [BLOCK, LONG][: 3 - number // 2]
            page = Page(number, "here", f"id{number}", f"T{number}", "x")
            writer.add([(page, found[: 1 if number == 3 else 2])])
        writer.write()
    return directory


def block_shard(tmp_path, start, limit, *runs):
    return plans.BlockShard(
        path=str(tmp_path / "blocks-0.arrow"),
        start=start,
        limit=limit,
        runs=runs,
    )


def write_step(directory, **packing):
    return shards.WriteBlocks(
        directory=directory, packing=blocks.Packing(**packing), unknown_id=1
    )


def test_write_blocks(tmp_path, written):
    shard = block_shard(
        *(tmp_path, 40, 43),
        *(((0, 0), 2, 4), ((0, 1), 0, 1)),
    )
    write = write_step(written, max_length=10)
    write.process(shard)
    table = record_files.open_file(shard.path).read_all()
    found = list(record_files.read_rows(schema.Block, table))

    assert [(b.block_id, b.article_id, b.text) for b in found] == [
        (40, "id2", "A b."),
        (41, "id2", "C."),
        (42, "id3", "A b."),
    ]
    assert found[0].token_starts == [0, 2]
    assert found[0].link_limits == [1]
    # Those of two shards: counts add up, the longest stays.
    summary = resumable.merge_summaries([shard.path] * 2)
    assert summary.shard_rows == [3, 3]
    assert summary.longest == 11
    assert summary.counts == {
        "blocks": 6,
        "sentences": 6,
        "wordpieces": 22,
        "unknown_wordpieces": 4,
        # 3 special ones, 1 of the title, 7 of the text.
        "overlong_sentences": 2,
    }
    assert sorted(os.listdir(tmp_path)) == ["blocks-0.arrow", "parts"]


def test_a_worker_that_outlives_its_run_adds_no_shard(tmp_path, written):
    shard = block_shard(tmp_path, 0, 1, ((0, 1), 0, 1))
    os.rename(written, tmp_path / "other")

    with pytest.raises(InputError, match="is missing"):
        write_step(written).make(shard)
    assert os.listdir(tmp_path) == ["other"]


def test_a_shard_that_lacks_a_block_is_none(tmp_path, written):
    shard = block_shard(tmp_path, 0, 9, ((0, 1), 0, 1))
    with pytest.raises(RuntimeError, match="expected 9 records, found 1"):
        write_step(written).process(shard)
    assert os.listdir(tmp_path) == ["parts"]
