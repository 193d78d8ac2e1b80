import bz2
import gzip
import json
import os
import pathlib

import pytest

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts import question_files
from realm_tf.data import question_sets
from realm_tf.data.question_sets import is_orqa_dev
from realm_tf.errors import InputError
from realm_tf.operations.prepare_questions import PrepareQuestions

# FarmHash Fingerprint64, as signed numbers: BigQuery's documentation of
# FARM_FINGERPRINT, and Guava's tests of farmHashFingerprint64 with texts of 4,
# 32 and 256 bytes, which take different paths through the hash.
FINGERPRINTS = {
    "1footrue": -1541654101129638711,
    "2applefalse": 2794438866806483259,
    "3true": -4880158226897771312,
    "test": 8581389452482819506,
    "test" * 8: -4196240717365766262,
    "test" * 64: 3500507768004279527,
}


def _write(path, *objects):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    return str(path)


def prepare(input, output, **options):
    made = PrepareQuestions(input=input, output=output, **options).run()
    return made.metadata


def _read(path):
    return [
        json.loads(line)
        for line in pathlib.Path(path).read_text().split("\n")[:-1]
    ]


@pytest.mark.parametrize("num_buckets", [10, 2, 3, 1 << 62, (1 << 63) - 1])
def test_the_hash_is_farmhash(monkeypatch, num_buckets):
    import tensorflow as tf

    # Several numbers of buckets tell all 64 bits.
    found = tf.strings.to_hash_bucket_fast(list(FINGERPRINTS), num_buckets)
    expected = [n % (1 << 64) % num_buckets for n in FINGERPRINTS.values()]
    assert found.numpy().tolist() == expected
    monkeypatch.setattr(question_sets, "_ORQA_BUCKETS", num_buckets)
    assert is_orqa_dev(list(FINGERPRINTS)) == [n == 0 for n in expected]


def test_split(tmp_path):
    assert question_sets._ORQA_BUCKETS == 10
    texts = [f"où est {number} ?" for number in range(200)]
    path = _write(
        tmp_path / "all.jsonl",
        *({"question": text, "answer": [text[-4:]]} for text in texts),
        {"question": f"  {texts[0].upper()}", "answer": ["x"]},
    )
    output = tmp_path / "split"
    report = prepare(path, str(output), form="jsonl", split="orqa")
    parts = {
        name: [line["question"] for line in _read(output / f"{name}.jsonl")]
        for name in ("train", "dev")
    }
    # Texts as they are, in their order.
    assert parts["train"] + parts["dev"] != texts
    expected = [*texts, f"  {texts[0].upper()}"]
    assert sorted(parts["train"] + parts["dev"]) == sorted(expected)
    for name, part in parts.items():
        assert part == [text for text in expected if text in part]
        assert set(is_orqa_dev(part)) == {name == "dev"}
        assert report["files"][f"{name}.jsonl"]["questions"] == len(part)


def test_counts_and_merging(tmp_path):
    evidence = {"title": "A", "sentence": "It is Rome."}
    path = _write(
        tmp_path / "set.jsonl",
        {"question": "who?", "answer": [" Ada\u00a0 L. ", "Ada L."], "id": 1},
        {"question": "who?", "answer": ["Bach", "Ada L."], "id": 2},
        {"question": "Who?", "answer": ["Rome"], "evidence": evidence},
        {"question": " \t", "answer": ["Rome"]},
        {"question": "where?"},
        {"question": "when?", "answer": ["", " "]},
        {
            "question": "who?",
            "answer": ["a b ", "(", "["],
            "answer_type": "regex",
        },
        {"text": "how?", "answers": ["so", ""]},
    )
    output = str(tmp_path / "out")
    report = prepare(path, output, form="jsonl")
    assert _read(f"{output}/questions.jsonl") == [
        {"question": "who?", "answer": ["Ada L.", "Bach"], "id": 1},
        {"question": "Who?", "answer": ["Rome"], "evidence": evidence},
        {
            "question": "who?",
            # Spaces of a pattern count.
            "answer": ["a b ", "(", "["],
            "answer_type": "regex",
        },
        {"question": "how?", "answer": ["so"]},
    ]
    expected = {
        "counts": {
            "read": 8,
            "kept": 4,
            "duplicate_question": 1,
            "empty_question": 1,
            "no_answer": 2,
        },
        "files": {"questions.jsonl": {"questions": 4, "answers": 7}},
    }
    assert {name: report[name] for name in expected} == expected
    assert report["parameters"]["inputs"] == ["set.jsonl"]
    # What is written is read, and making it again changes nothing.
    again = str(tmp_path / "again")
    asked = question_files.read_questions(f"{output}/questions.jsonl")
    assert [len(question.answers) for question in asked] == [2, 1, 3, 1]
    prepare(f"{output}/questions.jsonl", again, form="jsonl")
    assert (
        artifact.read(again, kind="questions")["fingerprint"]
        == report["fingerprint"]
    )


def test_files_are_read_in_order_of_their_names(tmp_path):
    second = tmp_path / "b.jsonl.bz2"
    second.write_bytes(bz2.compress(b'{"question": "b", "answer": "x"}\n'))
    first = tmp_path / "a.jsonl.gz"
    first.write_bytes(gzip.compress(b'{"question": "a", "answer": "x"}\n'))
    output = str(tmp_path / "out")
    prepare([str(second), str(tmp_path / "*.gz")], output, form="jsonl")
    asked = question_files.read_questions(f"{output}/questions.jsonl")
    assert [question.question for question in asked] == ["a", "b"]


def test_the_command(tmp_path, blocks_dir, capsys):
    nq = tmp_path / "nq.jsonl"
    texts = [f"what is {number}" for number in range(60)]
    lines = [{"question": text, "answer": ["The Moon"]} for text in texts]
    _write(nq, *lines, {"question": "no", "answer": []})
    dev = sum(is_orqa_dev(texts))
    output = str(tmp_path / "out")
    arguments = ["questions", "--from", "nq-open", "--input", str(nq)]
    arguments += ["--split", "orqa", "--blocks", blocks_dir]
    assert cli.main([*arguments, "--output", output]) == 0
    assert capsys.readouterr().out == (
        f"{output}: read 61, kept 60, no_answer 1\n"
        + "".join(
            f"  {name}.jsonl: questions {n}, answers {n}, "
            f"answer_in_blocks {n}\n"
            for name, n in (("train", 60 - dev), ("dev", dev))
        )
    )
    assert sorted(os.listdir(tmp_path)) == ["nq.jsonl", "out"]


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"form": "nq-open", "num_questions": 1}, "--num-questions is not for"),
        ({"form": "cloze", "corpus": "c"}, "--input is not for --from cloze"),
        ({"form": "kilt"}, "line 1 .* expected input and output"),
    ],
)
def test_bad_arguments_leave_nothing(tmp_path, options, reason):
    path = _write(tmp_path / "x.jsonl", {"question": "who?", "answer": ["x"]})
    with pytest.raises(InputError, match=reason):
        prepare(path, str(tmp_path / "out"), **options)
    assert os.listdir(tmp_path) == ["x.jsonl"]


def test_bad_input_leaves_nothing(tmp_path):
    output = str(tmp_path / "out")
    with pytest.raises(InputError, match="matches no file"):
        prepare(str(tmp_path / "*.jsonl"), output, form="jsonl")
    path = _write(tmp_path / "x.jsonl", {"question": "who?"})
    with pytest.raises(InputError, match="no question with an answer .read 1"):
        prepare(path, output, form="jsonl")
    path = _write(tmp_path / "x.jsonl", {"answer": ["x"]})
    with pytest.raises(InputError, match='line 1 lacks "question"'):
        prepare(path, output, form="jsonl")
    half = tmp_path / "half.json"
    half.write_text('[{"qText": "\\ud83d", "answers": ["x"]}]')
    with pytest.raises(InputError, match="entry 1 holds half of a surrogate"):
        prepare(str(half), output, form="webquestions")
    assert sorted(os.listdir(tmp_path)) == ["half.json", "x.jsonl"]
