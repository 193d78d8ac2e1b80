import numpy as np
import pytest
import tensorflow as tf

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.errors import InputError

TEXT = "👍 Café au lait"
BLOCKS = [
    schema.Block(
        block_id=0,
        article_id="a",
        title="Café",
        text=TEXT,
        url="https://example.org/a",
        title_ids=[5],
        token_ids=[6, 7, 8, 9, 10],
        token_starts=[0, 2, 5, 7, 10],
        token_limits=[1, 5, 6, 9, 14],
        sentence_starts=[0],
    ),
    schema.Block(
        block_id=1,
        article_id="b",
        title="",
        text="x",
        token_ids=[11],
        token_starts=[0],
        token_limits=[1],
        sentence_starts=[0],
    ),
]


def _write(directory, blocks, *, max_block_length):
    with artifact.write(str(directory), kind="blocks") as stage:
        path = stage.path("blocks-0.tfrecord.gz")
        with tf.io.TFRecordWriter(path, options="GZIP") as writer:
            for block in blocks:
                writer.write(schema.to_example(block))
        stage.metadata.update(
            shard_rows=[len(blocks)],
            num_blocks=len(blocks),
            max_block_length=max_block_length,
            fingerprint="abc",
        )
    return str(directory)


def test_all_of_a_block_by_its_id(tmp_path):
    records = BlockRecords(
        Blocks(_write(tmp_path / "b", BLOCKS, max_block_length=20))
    )
    assert len(records) == 2
    assert list(records.titles) == ["Café", ""]
    assert list(records.texts) == [TEXT, "x"] == records.texts[-2:]
    assert list(records.urls) == ["https://example.org/a", ""]
    assert records.texts[-1] == "x"
    with pytest.raises(IndexError):
        records.texts[2]
    assert records.lengths.tolist() == [5, 1]
    assert records.token_ids.tolist() == [[6, 7, 8, 9, 10], [11, 0, 0, 0, 0]]
    assert records.token_starts.tolist() == [[0, 2, 5, 7, 10], [0] * 5]
    assert records.token_limits.tolist() == [[1, 5, 6, 9, 14], [1, 0, 0, 0, 0]]
    assert records.lengths.dtype == np.int32
    for array in (records.token_ids, records.token_starts):
        assert array.dtype == np.uint16


@pytest.mark.parametrize(
    "start, limit, expected",
    [
        (0, 1, "👍"),
        (1, 3, "Café"),
        (1, 2, "Caf"),
        (1, 4, "Café au"),
        (0, 5, TEXT),
        (4, 5, "lait"),
    ],
)
def test_the_text_of_a_span(tmp_path, start, limit, expected):
    records = BlockRecords(
        Blocks(_write(tmp_path / "b", BLOCKS, max_block_length=20))
    )
    assert records.span_text(0, start, limit) == expected
    first, last = records.span_offsets(0, start, limit)
    assert TEXT[first:last] == expected
    assert type(first) is type(last) is int


def test_an_over_long_body_is_cut_to_the_budget(tmp_path):
    records = BlockRecords(
        Blocks(_write(tmp_path / "b", BLOCKS, max_block_length=4))
    )
    assert records.lengths.tolist() == [4, 1]
    assert records.token_ids.tolist() == [[6, 7, 8, 9], [11, 0, 0, 0]]
    assert records.texts[0] == TEXT


def test_no_blocks_are_refused(tmp_path):
    directory = _write(tmp_path / "b", [], max_block_length=4)
    with pytest.raises(InputError, match="holds no block"):
        BlockRecords(Blocks(directory))
