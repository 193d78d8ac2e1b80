import dataclasses
import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.errors import InputError

BLOCK = schema.Block(
    block_id=7,
    article_id="Q1",
    title="Café 東京",
    text="👍 It is. Ja…",
    url="https://example.org/caf%C3%A9",
    title_ids=[5, 6],
    token_ids=[7, 8, 9, 10],
    token_starts=[0, 2, 5, 9],
    token_limits=[1, 4, 8, 12],
    sentence_starts=[0, 9],
    link_starts=[2],
    link_limits=[4],
)


def _blocks(num_blocks):
    return [
        dataclasses.replace(BLOCK, block_id=number, title=f"T{number}")
        for number in range(num_blocks)
    ]


def _write(directory, shards, *, num_blocks=None, shard_rows=None):
    """A blocks directory of these shards (lists of blocks)."""
    with artifact.write(str(directory), kind="blocks") as stage:
        for number, blocks in enumerate(shards):
            path = stage.path(f"blocks-{number:05d}.tfrecord.gz")
            with tf.io.TFRecordWriter(path, options="GZIP") as writer:
                for block in blocks:
                    writer.write(schema.to_example(block))
        rows = [len(blocks) for blocks in shards]
        stage.metadata["shard_rows"] = shard_rows or rows
        stage.metadata["num_blocks"] = num_blocks or sum(rows)
    return str(directory)


def _ids(directory, **arguments):
    found = Blocks(directory).read(**arguments)
    return [block.block_id for block in found]


@pytest.mark.parametrize(
    "block", [BLOCK, schema.Block(block_id=0, article_id="", title="", text="")]
)
def test_a_block_survives_its_record(block):
    record = schema.to_example(block)
    assert schema.from_example(schema.Block, record) == block
    # The digest of a directory is over the records.
    assert schema.to_example(block) == record


def test_a_record_is_what_the_format_says():
    example = tf.train.Example.FromString(schema.to_example(BLOCK))
    features = example.features.feature
    assert sorted(features) == sorted(
        field.name for field in dataclasses.fields(schema.Block)
    )
    assert features["title"].bytes_list.value == ["Café 東京".encode()]
    assert features["block_id"].int64_list.value == [7]
    assert features["token_starts"].int64_list.value == [0, 2, 5, 9]


def _random_fields(kind, generator):
    """Values at the bounds of what takes one byte more."""
    sizes = [0, 1, 127, 128, 300]
    numbers = [0, 1, 127, 128, 16383, 16384, 1 << 31, (1 << 63) - 1, -1]

    def text():
        return "".join(generator.choices("aé東🙂", k=generator.choice(sizes)))

    def some(make):
        return [make() for _ in range(generator.choice(sizes[:3]))]

    def number():
        return generator.choice(numbers[: generator.randint(1, len(numbers))])

    makers = {
        int: number,
        str: text,
        list[int]: lambda: some(number),
        list[str]: lambda: some(text),
    }
    return {
        field.name: makers[field.type]() for field in dataclasses.fields(kind)
    }


def _protobuf(fields):
    example = tf.train.Example()
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        feature = example.features.feature[name]
        if name in ("article_id", "title", "text", "url", "span_label"):
            feature.bytes_list.SetInParent()
            feature.bytes_list.value.extend(text.encode() for text in values)
        else:
            feature.int64_list.SetInParent()
            feature.int64_list.value.extend(values)
    return example.SerializeToString(deterministic=True)


@pytest.mark.parametrize("kind", [schema.Block, schema.AnnotatedPassage])
def test_the_bytes_are_those_of_protobuf(kind):
    generator = random.Random(5)
    for _ in range(40):
        found = [
            _random_fields(kind, generator)
            for _ in range(generator.randint(1, 4))
        ]
        records = schema.to_examples([kind(**fields) for fields in found])
        assert records == [_protobuf(fields) for fields in found]
        if kind is schema.Block:
            block_id = generator.choice([0, 127, 128, 1 << 40])
            assert [
                schema.with_block_id(each, block_id) for each in records
            ] == [
                _protobuf({**fields, "block_id": block_id}) for fields in found
            ]


def test_arrays_are_as_lists():
    names = [n for n, v in vars(BLOCK).items() if isinstance(v, list)]
    arrays = {n: np.array(getattr(BLOCK, n), np.int32) for n in names}
    block = dataclasses.replace(BLOCK, **arrays)
    assert schema.to_example(block) == schema.to_example(BLOCK)


@pytest.mark.parametrize("start", [0, 3, 4, 5, 9])
@pytest.mark.parametrize("limit", [None, 0, 4, 8, 20])
def test_a_range_of_blocks(tmp_path, start, limit):
    blocks = _blocks(9)
    directory = _write(
        tmp_path / "blocks", [blocks[:4], blocks[4:5], [], blocks[5:]]
    )
    assert (
        _ids(directory, start=start, limit=limit) == list(range(9))[start:limit]
    )


def test_ids_that_are_not_dense_are_refused(tmp_path):
    blocks = _blocks(4)
    del blocks[2]
    directory = _write(tmp_path / "blocks", [blocks])
    with pytest.raises(
        InputError, match=r"00000.tfrecord.gz does not hold the"
    ):
        _ids(directory)
    assert _ids(directory, limit=2) == [0, 1]


@pytest.mark.parametrize("start", [0, 5])
def test_a_shard_that_lacks_blocks_is_refused(tmp_path, start):
    blocks = _blocks(6)
    directory = _write(
        tmp_path / "blocks",
        [blocks[:4], blocks[4:5]],
        shard_rows=[4, 2],
        num_blocks=6,
    )
    with pytest.raises(InputError, match="00001.*does not hold the blocks"):
        _ids(directory, start=start)


def test_a_missing_shard_is_refused(tmp_path):
    blocks = _blocks(4)
    directory = _write(tmp_path / "blocks", [blocks[:2], blocks[2:]])
    os.remove(schema.shard_paths(directory)[1])
    with pytest.raises(InputError, match="holds 1 shards, expected 2"):
        _ids(directory)
    os.remove(schema.shard_paths(directory)[0])
    with pytest.raises(InputError, match="holds 0 shards, expected 2"):
        _ids(directory)


@pytest.mark.parametrize("damage", ["cut", "bytes", "no gzip"])
def test_a_damaged_shard_is_named(tmp_path, blocks_dir, damage):
    directory = str(tmp_path / "blocks")
    shutil.copytree(blocks_dir, directory)
    path = schema.shard_paths(directory)[0]
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "bytes":
        content[len(content) // 2] ^= 0xFF
    else:
        content = b"<html>404 Not Found</html>" * 10
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(InputError) as caught:
        _ids(directory)
    assert path in str(caught.value)


PASSAGE = schema.AnnotatedPassage(
    block_id=-1,
    title="Reykjavík",
    text="Ísland means “ice”. It is so.",
    sentence_byte_start=[0, 25],
    sentence_byte_limit=[24, 34],
    span_byte_start=[0],
    span_byte_limit=[7],
    span_label=["LOC"],
)


def test_an_annotated_passage_survives_and_counts_bytes():
    record = schema.to_example(PASSAGE)
    assert schema.from_example(schema.AnnotatedPassage, record) == PASSAGE
    assert PASSAGE.spans() == ["Ísland"]
    assert PASSAGE.sentences() == ["Ísland means “ice”.", "It is so."]
    example = tf.train.Example.FromString(record)
    assert set(example.features.feature) == vars(PASSAGE).keys()


def test_annotated_passages_are_read_in_order(tmp_path):
    directory = str(tmp_path / "annotated")
    passages = [
        dataclasses.replace(PASSAGE, block_id=number) for number in range(5)
    ]
    with artifact.write(directory, kind="annotated", parameters={}) as stage:
        for name, part in (("a-1", passages[:3]), ("a-2", passages[3:])):
            path = stage.path(f"{name}.tfrecord.gz")
            with tf.io.TFRecordWriter(path, options="GZIP") as writer:
                for passage in part:
                    writer.write(schema.to_example(passage))
        stage.metadata.update(num_passages=5, shard_rows=[3, 2])
    assert list(Passages(directory).read()) == passages

    path = schema.shard_paths(directory)[1]
    with open(path, "rb+") as file:
        file.truncate(os.path.getsize(path) - 12)
    with pytest.raises(
        InputError, match="a-2.* damaged: make its directory again"
    ):
        list(Passages(directory).read())
    os.remove(path)
    with pytest.raises(InputError, match="holds 1 shards, expected 2"):
        list(Passages(directory).read())
