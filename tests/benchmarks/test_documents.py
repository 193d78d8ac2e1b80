"""What is asked of documents from Debian, and how answers are counted."""

import gzip
import json

import documents

from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate


def test_questions_and_near_misses_are_of_a_corpus_each():
    with gzip.open(documents._QUESTIONS, "rt") as file:
        rows = [json.loads(line) for line in file]
    assert len({row["question"] for row in rows}) == len(rows)
    counts = {}
    for row in rows:
        (corpus,) = (
            name
            for name, (_, parts) in documents._CORPORA.items()
            if row["file"].partition("/")[0] in parts
        )
        is_near = row.get("near_miss", False)
        assert bool(row["answer"]) != is_near
        kind = corpus, is_near
        counts[kind] = counts.get(kind, 0) + 1
    assert counts == {
        ("handbooks", False): 270,
        ("handbooks", True): 36,
        ("rsyslog", False): 32,
        ("rsyslog", True): 36,
        ("gnucash", False): 32,
        ("gnucash", True): 36,
    }


def _answer(text, confidence, *files, answered=True):
    read = tuple(
        Candidate(0, "", f"It is in {file}.", "", 0.0, f"{file}#part")
        for file in files
    )
    return Answer(
        text,
        score=1.0,
        confidence=confidence,
        block_id=0,
        title="",
        text="",
        url="",
        start=0,
        limit=0,
        nbest=(),
        candidates=read,
        answered=answered,
    )


def test_report(tmp_path):
    asked = [
        {"question": "1", "answer": ["a.md"], "file": "a.md"},
        {"question": "2", "answer": ["b.md", "c.md"], "file": "b.md"},
        {"question": "3", "answer": ["d.md"], "file": "d.md"},
        {"question": "4", "answer": ["e.md"], "file": "e.md"},
        {"question": "5", "answer": [], "file": "a.md", "near_miss": True},
        {"question": "6", "answer": [], "file": "a.md", "near_miss": True},
        {"question": "7", "answer": ["b.md"], "file": "b", "near_miss": True},
    ]
    found = [
        _answer("A.md", 0.9, "a.md", "b.md"),
        _answer("c.md", 0.2, "a.md", "b.md", answered=False),
        _answer("x", 0.95, "a.md", "b.md"),
        _answer("x", 0.1, "e.md"),
        _answer("x", 0.3, "a.md"),
        _answer("x", 0.1, "a.md", answered=False),
        # Another document has it.
        _answer("b.md", 0.8, "c.md"),
    ]
    path = tmp_path / "answers.jsonl"
    told = documents.report(asked, found, path)
    # 0.9 and 0.2 against 0.3 and 0.1, then against 0.95 and 0.1 too.
    assert told == {
        "questions": 4,
        "right": 0.5,
        "document first": 0.5,
        "document read": 0.75,
        "answer read": 0.75,
        "near misses": 2,
        "refused": 0.5,
        "right refused": 0.5,
        "area": 0.75,
        "area with wrong": 0.625,
    }
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["given"] for line in lines] == [each.answer for each in found]
    assert lines[1]["is_right"] and lines[1]["files"] == ["a.md", "b.md"]
    assert documents.table({"x": {"questions": 4, "area": 0.75}}) == (
        "|  | questions | area |\n| --- | --- | --- |\n| x | 4 | 0.75 |"
    )


def test_where_nothing_is_right_there_is_no_area(tmp_path):
    asked = [{"question": "1", "answer": ["a"], "file": "a.md"}]
    told = documents.report(asked, [_answer("x", 0.9, "b.md")], tmp_path / "x")
    assert told["right"] == 0.0
    assert told["area"] is told["refused"] is told["right refused"] is None
