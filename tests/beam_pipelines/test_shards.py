import os

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.articles.pages import Page
from realm_tf.artifacts import schema
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import shards
from realm_tf.text import blocks

BLOCK = blocks.BlockText("A b.", [9], [1, 2], [0, 2], [1, 4], [0], [0], [1])
LONG = blocks.BlockText("C.", [9], [3] * 7, [0] * 7, [2] * 7, [0], [], [])


def plan_shards(counts, dropped=(), **kwargs):
    kwargs = {"num_shards": None, "blocks_per_shard": 50, **kwargs}
    plan = shards.PlanShards("out", directory="parts", **kwargs)
    return list(plan.process(None, counts, dropped))


def test_plan_shards():
    counts = {(1, 0): 3, (0, 1): 1, (0, 0): 4, (0, 2): 0}
    dropped = [((0, 0), 7), ((0, 0), 8), ((0, 2), 1)]
    pages = frozenset({7, 8})

    assert plan_shards(counts, dropped, num_shards=3) == [
        shards.ShardPlan(
            "out/blocks-00000-of-00003.tfrecord.gz",
            "parts/blocks-00000-of-00003.json",
            0,
            2,
            (((0, 0), 0, pages),),
        ),
        shards.ShardPlan(
            "out/blocks-00001-of-00003.tfrecord.gz",
            "parts/blocks-00001-of-00003.json",
            2,
            3,
            (((0, 0), 2, pages), ((0, 1), 0, frozenset())),
        ),
        shards.ShardPlan(
            "out/blocks-00002-of-00003.tfrecord.gz",
            "parts/blocks-00002-of-00003.json",
            5,
            3,
            (((1, 0), 0, frozenset()),),
        ),
    ]


def test_plans_cover_all_blocks_once():
    generator = np.random.default_rng(2)
    for _ in range(200):
        counts = {
            (file, part): int(generator.integers(0, 9))
            for file in range(3)
            for part in range(int(generator.integers(0, 4)))
        }
        expected = [
            (part, number)
            for part in sorted(counts)
            for number in range(counts[part])
        ]
        plans = plan_shards(counts, num_shards=int(generator.integers(1, 9)))
        found = []
        for plan in plans:
            missing = plan.num_blocks
            assert plan.first_id == len(found)
            for part, skip, _ in plan.parts:
                limit = min(skip + missing, counts[part])
                assert limit > skip
                found += [(part, number) for number in range(skip, limit)]
                missing -= limit - skip
            assert missing == 0
        sizes = [plan.num_blocks for plan in plans]

        assert found == expected
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_number_of_shards():
    counts = {(0, 0): 10}

    assert len(plan_shards(counts, blocks_per_shard=4)) == 3
    assert len(plan_shards(counts, blocks_per_shard=5)) == 2
    assert len(plan_shards(counts, num_shards=2, blocks_per_shard=1)) == 2
    assert len(plan_shards(counts, num_shards=99)) == 10
    assert plan_shards({}, num_shards=3) == []


@pytest.fixture
def written(tmp_path):
    """Two parts: pages 1 and 2 with two blocks each, page 3 with one."""
    directory = str(tmp_path / "parts")
    os.mkdir(directory)
    for part, numbers in (((0, 0), (1, 2)), ((0, 1), (3,))):
        with parts.PartWriter(directory, part, unknown_id=1) as writer:
            for number in numbers:
                found = [BLOCK, LONG][: 3 - number // 2]
                page = Page(number, "here", f"id{number}", f"T{number}", "x")
                writer.write(page, found[: 1 if number == 3 else 2])
    return directory


def test_write_blocks(tmp_path, written):
    plan = shards.ShardPlan(
        str(tmp_path / "blocks-0.tfrecord.gz"),
        f"{written}/blocks-0.json",
        40,
        3,
        (((0, 0), 0, frozenset({1})), ((0, 1), 0, frozenset())),
    )
    write = shards.WriteBlocks(written, blocks.Packing(max_length=10))
    (summary,) = write.process(plan)
    records = tf.data.TFRecordDataset(plan.path, "GZIP").as_numpy_iterator()
    found = [schema.block_from_example(record) for record in records]

    assert [(b.block_id, b.article_id, b.text) for b in found] == [
        (40, "id2", "A b."),
        (41, "id2", "C."),
        (42, "id3", "A b."),
    ]
    assert found[0].token_starts == [0, 2]
    assert found[0].link_limits == [1]
    summary = {name: each for name, each in summary.items() if name != "digest"}
    assert summary == {
        "rows": [[40, 3]],
        "longest_block": 7,
        "longest_joint": 11,
        "counts": {
            "blocks": 3,
            "sentences": 3,
            "wordpieces": 11,
            "unknown_wordpieces": 2,
            # 3 special ones, 1 of the title, 7 of the text.
            "overlong_sentences": 1,
        },
    }
    # The second time it is read, not made.
    before = os.stat(plan.path).st_mtime_ns
    (again,) = write.process(plan)
    assert summary.items() <= again.items()
    assert os.stat(plan.path).st_mtime_ns == before
    assert sorted(os.listdir(tmp_path)) == ["blocks-0.tfrecord.gz", "parts"]


def test_a_worker_that_outlives_its_run_adds_no_shard(tmp_path, written):
    plan = shards.ShardPlan(
        str(tmp_path / "blocks-0.tfrecord.gz"),
        f"{written}/blocks-0.json",
        0,
        1,
        (((0, 1), 0, frozenset()),),
    )
    os.rename(written, tmp_path / "other")

    with pytest.raises((OSError, tf.errors.NotFoundError)):
        list(shards.WriteBlocks(written, blocks.Packing()).process(plan))
    assert os.listdir(tmp_path) == ["other"]


def test_summaries_merge_in_any_grouping():
    def summary(rows, block, joint, digest, counts):
        return {
            "rows": [rows],
            "longest_block": block,
            "longest_joint": joint,
            "digest": digest.rjust(64, "0"),
            "counts": counts,
        }

    first = summary([0, 5], 7, 12, "f" * 64, {"a": 1})
    second = summary([5, 3], 9, 11, "1", {"b": 2})
    third = summary([8, 2], 8, 10, "2", {"a": 3})
    merged = shards.merge_summaries([third, first, second])

    assert merged == {
        **summary([], 9, 12, "2", {"a": 4, "b": 2}),
        "rows": [[0, 5], [5, 3], [8, 2]],
    }
    assert (
        shards.merge_summaries([second, shards.merge_summaries([first, third])])
        == merged
    )
