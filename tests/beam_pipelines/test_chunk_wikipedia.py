import json
import os
import subprocess
import sys

import pytest
from beam_runs import TWO_THREADS
from beam_runs import VOCABULARY
from beam_runs import chunk
from beam_runs import dump
from beam_runs import page
from beam_runs import rows
from beam_runs import shard_bytes
from beam_runs import write_jsonl

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Blocks
from realm_tf.beam_pipelines import chunk_wikipedia
from realm_tf.errors import InputError
from realm_tf.operations.chunk import Chunk
from realm_tf.text.tokenizer import Tokenizer


def test_any_name_of_a_directory(tmp_path, vocab, inputs):
    names = ("[1]*", "a b\nc", "\u540d\xe9\U0001f600", "x" * 240)
    made = [
        (chunk(inputs, str(tmp_path / name), vocab), str(tmp_path / name))
        for name in names
    ]
    found = [[b.text for b in Blocks(path).read()] for _, path in made]
    assert all(each == found[0] != [] for each in found)


def test_blocks_and_counters(tmp_path, vocab, inputs, small_parts):
    output = str(tmp_path / "out")
    metadata = chunk(inputs, output, vocab, max_block_length=30)
    found = list(Blocks(output).read())

    assert [(b.block_id, b.article_id, b.title, b.text) for b in found] == [
        (0, "1", "Graz", "Graz lies on the Mur."),
        (1, "1", "Graz", "It is old."),
        (2, "9", "Linz", "Linz is wide. Linz is wide."),
        (3, "9", "Linz", "Linz is wide."),
        (4, "9", "Linz", "Ships go there."),
        (5, "8", "Wels", "Wels is small."),
    ]
    graz = found[0]
    assert graz.url == "https://w.example.org/wiki/Graz"
    assert (graz.link_starts, graz.link_limits) == ([17], [20])
    assert graz.title_ids == Tokenizer(VOCABULARY).tokenize("Graz").ids
    assert graz.token_ids == Tokenizer(VOCABULARY).tokenize(graz.text).ids
    assert found[2].sentence_starts == [0, 14]
    assert found[2].token_starts[:5] == [0, 1, 2, 3, 5]
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
        "wordpieces": sum(len(block.token_ids) for block in found),
        "unknown_wordpieces": 0,
    }


@pytest.mark.parametrize(
    ("keep_tables", "expected"),
    [
        (False, ["It is old."]),
        (True, ["Town: Graz; River: Mur.", "It is old."]),
    ],
)
def test_tables_if_asked_for(tmp_path, vocab, keep_tables, expected):
    table = "{|\n! Town !! River\n|-\n| Graz || Mur\n|}\nIt is old."
    path = tmp_path / "dump.xml"
    path.write_text(dump(page(1, "Graz", table)))
    output = str(tmp_path / "out")
    chunk([str(path)], output, vocab, keep_tables=keep_tables)
    (block,) = Blocks(output).read()
    assert block.text == " ".join(expected)


def test_metadata(tmp_path, vocab, inputs):
    output = str(tmp_path / "out")
    chunk(inputs, output, vocab, max_block_length=30, per_shard=4)
    metadata = artifact.read(output, kind="blocks")
    tokenizer = Tokenizer(VOCABULARY)

    assert metadata["num_blocks"] == 6
    assert metadata["shard_rows"] == [3, 3]
    assert metadata["max_block_length"] == 30
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
        *(f"blocks-0000{n}-of-00002.arrow" for n in range(2)),
        "metadata.json",
        "vocab.txt",
    ]


def test_same_bytes_whatever_the_order_and_the_workers(
    tmp_path, vocab, inputs, small_parts
):
    inputs.append(write_jsonl(tmp_path / "c.jsonl", rows(9)))

    def make(name, paths, **kwargs):
        output = str(tmp_path / name)
        found = chunk(paths, output, vocab, max_block_length=30, **kwargs)
        fingerprints[name] = found["fingerprint"]
        return output

    fingerprints = {}
    expected = make("once", inputs)
    again = make("again", [f"{tmp_path}/?.*"])
    reverse = make("reverse", inputs[::-1], beam_options=TWO_THREADS)
    three = make("three", inputs, per_shard=9, beam_options=TWO_THREADS)

    assert len(shard_bytes(expected)) == 1
    assert shard_bytes(again) == shard_bytes(expected)
    assert shard_bytes(reverse) == shard_bytes(expected)
    assert len(shard_bytes(three)) > 1
    assert list(Blocks(three).read()) == list(Blocks(expected).read())
    one = {fingerprints[name] for name in ("once", "again", "reverse")}
    assert len(one) == 1


def test_no_article_kept_is_an_error_that_says_why(tmp_path, vocab):
    path = write_jsonl(tmp_path / "rows.jsonl", [{"id": "1", "title": "T"}] * 3)

    with pytest.raises(InputError, match="dropped_bad_record_no_text 3"):
        chunk(path, str(tmp_path / "out"), vocab)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_block_length": 3}, "--max-block-length 3: expected 4 or more"),
        ({"unit": "bytes"}, "--unit must be one of"),
        (
            {"unit": "words", "max_block_length": 0},
            "--max-block-length 0: expected 1 or more",
        ),
        ({"language": "English"}, "--language 'English'"),
        ({"format": "docx"}, "--format must be one of"),
        ({"input": "none-*.xml"}, "matches no file"),
        ({"vocab": "none.txt"}, "none.txt does not exist"),
        ({"beam_options": ["--direct_nun_workers=2"]}, "unknown option"),
        ({"beam_options": ["--direct_num_workers=two"]}, "invalid int value"),
    ],
)
def test_wrong_arguments_before_the_pipeline_starts(
    tmp_path, vocab, inputs, monkeypatch, changes, message
):
    monkeypatch.setattr(chunk_wikipedia, "write_blocks", None)
    arguments = {
        "input": inputs,
        "output": str(tmp_path / "out"),
        "vocab": vocab,
        **changes,
    }

    with pytest.raises(InputError, match=message):
        Chunk(**arguments).run()


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


def test_unknown_wordpieces_are_counted(tmp_path, vocab, capsys):
    known = {"id": "1", "title": "T", "text": "Row is here. " * 9}
    path = write_jsonl(tmp_path / "known.jsonl", [known, {**known, "id": "2"}])
    command = ["chunk", "--vocab", vocab, "--input", path, "--output"]
    assert cli.main([*command, str(tmp_path / "known")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert ["unknown_wordpieces", "0"] in [line.split() for line in printed]
    row = {"id": "1", "title": "T", "text": "Row 図 書 館 is here."}
    write_jsonl(tmp_path / "known.jsonl", [row])
    assert cli.main([*command, str(tmp_path / "other")]) == 0
    printed = capsys.readouterr()
    found = Blocks(tmp_path / "other").counts
    assert (found["unknown_wordpieces"], found["wordpieces"]) == (3, 13)
    assert printed.err.count("\n") == 1
    assert f"23% of the wordpieces are [UNK]: the vocabulary {vocab} " in (
        printed.err
    )


def test_unknown_formats_are_refused_at_once(tmp_path, vocab):
    path = tmp_path / "book.mobi"
    path.write_bytes(b"BOOKMOBI\0")
    code = (
        "import sys\n"
        "from realm_tf import cli\n"
        "status = cli.main(sys.argv[1:])\n"
        "heavy = {'tensorflow', 'keras', 'apache_beam'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))\n"
        "sys.exit(status)\n"
    )
    command = ["chunk", "--input", path, "--vocab", vocab, "--output", "out"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is of no known format" in done.stderr
    assert done.stdout == "imported: []\n"


def test_the_model_of_the_vocabulary_says_whether_it_is_cased(tmp_path, vocab):
    def lowercase(path):
        return Chunk(input="x", output="y", vocab=path).tokenizer.lowercase

    assert lowercase(vocab)
    config = tmp_path / "config.json"
    # Hugging Face's says it elsewhere.
    for content, expected in (({"lowercase": False}, False), ({}, True)):
        config.write_text(json.dumps(content))
        assert lowercase(vocab) == expected


def test_unit_words(tmp_path, vocab):
    text = "Aa bb cc. Dd ee.\nFf gg hh ii."
    path = write_jsonl(
        tmp_path / "rows.jsonl", [{"id": "1", "title": "T", "text": text}]
    )
    output = str(tmp_path / "out")
    metadata = chunk(path, output, vocab, unit="words", max_block_length=4)
    found = list(Blocks(output).read())

    assert [block.text for block in found] == [
        "Aa bb cc. Dd",
        "ee. Ff gg hh",
        "ii.",
    ]
    assert [block.sentence_starts for block in found] == [[0, 10], [0, 4], [0]]
    # What a model must read: 9 wordpieces, [CLS], title and both [SEP].
    assert metadata["max_block_length"] == 13
    assert metadata["counts"]["overlong_sentences"] == 0


@pytest.mark.parametrize("max_block_length", [None, 6])
def test_unit_rows(tmp_path, vocab, max_block_length):
    rows = [
        {"id": "1", "title": "T", "text": "Aa bb cc. Dd ee."},
        {"id": "2", "title": "", "text": "Ff gg."},
        {"id": "3", "title": "", "text": "Ff gg."},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    output = str(tmp_path / "out")
    metadata = chunk(
        path, output, vocab, unit="rows", max_block_length=max_block_length
    )
    found = list(Blocks(output).read())

    assert [block.text for block in found] == [row["text"] for row in rows]
    assert found[0].sentence_starts == [0, 10]
    longest = len(found[0].token_ids)
    assert longest > 6
    # With [CLS], title and both [SEP], or what is to be read of them.
    assert metadata["max_block_length"] == (max_block_length or longest + 4)
