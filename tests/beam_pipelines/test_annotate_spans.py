import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from realm_tf import cli
from realm_tf import progress
from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import annotate_spans
from realm_tf.errors import InputError
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.tagging import taggers
from realm_tf.tagging.rules.salient_spans import find_spans

TWO_THREADS = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_threading",
]
TWO_PROCESSES = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
]
# Every sentence is a passage: see `chunk`.
TEXTS = [
    "They built 🚢 at São Paulo in 1869.",
    "日本 and Tokyo 🗼 are far from Rome.",
    "So it was, with 12 cafe\u0301s in Zu\u0308rich.",
    "It is not so.",
    "Near 𝔘𝔫𝔦 they met Ada Lovelace in May 1843.",
    "Over 3 million saw Mount Etna.",
    "One of them saw the Nile.",
]


def articles(path, texts=TEXTS, *, title="T{}"):
    rows = (
        {"id": str(number), "title": title.format(number), "text": text}
        for number, text in enumerate(texts)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory, vocabulary_path):
    """Seven articles, the blocks of them, and those of other articles."""
    directory = tmp_path_factory.mktemp("annotate")
    path = articles(directory / "articles.jsonl")
    other = articles(directory / "other.jsonl", TEXTS[::-1])
    for name, source in (("blocks", path), ("other", other)):
        Chunk(
            input=source,
            output=str(directory / name),
            vocab=vocabulary_path,
            num_shards=2,
        ).run()
    return directory


@pytest.fixture(scope="module")
def blocks(world):
    return str(world / "blocks")


@pytest.fixture(scope="module")
def expected(world, blocks):
    """The annotated blocks, three shards, by one worker."""
    output = str(world / "expected")
    annotate(output, blocks=blocks, passages_per_shard=3)
    return output


def annotate(output, tagger="rules", **options):
    """What `realm annotate` adds to the metadata."""
    made = Annotate(output=output, tagger=tagger, **options).run()
    return made.metadata


def shard_bytes(directory):
    content = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".gz"):
            with open(os.path.join(directory, name), "rb") as file:
                content[name] = file.read()
    return content


def block(text, starts=(0,)):
    return schema.Block(7, "1", "Title", text, sentence_starts=list(starts))


def test_places_become_bytes():
    # 4, 3, 2 and 1 bytes a character; the accents are characters too.
    text = "🚢日é e\u0301. 𝔘 b."
    passage, counts = annotate_spans.annotate_block(
        block(text, [0, 8]),
        [(0, 1, "A"), (1, 3, "B"), (4, 6, "A"), (8, 9, "C")],
    )
    assert passage.spans() == ["🚢", "日é", "e\u0301", "𝔘"]
    assert passage.span_byte_start == [0, 4, 10, 15]
    assert passage.span_byte_limit == [4, 9, 13, 19]
    assert passage.span_label == ["A", "B", "A", "C"]
    assert passage.sentences() == ["🚢日é e\u0301.", "𝔘 b."]
    assert passage.sentence_byte_start == [0, 15]
    assert passage.sentence_byte_limit == [14, 22]
    assert (passage.block_id, passage.title) == (7, "Title")
    assert +counts == {
        **{"passages": 1, "sentences": 2, "spans": 4},
        **{"spans_A": 2, "spans_B": 1, "spans_C": 1},
    }


def test_what_crosses_or_overlaps_is_dropped_and_counted():
    text = "Ada was. Bach wrote."
    passage, counts = annotate_spans.annotate_block(
        block(text, [0, 9]),
        [
            # Out of order; ends with the space, or in the next sentence.
            *((9, 13, "x"), (4, 9, "x"), (4, 11, "x"), (8, 9, "x")),
            # The longer of two that begin together stays.
            *((0, 2, "x"), (0, 3, "x"), (10, 15, "x"), (13, 14, "x")),
        ],
    )
    assert passage.spans() == ["Ada", "Bach", " "]
    assert counts["dropped_crossing_spans"] == 3
    assert counts["dropped_overlapping_spans"] == 2
    assert counts["spans"] == 3
    assert counts["passages_without_span"] == 0


def test_records_against_the_rules_themselves(expected, blocks):
    passages = list(schema.read_annotated(expected))
    assert [passage.block_id for passage in passages] == list(range(7))
    assert [passage.text for passage in passages] == TEXTS
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
    metadata = artifact.read(expected, kind=schema.ANNOTATED)
    passages = list(schema.read_annotated(expected))
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
        "blocks": artifact.read(blocks, kind=schema.BLOCKS)["fingerprint"],
        "tagger": "rules",
    }
    assert sorted(os.listdir(expected)) == [
        "COMPLETED",
        *(f"annotated-0000{n}-of-00003.tfrecord.gz" for n in range(3)),
        "metadata.json",
    ]


@pytest.mark.parametrize(
    "beam_options",
    [
        [],
        TWO_THREADS,
        pytest.param(TWO_PROCESSES, marks=pytest.mark.slow),
    ],
)
def test_same_bytes_whatever_the_workers(
    tmp_path, blocks, expected, beam_options
):
    output = str(tmp_path / "out")
    metadata = annotate(
        output, blocks=blocks, passages_per_shard=3, beam_options=beam_options
    )
    assert shard_bytes(output) == shard_bytes(expected)
    before = artifact.read(expected, kind=schema.ANNOTATED)
    after = artifact.read(output, kind=schema.ANNOTATED)
    assert after == {**before, "seconds": after["seconds"]}
    assert metadata["counts"] == before["counts"]


def test_shards_and_calls_change_no_record(
    tmp_path, monkeypatch, world, blocks, expected
):
    passages = list(schema.read_annotated(expected))
    fingerprint = artifact.read(expected, kind="annotated")["fingerprint"]
    other = annotate(str(tmp_path / "other"), blocks=str(world / "other"))
    assert other["fingerprint"] != fingerprint
    monkeypatch.setattr(annotate_spans, "BLOCKS_PER_CALL", 2)
    for size, rows in ((2, [2, 2, 2, 1]), (7, [7]), (100, [7])):
        output = str(tmp_path / str(size))
        metadata = annotate(output, blocks=blocks, passages_per_shard=size)
        assert list(schema.read_annotated(output)) == passages
        assert metadata["shard_rows"] == rows
        assert metadata["fingerprint"] == fingerprint


def _count_calls(monkeypatch):
    """What the rules' tagger is given from now on."""
    tagged = []
    tag = taggers.RulesTagger.tag

    def count(self, blocks):
        tagged.extend(block.block_id for block in blocks)
        return tag(self, blocks)

    monkeypatch.setattr(taggers.RulesTagger, "tag", count)
    return tagged


def _break_off(monkeypatch, output, **arguments):
    """A run that breaks off after its last shard."""

    def fail(tagger, counts):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(annotate_spans, "_check_spans", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            annotate(str(output), **{"passages_per_shard": 3, **arguments})
    assert not output.exists()
    return output.with_name(f"{output.name}.partial")


def _assert_goes_on(monkeypatch, output, blocks, expected, *, again):
    """The next run tags `again` alone and ends in the same bytes."""
    tagged = _count_calls(monkeypatch)
    metadata = annotate(str(output), blocks=blocks, passages_per_shard=3)
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
        (["annotated-00001-of-00003.tfrecord.gz"], [3, 4, 5]),
        (["summaries/annotated-00002-of-00003.json"], [6]),
        (["summaries"], list(range(7))),
    ],
)
def test_a_run_that_broke_off_computes_what_is_missing(
    tmp_path, monkeypatch, blocks, expected, lost, again
):
    output = tmp_path / "out"
    partial = _break_off(monkeypatch, output, blocks=blocks)
    for name in lost:
        remove(str(partial / name))
    _assert_goes_on(monkeypatch, output, blocks, expected, again=again)
    assert not partial.exists()


@pytest.mark.slow
def test_killed_at_any_point(tmp_path, monkeypatch, blocks, expected):
    program = """
import os, signal, sys
from realm_tf.beam_pipelines import annotate_spans
from realm_tf.operations.annotate import Annotate
annotate_spans.BLOCKS_PER_CALL = 1
left = int(sys.argv[3])
annotate_block = annotate_spans.annotate_block
def annotate_or_die(block, spans):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return annotate_block(block, spans)
annotate_spans.annotate_block = annotate_or_die
Annotate(
    output=sys.argv[2],
    tagger="rules",
    blocks=sys.argv[1],
    passages_per_shard=3,
).run()
"""
    output = tmp_path / "out"
    # Two shards at most are done by then: three passages are left.
    for left in (0, 4, 1):
        done = subprocess.run(
            [sys.executable, "-c", program, blocks, str(output), str(left)],
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert not output.exists()
    annotate(str(output), blocks=blocks, passages_per_shard=3)
    assert shard_bytes(output) == shard_bytes(expected)
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))


def _annotate_input(output, path, vocabulary_path, **arguments):
    return annotate(
        str(output),
        tagger=arguments.pop("tagger", "rules"),
        input=path,
        vocab=vocabulary_path,
        passages_per_shard=3,
        **arguments,
    )


def test_articles_of_another_corpus(tmp_path, world, expected, vocabulary_path):
    output = str(tmp_path / "out")
    path = str(world / "articles.jsonl")
    metadata = _annotate_input(
        output, path, vocabulary_path, beam_options=TWO_THREADS
    )
    passages = list(schema.read_annotated(output))
    of_blocks = list(schema.read_annotated(expected))
    assert [passage.block_id for passage in passages] == [-1] * 7
    for passage, number in zip(of_blocks, range(7), strict=True):
        assert passage.block_id == number
        passage.block_id = -1
    assert passages == of_blocks
    assert metadata["chunk_counts"]["articles_kept"] == 7
    assert (
        metadata["counts"]
        == artifact.read(expected, kind="annotated")["counts"]
    )
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))
    assert metadata["parents"] == {
        "articles": artifact.read(str(world / "blocks"), kind="blocks")[
            "fingerprint"
        ],
        "tagger": "rules",
    }
    parameters = artifact.read(output, kind="annotated")["parameters"]
    assert parameters["inputs"] == [path]


def test_articles_are_cut_once_when_a_run_broke_off(
    tmp_path, monkeypatch, expected, vocabulary_path
):
    path = articles(tmp_path / "articles.jsonl")
    cut = []
    run = Chunk.run

    def count(chunk):
        cut.append(chunk)
        return run(chunk)

    monkeypatch.setattr(Chunk, "run", count)
    output = tmp_path / "out"
    arguments = {"input": path, "vocab": vocabulary_path}
    partial = _break_off(monkeypatch, output, **arguments)
    os.remove(partial / "annotated-00002-of-00003.tfrecord.gz")
    with monkeypatch.context() as patch:
        tagged = _count_calls(patch)
        _annotate_input(output, path, vocabulary_path)
        assert tagged == [6]
    assert len(cut) == 1
    # Other articles under the same name are no reason to go on.
    other = tmp_path / "again"
    _break_off(monkeypatch, other, **arguments)
    articles(tmp_path / "articles.jsonl", [*TEXTS, "They saw Bach."])
    metadata = _annotate_input(other, path, vocabulary_path)
    assert len(cut) == 3
    assert metadata["num_passages"] == 8


def test_broken_articles_leave_nothing(tmp_path, vocabulary_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"id": "1", "title": "T", "text": "A."}\n{"id" "x"}\n')
    with pytest.raises(InputError, match=f"^{path}:2: broken JSON"):
        _annotate_input(tmp_path / "out", str(path), vocabulary_path)
    assert os.listdir(tmp_path) == ["broken.jsonl"]


def test_links_of_a_dump(tmp_path, vocabulary_path, blocks):
    dump = tmp_path / "dump.xml"
    dump.write_text(
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">'
        "<page><title>Graz</title><ns>0</ns><id>1</id><revision><id>1</id>"
        "<text>Graz 🚢 lies on the [[Mur (river)|Mür]] since 1128.</text>"
        "</revision></page></mediawiki>"
    )
    output = str(tmp_path / "out")
    metadata = _annotate_input(
        output, str(dump), vocabulary_path, tagger="links"
    )
    (passage,) = schema.read_annotated(output)
    assert passage.spans() == ["Mür", "1128"]
    assert passage.span_label == ["link", "date"]
    assert metadata["counts"]["spans_link"] == 1
    # Plain text has none.
    with pytest.raises(InputError, match="found no link in 7 passages"):
        annotate(str(tmp_path / "none"), tagger="links", blocks=blocks)
    assert sorted(os.listdir(tmp_path)) == ["dump.xml", "out"]


def test_no_span_at_all_is_refused(tmp_path, vocabulary_path):
    path = articles(tmp_path / "articles.jsonl", ["It is so."])
    with pytest.raises(InputError, match="rules found no span in 1 passages"):
        _annotate_input(tmp_path / "out", path, vocabulary_path)
    assert os.listdir(tmp_path) == ["articles.jsonl"]


@pytest.mark.parametrize("beam_options", [[], TWO_THREADS])
def test_errors_in_workers_come_out_whole(
    tmp_path, monkeypatch, blocks, expected, beam_options
):
    damaged = str(tmp_path / "blocks")
    shutil.copytree(blocks, damaged)
    path = schema.shard_paths(damaged)[1]
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(content[: len(content) // 2])
    output = tmp_path / "out"
    arguments = {"passages_per_shard": 3, "beam_options": beam_options}
    with pytest.raises(InputError) as caught:
        annotate(str(output), blocks=damaged, **arguments)
    assert str(caught.value).startswith(f"{path} is truncated or damaged")
    assert not output.exists()
    # Mended, it goes on.
    with open(path, "wb") as file:
        file.write(content)
    annotate(str(output), blocks=damaged, **arguments)
    assert shard_bytes(output) == shard_bytes(expected)
    assert sorted(os.listdir(output)) == sorted(os.listdir(expected))

    def refuse(**arguments):
        raise InputError("no such tagger on this worker")

    monkeypatch.setattr(taggers, "make_tagger", refuse)
    with pytest.raises(InputError, match="^no such tagger on this worker$"):
        annotate(str(tmp_path / "again"), blocks=blocks, **arguments)


def test_the_tagger_gets_its_arguments(tmp_path, monkeypatch, blocks):
    made = []

    class Tagger:
        def tag(self, blocks):
            return [[(0, 2, "X")] for _ in blocks]

    def make(**arguments):
        made.append(arguments)
        return Tagger()

    monkeypatch.setattr(taggers, "make_tagger", make)
    monkeypatch.setattr(taggers, "identity", lambda *_, **__: "abc")
    metadata = annotate(
        str(tmp_path / "out"),
        tagger="bert",
        blocks=blocks,
        tagger_model="model",
        batch_size=9,
        passages_per_shard=2,
    )
    arguments = {"name": "bert", "batch_size": 9, "tagger_model": "model"}
    # Once a worker, not once a shard.
    assert made == [arguments]
    assert metadata["counts"]["spans_X"] == 7
    found = artifact.read(str(tmp_path / "out"), kind="annotated")
    assert found["parents"]["tagger"] == "abc"


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"batch_size": 0}, "--batch-size 0: expected 1 or more"),
        ({"beam_options": ["--no-such-option=1"]}, "--no-such-option"),
        ({"tagger_model": "x"}, "--tagger-model belongs to --tagger bert"),
        ({"vocab": "x"}, "--vocab belongs to --input"),
        ({"blocks": None}, "either --blocks DIR or --input GLOB"),
        ({"blocks": None, "input": "x"}, "--input needs --vocab"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, blocks, arguments, reason):
    arguments = {"blocks": blocks, "tagger": "rules", **arguments}
    with pytest.raises(InputError, match=reason):
        annotate(str(tmp_path / "out"), **arguments)
    assert not os.listdir(tmp_path)


def test_the_command_prints_counters_and_sentences(
    tmp_path, blocks, monkeypatch, capsys
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1)
    monkeypatch.setattr(annotate_spans, "BLOCKS_PER_CALL", 2)
    output = str(tmp_path / "out")
    arguments = f"--blocks {blocks} --output {output} --tagger rules"
    arguments += " --passages-per-shard 4"
    assert cli.main(["annotate", *arguments.split()]) == 0
    printed = capsys.readouterr()
    counters, *sentences, last = printed.out.strip().split("\n\n")
    counts = dict(line.split() for line in counters.split("\n"))
    assert counts["passages"] == "7"
    assert counts["passages_without_span"] == "1"
    assert len(sentences) == 3
    for sentence in sentences:
        assert re.sub(r"\[([^|\]]+)\|\w+\]", r"\1", sentence) in TEXTS
        assert "|" in sentence
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
