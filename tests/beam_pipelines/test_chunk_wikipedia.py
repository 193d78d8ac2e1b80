import bz2
import json
import os
import string

import apache_beam as beam
import pytest
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to

from beam_pipelines import chunk_wikipedia
from beam_pipelines import execution
from beam_pipelines import shards
from beam_pipelines import transforms
from realm_tf import cli
from realm_tf import stages
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer

# Every letter is a wordpiece, so lengths can be counted by eye.
VOCABULARY = (
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + list(string.ascii_lowercase + string.digits + ".,")
    + [f"##{letter}" for letter in string.ascii_lowercase]
)
TWO_THREADS = [
    "--direct_num_workers=2",
    "--direct_running_mode=multi_threading",
]
PAGE = """  <page>
    <title>{title}</title><ns>{namespace}</ns><id>{id}</id>{redirect}
    <revision><id>1</id><text>{text}</text></revision>
  </page>
"""


def page(id, title, text, *, namespace=0, redirect=""):
    return PAGE.format(
        id=id, title=title, text=text, namespace=namespace, redirect=redirect
    )


def dump(*pages):
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n'
        "  <siteinfo><base>https://w.example.org/wiki/Main</base></siteinfo>\n"
        f"{''.join(pages)}</mediawiki>\n"
    )


@pytest.fixture
def vocab(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY))
    return str(path)


@pytest.fixture
def inputs(tmp_path):
    """Two dumps that hold a page for every counter."""
    first = dump(
        page(
            1, "Graz", "'''Graz''' lies on the [[Mur (river)|Mur]]. It is old."
        ),
        page(
            2, "Gratz", "#REDIRECT [[Graz]]", redirect='<redirect title="x"/>'
        ),
        page(3, "Talk:Graz", "Hm.", namespace=1),
        page(4, "List of towns", "Graz is one."),
        page(5, "Mur (disambiguation)", "A river."),
        page(6, "Mur", "Rivers. {{disambig}}"),
        page(7, "Empty", "{{Infobox|a=b}}"),
        page(
            1, "Graz", "'''Graz''' lies on the [[Mur (river)|Mur]]. It is old."
        ),
    )
    second = dump(
        page(9, "Linz", "Linz is wide. " * 3 + "Ships go there."),
        page(
            1, "Graz", "'''Graz''' lies on the [[Mur (river)|Mur]]. It is old."
        ),
        page(8, "Wels", "Wels is small."),
    )
    (tmp_path / "a.xml").write_text(first)
    (tmp_path / "b.xml.bz2").write_bytes(bz2.compress(second.encode()))
    return [str(tmp_path / "a.xml"), str(tmp_path / "b.xml.bz2")]


@pytest.fixture
def small_parts(monkeypatch):
    # Parts, and duplicates in others, without thousands of pages.
    monkeypatch.setattr(transforms, "PAGES_PER_PART", 2)


def shard_bytes(directory):
    names = [n for n in os.listdir(directory) if n.endswith(".gz")]
    content = []
    for name in sorted(names):
        with open(os.path.join(directory, name), "rb") as file:
            content.append(file.read())
    return content


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows(count):
    return [
        {"id": f"r{n}", "title": f"T{n}", "text": f"Row {n} is here. " * 3}
        for n in range(count)
    ]


def test_blocks_and_counters(tmp_path, vocab, inputs, small_parts):
    output = str(tmp_path / "out")
    metadata = chunk_wikipedia.chunk(inputs, output, vocab, max_block_length=30)
    blocks = list(schema.read_blocks(output))

    assert [(b.block_id, b.article_id, b.title, b.text) for b in blocks] == [
        (0, "1", "Graz", "Graz lies on the Mur."),
        (1, "1", "Graz", "It is old."),
        (2, "9", "Linz", "Linz is wide. Linz is wide."),
        (3, "9", "Linz", "Linz is wide."),
        (4, "9", "Linz", "Ships go there."),
        (5, "8", "Wels", "Wels is small."),
    ]
    graz = blocks[0]
    assert graz.url == "https://w.example.org/wiki/Graz"
    assert (graz.link_starts, graz.link_limits) == ([17], [20])
    assert graz.title_ids == Tokenizer(VOCABULARY).tokenize("Graz").ids
    assert graz.token_ids == Tokenizer(VOCABULARY).tokenize(graz.text).ids
    assert blocks[2].sentence_starts == [0, 14]
    assert blocks[2].token_starts[:5] == [0, 1, 2, 3, 5]
    assert metadata["counts"] == {
        "pages_read": 11,
        "dropped_redirect": 1,
        "dropped_namespace": 1,
        "dropped_list_title": 1,
        "dropped_disambiguation": 2,
        "dropped_empty": 1,
        "dropped_duplicate": 2,
        "articles_kept": 3,
        "blocks": 6,
        "sentences": 7,
        "overlong_sentences": 0,
        "wordpieces": sum(len(block.token_ids) for block in blocks),
    }


def test_metadata(tmp_path, vocab, inputs):
    output = str(tmp_path / "out")
    chunk_wikipedia.chunk(
        inputs, output, vocab, max_block_length=30, num_shards=4
    )
    metadata = stages.read(output, kind=schema.BLOCKS)
    tokenizer = Tokenizer(VOCABULARY)

    assert metadata["num_blocks"] == 6
    assert metadata["shard_rows"] == [1, 2, 1, 2]
    assert metadata["max_block_length"] == 30
    assert metadata["longest_block"] == 22
    assert metadata["tokenizer"] == tokenizer.fingerprint()
    assert metadata["counts"]["articles_kept"] == 3
    assert metadata["parameters"]["inputs"] == inputs
    assert metadata["parameters"]["language"] == "en"
    assert (
        Tokenizer.from_file(f"{output}/vocab.txt").fingerprint()
        == tokenizer.fingerprint()
    )
    assert sorted(os.listdir(output)) == [
        "COMPLETED",
        *(f"blocks-0000{n}-of-00004.tfrecord.gz" for n in range(4)),
        "metadata.json",
        "vocab.txt",
    ]


def test_same_bytes_whatever_the_order_and_the_workers(
    tmp_path, vocab, inputs, small_parts
):
    inputs.append(jsonl(tmp_path / "c.jsonl", rows(9)))
    fingerprints = set()

    def chunk(name, paths, **kwargs):
        output = str(tmp_path / name)
        metadata = chunk_wikipedia.chunk(
            paths, output, vocab, max_block_length=30, **kwargs
        )
        fingerprints.add(metadata["fingerprint"])
        return output

    expected = chunk("once", inputs)
    again = chunk("again", [f"{tmp_path}/?.*"])
    reverse = chunk("reverse", inputs[::-1], beam_options=TWO_THREADS)
    three = chunk("three", inputs, num_shards=3, beam_options=TWO_THREADS)

    assert len(shard_bytes(expected)) == 1
    # Four bytes of zero: a gzip header without a time stamp.
    assert shard_bytes(expected)[0][4:8] == b"\0\0\0\0"
    assert shard_bytes(again) == shard_bytes(expected)
    assert shard_bytes(reverse) == shard_bytes(expected)
    assert len(shard_bytes(three)) == 3
    assert list(schema.read_blocks(three)) == list(schema.read_blocks(expected))
    assert len(fingerprints) == 1


def test_one_file_is_shared_among_workers(tmp_path, vocab, small_parts):
    path = jsonl(tmp_path / "rows.jsonl", rows(11))
    alone = chunk_wikipedia.chunk(path, str(tmp_path / "alone"), vocab)
    shared = chunk_wikipedia.chunk(
        path, str(tmp_path / "shared"), vocab, beam_options=TWO_THREADS
    )

    assert shared["counts"] == alone["counts"]
    assert shared["counts"]["pages_read"] == 11
    assert shared["fingerprint"] == alone["fingerprint"]


def test_fingerprint_depends_on_the_content(tmp_path, vocab):
    fingerprints = {
        chunk_wikipedia.chunk(
            jsonl(tmp_path / f"{n}.jsonl", content),
            str(tmp_path / f"out{n}"),
            vocab,
        )["fingerprint"]
        for n, content in enumerate([rows(3), rows(3)[::-1], rows(2)])
    }

    assert len(fingerprints) == 3


def test_overlong_sentence_is_counted(tmp_path, vocab):
    long = "This one sentence has more letters than a block may have."
    path = jsonl(
        tmp_path / "rows.jsonl",
        [{"id": "1", "title": "T", "text": f"Short. {long} Short."}],
    )
    metadata = chunk_wikipedia.chunk(
        path, str(tmp_path / "out"), vocab, max_block_length=20
    )

    assert metadata["counts"]["overlong_sentences"] == 1
    assert metadata["counts"]["blocks"] == 3
    assert metadata["longest_block"] == len(long.replace(" ", ""))


def test_keep_all_titles(tmp_path, vocab):
    path = jsonl(
        tmp_path / "rows.jsonl",
        [{"id": "1", "title": "List of towns", "text": "Graz is one."}],
    )
    metadata = chunk_wikipedia.chunk(
        path, str(tmp_path / "out"), vocab, keep_all_titles=True
    )

    assert metadata["counts"]["articles_kept"] == 1


def test_bad_records_are_counted_by_reason(tmp_path, vocab):
    path = jsonl(
        tmp_path / "rows.jsonl",
        [*rows(1), {"id": "x", "title": "T"}, {"title": "T"}, 5],
    )
    counts = chunk_wikipedia.chunk(path, str(tmp_path / "out"), vocab)["counts"]

    assert counts["dropped_bad_record_no_text"] == 1
    assert counts["dropped_bad_record_no_id"] == 1
    assert counts["dropped_bad_record_no_object"] == 1
    assert counts["pages_read"] == 4
    assert counts["articles_kept"] == 1


@pytest.mark.parametrize("beam_options", [[], TWO_THREADS])
def test_errors_in_workers_come_out_whole(tmp_path, vocab, beam_options):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(rows(1)[0]) + '\n{"id": "x" "title"}\n')
    truncated = tmp_path / "dump.xml.bz2"
    # Random enough to be longer, compressed, than what decides the format.
    text = " ".join(f"Word{n * n} follows." for n in range(60_000))
    data = bz2.compress(dump(page(1, "A", text)).encode())
    truncated.write_bytes(data[:-200])
    conflict = jsonl(
        tmp_path / "conflict.jsonl",
        [*rows(2), {"id": "r0", "title": "T0", "text": "Other."}],
    )
    messages = {}
    for path in (str(broken), str(truncated), conflict):
        with pytest.raises(InputError) as caught:
            chunk_wikipedia.chunk(
                path,
                str(tmp_path / "out"),
                vocab,
                beam_options=beam_options,
            )
        messages[path] = str(caught.value)

    assert messages[str(broken)].startswith(f"{broken}:2: broken JSON")
    assert messages[str(truncated)].startswith(f"{truncated} is truncated")
    assert (
        f"{conflict}:1 and, with another text, at {conflict}:3"
        in (messages[conflict])
    )
    for message in messages.values():
        assert "while running" not in message
    # Nothing is left, not even a part.
    assert not [n for n in os.listdir(tmp_path) if n.startswith("out")]


def test_no_article_kept_is_an_error_that_says_why(tmp_path, vocab):
    path = jsonl(tmp_path / "rows.jsonl", [{"id": "1", "title": "T"}] * 3)

    with pytest.raises(InputError, match="dropped_bad_record_no_text 3"):
        chunk_wikipedia.chunk(path, str(tmp_path / "out"), vocab)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_block_length": 3}, "--max-block-length 3 leaves no room"),
        ({"num_shards": 0}, "--num-shards 0"),
        ({"language": "English"}, "--language 'English'"),
        ({"format": "parquet"}, "--format parquet is unknown"),
        ({"input": "none-*.xml"}, "matches no file"),
        ({"vocab": "none.txt"}, "none.txt does not exist"),
        ({"beam_options": ["--direct_nun_workers=2"]}, "unknown option"),
        ({"beam_options": ["--direct_num_workers=two"]}, "invalid int value"),
    ],
)
def test_wrong_arguments_before_the_pipeline_starts(
    tmp_path, vocab, inputs, monkeypatch, changes, message
):
    monkeypatch.setattr(chunk_wikipedia, "run_pipeline", None)
    arguments = {
        "input": inputs,
        "output": str(tmp_path / "out"),
        "vocab": vocab,
        **changes,
    }

    with pytest.raises(InputError, match=message):
        chunk_wikipedia.chunk(**arguments)


def test_output_that_exists_is_left_alone(tmp_path, vocab, inputs):
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine").write_text("x")

    with pytest.raises(InputError, match="Choose another --output"):
        chunk_wikipedia.chunk(inputs, str(output), vocab)
    assert (output / "mine").read_text() == "x"


def test_command(tmp_path, vocab, inputs, capsys):
    command = ["chunk", "--input", *inputs, "--vocab", vocab, "--output"]
    status = cli.main([*command, str(tmp_path / "out"), *TWO_THREADS])
    printed = capsys.readouterr()

    assert status == 0
    assert "dropped_redirect" in printed.out
    assert f"3 blocks in {tmp_path}/out" in printed.out

    status = cli.main([*command, str(tmp_path / "out2"), "--lenguage=de"])
    printed = capsys.readouterr()

    assert status == 2
    assert printed.err == (
        "realm chunk: unknown option --lenguage=de: neither this command nor "
        "Beam has it.\n"
    )


def test_keep_first(tmp_path):
    entries = [
        ("a", ((1, 0), 5, b"x", 2, ":5")),
        ("a", ((0, 3), 9, b"x", 2, ":9")),
        ("b", ((0, 0), 1, b"y", 4, ":1")),
        ("a", ((0, 3), 8, b"x", 2, ":8")),
    ]
    keep_first = transforms.KeepFirst(str(tmp_path), paths=["p", "q"])
    with test_pipeline.TestPipeline(runner=execution.LOCAL_RUNNER) as pipeline:
        found = (
            pipeline
            | beam.Create(entries)
            | beam.GroupByKey()
            | beam.ParDo(keep_first).with_outputs("dropped", main="kept")
        )
        assert_that(found.kept, equal_to([((0, 3), 2), ((0, 0), 4)]), "kept")
        assert_that(
            found.dropped, equal_to([((1, 0), 5), ((0, 3), 9)]), "dropped"
        )


def test_plan_shards(tmp_path):
    counts = {(1, 0): 3, (0, 1): 1, (0, 0): 4}
    plan = shards.PlanShards(
        "out", directory="parts", num_shards=3, blocks_per_shard=50
    )

    assert list(plan.process(None, counts, [((0, 0), 7), ((0, 0), 8)])) == [
        shards.ShardPlan(
            "out/blocks-00000-of-00003.tfrecord.gz",
            0,
            2,
            (("parts/00000-00000000.tfrecord", 0, frozenset({7, 8})),),
        ),
        shards.ShardPlan(
            "out/blocks-00001-of-00003.tfrecord.gz",
            2,
            3,
            (
                ("parts/00000-00000000.tfrecord", 2, frozenset({7, 8})),
                ("parts/00000-00000001.tfrecord", 0, frozenset()),
            ),
        ),
        shards.ShardPlan(
            "out/blocks-00002-of-00003.tfrecord.gz",
            5,
            3,
            (("parts/00001-00000000.tfrecord", 0, frozenset()),),
        ),
    ]


def test_number_of_shards():
    def count(num_shards, blocks_per_shard):
        plan = shards.PlanShards(
            "out",
            directory="parts",
            num_shards=num_shards,
            blocks_per_shard=blocks_per_shard,
        )
        return len(list(plan.process(None, {(0, 0): 10}, [])))

    assert count(None, 4) == 3
    assert count(None, 5) == 2
    assert count(2, 1) == 2
    assert count(99, 1) == 10


def test_summaries_merge_in_any_grouping():
    first = (((0, 5),), 7, b"\xff" * 32)
    second = (((5, 3),), 9, b"\x01".rjust(32, b"\0"))
    third = (((8, 2),), 8, b"\x02".rjust(32, b"\0"))
    merged = shards.merge_summaries([third, first, second])

    assert merged == (((0, 5), (5, 3), (8, 2)), 9, b"\x02".rjust(32, b"\0"))
    assert (
        shards.merge_summaries([second, shards.merge_summaries([first, third])])
        == merged
    )


def test_options_pin_the_local_runner():
    options = execution.pipeline_options([])
    other = execution.pipeline_options(["--runner=FlinkRunner", "--own=1"])

    assert options.get_all_options()["runner"] == "FnApiRunner"
    assert other.get_all_options()["runner"] == "FlinkRunner"
    assert execution.num_local_workers(options) == 1
    assert (
        execution.num_local_workers(execution.pipeline_options(TWO_THREADS))
        == 2
    )


def test_an_interrupt_stays_one_and_leaves_nothing(
    tmp_path, vocab, inputs, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(transforms.blocks, "split_article", interrupt)

    with pytest.raises(KeyboardInterrupt):
        chunk_wikipedia.chunk(inputs, str(tmp_path / "out"), vocab)
    assert not [n for n in os.listdir(tmp_path) if n.startswith("out")]
