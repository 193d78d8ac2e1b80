import dataclasses
import glob
import os
import shutil
import uuid

import pyarrow
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.paths import Path
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
            name = record_files.shard_name("blocks", number, len(shards))
            path = stage.path(name)
            record_files.write_rows(path, schema.Block, blocks)
        rows = [len(blocks) for blocks in shards]
        stage.metadata["shard_rows"] = shard_rows or rows
        stage.metadata["num_blocks"] = num_blocks or sum(rows)
        stage.metadata["fingerprint"] = "abc"
    return str(directory)


def _shards(directory):
    return sorted(glob.glob(f"{directory}/*.arrow"))


def _ids(directory, **arguments):
    found = Blocks(directory).read(**arguments)
    return [block.block_id for block in found]


@pytest.mark.parametrize(
    "block", [BLOCK, schema.Block(block_id=0, article_id="", title="", text="")]
)
def test_a_block_survives_its_record(tmp_path, block):
    directory = _write(
        tmp_path / "blocks", [[dataclasses.replace(block, block_id=0)]]
    )
    (found,) = Blocks(directory).read()
    assert found == dataclasses.replace(block, block_id=0)


def test_the_bytes_and_the_digest_are_those_of_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "ROWS_PER_BATCH", 3)
    whole = record_files.rows_to_table(schema.Block, _blocks(8))
    digest = record_files.digest(whole)
    for cut in range(9):
        tables = [whole.slice(0, cut), whole.slice(cut)]
        path = tmp_path / str(cut)
        record_files.write(str(path), tables, summary={"a": 1})
        assert path.read_bytes() == (tmp_path / "0").read_bytes()
        assert record_files.digest(pyarrow.concat_tables(tables)) == digest
    table = record_files.open_file(str(path)).read_all()
    assert [len(batch) for batch in table.to_batches()] == [3, 3, 2]
    assert table.replace_schema_metadata(None) == whole
    assert record_files.read_summary(str(path)) == {"a": 1}
    assert record_files.digest(table) == digest
    assert record_files.digest(table.slice(2)) != digest
    # Each field counts, and the place of each row.
    for field in dataclasses.fields(schema.Block):
        value = {int: 9, str: "9"}.get(field.type, [9])
        blocks = _blocks(8)
        blocks[2] = dataclasses.replace(blocks[2], **{field.name: value})
        changed = record_files.rows_to_table(schema.Block, blocks)
        assert record_files.digest(changed) != digest, field.name
    order = [1, 0, *range(2, 8)]
    assert record_files.digest(whole.take(order)) != digest


def test_columns_by_row(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "ROWS_PER_BATCH", 2)
    ids = [[5, 6, 7], [], [70_000], [8], [9, 10]]
    blocks = [
        dataclasses.replace(
            block, token_ids=row, text="é" * len(row), block_id=number
        )
        for number, (block, row) in enumerate(zip(_blocks(5), ids, strict=True))
    ]
    table = Blocks(_write(tmp_path / "blocks", [blocks])).table
    for part in (table, table.slice(1), table.slice(2, 2), table.slice(5)):
        wanted = part["token_ids"].to_pylist()
        column = record_files.Column(part["token_ids"])
        assert [row.tolist() for row in column] == wanted
        assert [column[n].tolist() for n in range(len(column))] == wanted
        assert column.lengths().tolist() == list(map(len, wanted))
        assert column.flat().tolist() == sum(wanted, [])
        assert column.padded(2).tolist() == [(r + [0, 0])[:2] for r in wanted]
        texts = record_files.Column(part["text"])
        assert list(texts) == texts[:] == ["é" * len(row) for row in wanted]
        with pytest.raises(IndexError):
            texts[len(texts)]
    assert record_files.Column(table["token_ids"]).flat().dtype == "int32"
    column = record_files.Column(table["token_ids"].slice(3))
    assert column.flat().dtype == column.padded(1).dtype == "uint16"
    assert record_files.Column(table["text"])[-1] == "éé"


def test_a_pipeline_of_tensors(tmp_path):
    blocks = _blocks(3)
    blocks[1] = dataclasses.replace(blocks[1], token_ids=[], title="東")
    directory = _write(tmp_path / "blocks", [blocks[:2], blocks[2:]])
    for found, block in zip(Blocks(directory).dataset(), blocks, strict=True):
        for name, value in vars(block).items():
            tensor = found[name].numpy()
            if isinstance(value, str):
                assert tensor.decode() == value
            else:
                assert tensor.tolist() == value
    assert found["token_ids"].dtype == "int32"


def test_blocks_on_an_object_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local = _write(tmp_path / "blocks", [_blocks(6)[:4], _blocks(6)[4:]])
    remote = f"memory://{uuid.uuid4()}/blocks"
    Path(remote).mkdir(parents=True)
    for name in os.listdir(local):
        Path(f"{remote}/{name}").upload(f"{local}/{name}")
    (block,) = Blocks(remote).read(5, 6)
    assert block.block_id == 5
    # Only what is needed is copied, once.
    copies = glob.glob(f"{tmp_path}/cache/realm/*/*")
    assert [os.path.basename(each) for each in copies] == [
        "blocks-00001-of-00002.arrow"
    ]
    assert list(Blocks(remote).read()) == list(Blocks(local).read())
    assert len(glob.glob(f"{tmp_path}/cache/realm/*/*")) == 2


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
    os.remove(_shards(directory)[1])
    with pytest.raises(InputError, match="blocks-00001-of-00002.* is missing"):
        _ids(directory)


@pytest.mark.parametrize("damage", ["cut", "no arrow"])
def test_a_damaged_shard_is_named(tmp_path, blocks_dir, damage):
    directory = str(tmp_path / "blocks")
    shutil.copytree(blocks_dir, directory)
    path = _shards(directory)[0]
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if damage == "cut":
        del content[len(content) // 2 :]
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


def test_offsets_of_an_annotated_passage_count_bytes():
    assert PASSAGE.spans() == ["Ísland"]
    assert PASSAGE.sentences() == ["Ísland means “ice”.", "It is so."]
