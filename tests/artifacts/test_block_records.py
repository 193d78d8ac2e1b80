import os
import pathlib
import pickle
import shutil
import threading
import uuid

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.artifacts import artifact
from realm_tf.artifacts import block_records
from realm_tf.artifacts import schema
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import cache_dir
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


def _write(directory, blocks, *, max_block_length=20, fingerprint="abc"):
    with artifact.write(str(directory), kind="blocks") as stage:
        path = stage.path("blocks-0.tfrecord.gz")
        with tf.io.TFRecordWriter(path, options="GZIP") as writer:
            for block in blocks:
                writer.write(schema.to_example(block))
        stage.metadata.update(
            shard_rows=[len(blocks)],
            num_blocks=len(blocks),
            max_block_length=max_block_length,
            fingerprint=fingerprint,
        )
    return str(directory)


@pytest.fixture
def reads(monkeypatch):
    """The paths of blocks whose shards were read."""
    found = []
    read = Blocks.read_columns

    def count(blocks, *names):
        found.append(blocks.path)
        return read(blocks, *names)

    monkeypatch.setattr(Blocks, "read_columns", count)
    return found


def _content(records):
    return (
        list(records.titles),
        list(records.texts),
        list(records.urls),
        records.lengths.tolist(),
        records.token_ids().tolist(),
        [
            records.span_offsets(row, 0, length)
            for row, length in enumerate(records.lengths)
        ],
    )


EXPECTED = (
    ["Café", ""],
    [TEXT, "x"],
    ["https://example.org/a", ""],
    [5, 1],
    [[6, 7, 8, 9, 10], [11, 0, 0, 0, 0]],
    [(0, 14), (0, 1)],
)


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
    token_ids = records.token_ids()
    assert token_ids.tolist() == [[6, 7, 8, 9, 10], [11, 0, 0, 0, 0]]
    assert records.first_wordpieces.tolist() == [0, 5, 6]
    assert records.token_starts.tolist() == [0, 2, 5, 7, 10, 0]
    assert records.token_limits.tolist() == [1, 5, 6, 9, 14, 1]
    assert records.lengths.dtype == np.int32
    for array in (token_ids, records.token_starts):
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
    assert records.token_ids().tolist() == [[6, 7, 8, 9], [11, 0, 0, 0]]
    assert records.longest == 4
    assert records.texts[0] == TEXT


def test_no_blocks_are_refused(tmp_path):
    directory = _write(tmp_path / "b", [], max_block_length=4)
    with pytest.raises(InputError, match="holds no block"):
        BlockRecords(Blocks(directory))


def test_shards_are_read_once(tmp_path, reads):
    directory = _write(tmp_path / "b", BLOCKS)
    before = set(os.listdir(directory))
    assert _content(BlockRecords(Blocks(directory))) == EXPECTED
    records = BlockRecords(Blocks(directory))
    assert _content(records) == EXPECTED
    assert _content(pickle.loads(pickle.dumps(records))) == EXPECTED
    assert reads == [directory]
    # What is added can be removed.
    (added,) = set(os.listdir(directory)) - before
    shutil.rmtree(tmp_path / "b" / added)
    assert _content(BlockRecords(Blocks(directory))) == EXPECTED
    assert reads == [directory] * 2


def _tear(columns, how):
    if how == "unmarked":
        (columns / artifact.MARKER).unlink()
    elif how == "cut":
        path = columns / "text.npy"
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "mixed":
        np.save(columns / "token_limits.npy", np.zeros(3, "uint16"))
    elif how == "missing":
        (columns / "blocks.npy").unlink()
    else:
        partial = f"{columns}.partial"
        shutil.move(columns, partial)
        (pathlib.Path(partial) / artifact.MARKER).unlink()


@pytest.mark.parametrize(
    "how", ["unmarked", "cut", "mixed", "missing", "killed"]
)
def test_torn_columns_are_written_again(tmp_path, reads, how):
    directory = _write(tmp_path / "b", BLOCKS)
    BlockRecords(Blocks(directory))
    _tear(tmp_path / "b" / ".columns-abc", how)
    for _ in range(2):
        assert _content(BlockRecords(Blocks(directory))) == EXPECTED
    assert reads == [directory] * 2
    names = [n for n in os.listdir(directory) if n.startswith(".columns")]
    assert names == [".columns-abc"]


def test_a_directory_made_again_is_read_again(tmp_path, reads):
    directory = _write(tmp_path / "b", BLOCKS)
    BlockRecords(Blocks(directory))
    (tmp_path / "b").rename(tmp_path / "old")
    block = schema.Block(0, "a", "A", "new", token_ids=[7], token_limits=[3])
    block.token_starts = [0]
    _write(tmp_path / "b", [block], fingerprint="other")
    shutil.copytree(
        tmp_path / "old" / ".columns-abc", tmp_path / "b" / ".columns-abc"
    )
    records = BlockRecords(Blocks(directory))
    assert list(records.texts) == ["new"]
    assert records.span_text(0, 0, 1) == "new"
    assert reads == [directory] * 2


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch, reads):
    directory = _write(tmp_path / "b", BLOCKS)
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    access = os.access
    # Root may write anywhere.
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: path != directory and access(path, mode),
    )
    for _ in range(2):
        assert _content(BlockRecords(Blocks(directory))) == EXPECTED
    assert reads == [directory]
    assert os.listdir(cache / "realm") == [".columns-abc"]
    assert ".columns-abc" not in os.listdir(directory)
    # Where somebody who may has opened them, that is taken.
    shutil.move(cache / "realm" / ".columns-abc", directory)
    assert _content(BlockRecords(Blocks(directory))) == EXPECTED
    assert reads == [directory]


def test_blocks_on_an_object_store(tmp_path, monkeypatch, reads):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local = _write(tmp_path / "b", BLOCKS)
    remote = f"ram://{uuid.uuid4()}/blocks"
    Path(remote).mkdir(parents=True)
    for name in os.listdir(local):
        tf.io.gfile.copy(f"{local}/{name}", f"{remote}/{name}")
    for _ in range(2):
        assert _content(BlockRecords(Blocks(remote))) == EXPECTED
    assert reads == [remote]


def test_where_no_cache_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_dir() == f"{tmp_path}/realm-{os.getuid()}"


def test_the_second_opener_waits_for_the_first(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(block_records, "_SECONDS_TO_WAIT", 0.01)
    directory = _write(tmp_path / "b", BLOCKS)
    reading, go_on = threading.Event(), threading.Event()
    read = Blocks.read_columns

    def wait(blocks, *names):
        reading.set()
        assert go_on.wait(60)
        yield from read(blocks, *names)

    monkeypatch.setattr(Blocks, "read_columns", wait)
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        go_on.set()

    monkeypatch.setattr(block_records.time, "sleep", sleep)
    found = []

    def open_blocks():
        found.append(_content(BlockRecords(Blocks(directory))))

    threads = [threading.Thread(target=open_blocks) for _ in range(2)]
    threads[0].start()
    assert reading.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert found == [EXPECTED] * 2
    assert waited
    assert reads == [directory]


def test_numbers_of_more_than_16_bits(tmp_path):
    text = "x" * 70_000 + " y"
    block = schema.Block(0, "a", "", text, token_ids=[5, 70_001])
    block.token_starts, block.token_limits = [0, 70_001], [70_000, 70_002]
    records = BlockRecords(Blocks(_write(tmp_path / "b", [block])))
    assert records.token_ids().tolist() == [[5, 70_001]]
    assert records.token_ids().dtype == np.int32
    assert records.span_text(0, 1, 2) == "y"


def test_damaged_shards_leave_nothing(tmp_path):
    directory = _write(tmp_path / "b", BLOCKS[1:])
    with pytest.raises(InputError, match="does not hold the blocks 0 to 0"):
        BlockRecords(Blocks(directory))
    assert not [n for n in os.listdir(directory) if "columns" in n]
