import collections
import os
import unicodedata

import pytest
from annotate_runs import TEXTS
from annotate_runs import annotate
from annotate_runs import break_off
from annotate_runs import count_calls
from beam_runs import TWO_PROCESSES
from beam_runs import TWO_THREADS
from beam_runs import shard_bytes

from realm_tf import cli
from realm_tf import progress
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import annotate_spans
from realm_tf.errors import InputError
from realm_tf.tagging import taggers
from realm_tf.tagging.rules.salient_spans import find_spans


def test_records_against_the_rules_themselves(expected, blocks):
    passages = list(Passages(expected).read())
    assert [passage.block_id for passage in passages] == list(range(7))
    assert [passage.text for passage in passages] == [
        unicodedata.normalize("NFC", text) for text in TEXTS
    ]
    assert [passage.title for passage in passages] == [
        f"T{number}" for number in range(7)
    ]
    for passage in passages:
        found = find_spans(passage.text)
        assert passage.sentences() == [passage.text]
        assert passage.spans() == [passage.text[s:e] for s, e, _ in found]
        assert passage.span_label == [kind for _, _, kind in found]
    assert passages[0].spans() == ["São Paulo", "1869"]
    assert "Ada Lovelace" in passages[4].spans()


def test_what_the_directory_says(expected, blocks):
    metadata = artifact.read(expected, kind="annotated")
    passages = list(Passages(expected).read())
    labels = collections.Counter(
        label for passage in passages for label in passage.span_label
    )
    assert metadata["counts"] == {
        "passages": 7,
        "sentences": 7,
        "spans": labels.total(),
        **{f"spans_{label}": count for label, count in labels.items()},
        "passages_without_span": 1,
        "overlong_passages": 0,
        "dropped_crossing_spans": 0,
        "dropped_overlapping_spans": 0,
    }
    assert set(labels) == {"date", "name", "number"}
    assert metadata["num_passages"] == 7
    assert metadata["shard_rows"] == [3, 3, 1]
    assert metadata["parents"] == {
        "blocks": artifact.read(blocks, kind="blocks")["fingerprint"],
        "tagger": "rules",
    }
    assert sorted(os.listdir(expected)) == [
        "COMPLETED",
        *(f"annotated-0000{n}-of-00003.arrow" for n in range(3)),
        "metadata.json",
    ]


@pytest.mark.parametrize(
    "beam_options",
    [[], TWO_THREADS, pytest.param(TWO_PROCESSES, marks=pytest.mark.slow)],
)
def test_same_bytes_with_any_workers(tmp_path, blocks, expected, beam_options):
    output = str(tmp_path / "out")
    metadata = annotate(output, blocks=blocks, beam_options=beam_options)
    assert shard_bytes(output) == shard_bytes(expected)
    before = artifact.read(expected, kind="annotated")
    after = artifact.read(output, kind="annotated")
    assert after == {**before, "seconds": after["seconds"]}
    assert metadata["counts"] == before["counts"]


def test_shards_and_calls_change_no_record(
    tmp_path, monkeypatch, annotate_world, blocks, expected
):
    passages = list(Passages(expected).read())
    fingerprint = artifact.read(expected, kind="annotated")["fingerprint"]
    other = annotate(
        str(tmp_path / "other"), blocks=str(annotate_world / "other")
    )
    assert other["fingerprint"] != fingerprint
    monkeypatch.setattr(annotate_spans, "BLOCKS_PER_CALL", 2)
    for size, rows in ((2, [2, 2, 2, 1]), (7, [7]), (100, [7])):
        output = str(tmp_path / str(size))
        metadata = annotate(output, blocks=blocks, per_shard=size)
        assert list(Passages(output).read()) == passages
        assert metadata["shard_rows"] == rows


def _assert_goes_on(monkeypatch, output, blocks, expected, *, again):
    """The next run tags `again` alone and ends in the same bytes."""
    tagged = count_calls(monkeypatch)
    metadata = annotate(str(output), blocks=blocks)
    assert sorted(tagged) == again
    assert shard_bytes(output) == shard_bytes(expected)
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))
    before = artifact.read(expected, kind="annotated")
    assert metadata["counts"] == before["counts"]
    assert metadata["fingerprint"] == before["fingerprint"]


@pytest.mark.parametrize(
    "lost, again",
    [
        ([], []),
        (["annotated-00001-of-00003.arrow"], [3, 4, 5]),
        (["annotated-00002-of-00003.arrow"], [6]),
    ],
)
def test_a_run_that_broke_off_computes_what_is_missing(
    tmp_path, monkeypatch, blocks, expected, lost, again
):
    output = tmp_path / "out"
    partial = break_off(monkeypatch, output, blocks=blocks)
    for name in lost:
        remove(str(partial / name))
    _assert_goes_on(monkeypatch, output, blocks, expected, again=again)
    assert not partial.exists()


@pytest.mark.parametrize("beam_options", [[], TWO_THREADS])
def test_errors_in_workers_come_out_whole(
    tmp_path, monkeypatch, blocks, beam_options
):
    def refuse(**arguments):
        raise InputError("no such tagger on this worker")

    monkeypatch.setattr(taggers, "make_tagger", refuse)
    with pytest.raises(InputError, match="^no such tagger on this worker$"):
        annotate(
            str(tmp_path / "out"), blocks=blocks, beam_options=beam_options
        )
    assert not os.path.exists(tmp_path / "out")


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"beam_options": ["--no-such-option=1"]}, "--no-such-option"),
        ({"tagger_model": "x"}, "--tagger-model belongs to --tagger bert"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, blocks, arguments, reason):
    arguments = {"blocks": blocks, "tagger": "rules", **arguments}
    with pytest.raises(InputError, match=reason):
        annotate(str(tmp_path / "out"), **arguments)
    assert not os.listdir(tmp_path)


def test_the_command_prints_counters(tmp_path, blocks, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1)
    monkeypatch.setattr(annotate_spans, "BLOCKS_PER_CALL", 2)
    output = str(tmp_path / "out")
    arguments = f"--blocks {blocks} --output {output} --tagger rules"
    assert cli.main(["annotate", *arguments.split()]) == 0
    printed = capsys.readouterr()
    counters, last = printed.out.strip().split("\n\n")
    counts = dict(line.split() for line in counters.split("\n"))
    assert counts["passages"] == "7"
    assert counts["passages_without_span"] == "1"
    assert last == f"7 passages in {output}"
    lines = [
        line
        for line in printed.err.split("\n")
        if line.startswith("annotate: ")
    ]
    assert len(lines) == 4
    assert {line.split(" passages")[0] for line in lines} >= {
        "annotate: 7 of 7"
    }
    assert all(line.endswith(" minutes left") for line in lines)
