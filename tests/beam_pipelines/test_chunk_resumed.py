"""`realm chunk` that breaks off: what it leaves, and how it goes on."""

import bz2
import errno
import glob
import json
import os
import pathlib

import pytest
from beam_runs import TWO_THREADS
from beam_runs import chunk
from beam_runs import dump
from beam_runs import page
from beam_runs import rows
from beam_runs import shard_bytes
from beam_runs import write_jsonl

from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.errors import InputError
from realm_tf.text import blocks


@pytest.mark.parametrize("beam_options", [[], TWO_THREADS])
def test_errors_in_workers_come_out_whole(tmp_path, vocab, beam_options):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(rows(1)[0]) + '\n{"id": "x" "title"}\n')
    truncated = tmp_path / "dump.xml.bz2"
    # Random enough to be longer, compressed, than what decides the format.
    text = " ".join(f"Word{n * n} follows." for n in range(60_000))
    data = bz2.compress(dump(page(1, "A", text)).encode())
    truncated.write_bytes(data[:-200])
    one = write_jsonl(tmp_path / "conflict-1.jsonl", rows(2))
    other = {"id": "r0", "title": "T0", "text": "Other."}
    two = write_jsonl(tmp_path / "conflict-2.jsonl", [rows(3)[2], other])
    conflict = f"{tmp_path}/conflict-*.jsonl"
    messages = {}
    for path in (str(broken), str(truncated), conflict):
        with pytest.raises(InputError) as caught:
            chunk(path, str(tmp_path / "out"), vocab, beam_options=beam_options)
        messages[path] = str(caught.value)

    assert messages[str(broken)].startswith(f"{broken}:2: broken JSON")
    assert messages[str(truncated)].startswith(f"{truncated} is truncated")
    assert messages[conflict].startswith(
        f"page 1 of {one} and page 2 of {two} have one article id"
    )
    for message in messages.values():
        assert "while running" not in message
    # Nothing is left, not even a part.
    assert not [n for n in os.listdir(tmp_path) if n.startswith("out")]


def test_an_interrupt_stays_one_and_the_next_run_goes_on(
    tmp_path, vocab, inputs, small_parts, monkeypatch
):
    output = str(tmp_path / "out")
    expected = str(tmp_path / "expected")
    chunk(inputs, expected, vocab)
    cut = blocks.split_articles
    calls = []

    def interrupt(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return cut(*args)

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "split_articles", interrupt)
        with pytest.raises(KeyboardInterrupt):
            chunk(inputs, output, vocab)
    assert os.listdir(f"{output}.partial")
    monkeypatch.setattr(blocks, "split_articles", interrupt)
    metadata = chunk(inputs, output, vocab)

    # Of six parts, all but the two that were there.
    assert len(calls) == 3 + 4
    assert metadata["counts"]["pages_read"] == 11
    assert shard_bytes(output) == shard_bytes(expected)
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))


def _interrupted(monkeypatch, inputs, output, vocab):
    """All parts are there, and two of the shards."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resumable, "merge_summaries", interrupt)
        with pytest.raises(KeyboardInterrupt):
            chunk(inputs, output, vocab, per_shard=4)


def test_what_has_changed_since_an_interruption_is_made_again(
    tmp_path, vocab, inputs, small_parts, monkeypatch
):
    output = str(tmp_path / "out")
    _interrupted(monkeypatch, inputs, output, vocab)
    options = {"per_shard": 4}
    with pytest.raises(InputError, match=r"max_block_length=288 \(now 30\)"):
        chunk(inputs, output, vocab, **options, max_block_length=30)
    pathlib.Path(inputs[0]).write_text(
        dump(page(3, "Enns", "Enns lies on the Enns. It is new."))
    )
    metadata = chunk(inputs, output, vocab, **options)
    expected = str(tmp_path / "expected")
    fresh = chunk(inputs, expected, vocab, **options)

    assert metadata["counts"] == fresh["counts"]
    assert shard_bytes(output) == shard_bytes(expected)
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))


def test_a_part_that_is_gone_is_never_trusted(
    tmp_path, vocab, inputs, small_parts, monkeypatch
):
    output = str(tmp_path / "out")
    _interrupted(monkeypatch, inputs, output, vocab)
    (shard,) = glob.glob(f"{output}.partial/blocks-00000*")
    os.remove(shard)
    for path in glob.glob(f"{output}.partial/parts-*/0*"):
        os.remove(path)
    with pytest.raises(InputError, match=r"arrow is missing"):
        chunk(inputs, output, vocab, per_shard=4)
    # Nothing is left, so all is made again.
    chunk(inputs, output, vocab, per_shard=4)
    expected = str(tmp_path / "expected")
    chunk(inputs, expected, vocab, per_shard=4)
    assert shard_bytes(output) == shard_bytes(expected)


@pytest.mark.parametrize(
    "where",
    [
        (parts.record_files, "to_table"),
        (parts.record_files, "write"),
        (resumable, "write_records"),
    ],
)
def test_a_full_disk(tmp_path, vocab, inputs, small_parts, monkeypatch, where):
    expected, output = str(tmp_path / "expected"), str(tmp_path / "out")
    chunk(inputs, expected, vocab)

    def write(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(*where, write)
        with pytest.raises(InputError, match="no space is left on the disk"):
            chunk(inputs, output, vocab)
    assert not find(output, "tmp")
    # Once there is some again, it goes on.
    chunk(inputs, output, vocab)
    assert shard_bytes(output) == shard_bytes(expected)


def find(output, ending):
    return sorted(glob.glob(f"{output}.partial/**/*.{ending}", recursive=True))
