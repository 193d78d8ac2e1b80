import bz2
import gzip
import json

import pytest

from realm_tf.artifacts import question_files
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError


def _file(tmp_path, *lines):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


GOOD = '{"question": "who?", "answer": ["Ada"]}'


def test_lines_are_kept_whole(tmp_path):
    line = {
        "id": 17,
        # U+2028 is a line separator, but ends no line of JSON.
        "question": "Où est\u2028le café ?",
        "answer": "Paris",
        "source": ["x", None],
    }
    path = _file(tmp_path, "", json.dumps(line, ensure_ascii=False), "  ", GOOD)
    first, second = question_files.read_questions(path)
    assert first.question == "Où est\u2028le café ?"
    # One string is a list of one.
    assert first.answers == ("Paris",)
    assert first.answer_type == "string"
    assert first.line == line
    assert second.answers == ("Ada",)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_files_are_told_by_content(tmp_path, compress):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(compress(f"\ufeff{GOOD}\r\n{GOOD}".encode()))
    questions = question_files.read_questions(str(path))
    assert questions == [Question("who?", ("Ada",))] * 2


def test_a_line_may_say_that_nothing_answers(tmp_path):
    path = _file(tmp_path, GOOD, '{"question": "why?", "answer": []}')
    questions = question_files.read_questions(str(path), need_answers="key")
    assert questions == [Question("who?", ("Ada",)), Question("why?", ())]
    path = _file(tmp_path, GOOD, '{"question": "why?"}')
    with pytest.raises(InputError, match='line 2 lacks "answer"'):
        question_files.read_questions(str(path), need_answers="key")


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"question": "who?"', "not JSON"),
        ('["who?"]', 'lacks "question"'),
        ('{"answer": ["Ada"]}', 'lacks "question"'),
        ('{"question": "who?"}', 'lacks "answer"'),
        ('{"question": "who?", "answer": []}', 'lacks "answer"'),
        ('{"question": "who?", "answer": [1]}', '"answer" must be a list'),
        (GOOD[:-1] + ', "answer_type": "date"}', '"answer_type" must be'),
        ('{"question": "\\ud83d?", "answer": ["x"]}', "surrogate"),
        ('{"question": "who?", "answer": ["\\udc4d"]}', "surrogate"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, reason):
    path = _file(tmp_path, GOOD, "", line, GOOD)
    with pytest.raises(InputError) as caught:
        question_files.read_questions(path)
    assert f"{path}, line 3" in str(caught.value)
    assert reason in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="missing.jsonl does not exist"):
        question_files.read_questions(str(tmp_path / "missing.jsonl"))
    with pytest.raises(InputError, match="cannot be read .no regular file"):
        question_files.read_questions(str(tmp_path))
    with pytest.raises(InputError, match="questions.jsonl holds no question"):
        question_files.read_questions(_file(tmp_path, "", "  "))
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD.encode() * 50)[:-9])
    with pytest.raises(InputError, match="questions.jsonl.gz is truncated"):
        question_files.read_questions(str(path))


def _ids(tokenizer, text):
    return [tokenizer.vocabulary.index(piece) for piece in text.split()]


def test_answers_as_they_stand_in_a_block(tokenizer):
    found = question_files.answer_wordpieces(
        ["The Tiber", "tiber", "an  Organ.", "The", "numbers", "", "x?"],
        tokenizer,
        max_length=2,
    )
    assert found == [
        _ids(tokenizer, "tiber"),
        _ids(tokenizer, "organ ."),
        # Alone, an article is the answer.
        _ids(tokenizer, "the"),
        _ids(tokenizer, "number ##s"),
        # An unknown word beside a known one is kept ...
        _ids(tokenizer, "[UNK] ?"),
    ]


def test_answers_that_teach_nothing_are_left_out(tokenizer):
    # ... alone, it would be any unknown word.
    found = question_files.answer_wordpieces(
        ["x", "x y", "city of Rome"], tokenizer, max_length=2
    )
    assert found == []


def test_a_query_is_cut_to_its_longest(tokenizer):
    ids = question_files.query_wordpieces("Who wrote numbers?", tokenizer)
    assert ids == _ids(tokenizer, "[CLS] who wrote number ##s ? [SEP]")
    assert question_files.query_wordpieces("", tokenizer) == _ids(
        tokenizer, "[CLS] [SEP]"
    )
    ids = question_files.query_wordpieces("the " * 200, tokenizer)
    assert ids == _ids(tokenizer, "[CLS] " + "the " * 62 + "[SEP]")


def _row(length):
    return [2, *range(100, 98 + length), 3]


@pytest.mark.parametrize(
    "longest, bucket",
    [(2, 16), (16, 16), (17, 24), (24, 24), (25, 32), (33, 64), (64, 64)],
)
def test_queries_are_padded_to_their_bucket(longest, bucket):
    rows = [_row(2), _row(longest)]
    packed = question_files.pack_queries(rows, 9)
    assert packed["token_ids"].dtype == packed["padding_mask"].dtype == "int32"
    assert packed["token_ids"].tolist() == [
        row + [9] * (bucket - len(row)) for row in rows
    ]
    assert packed["padding_mask"].tolist() == [
        [1] * len(row) + [0] * (bucket - len(row)) for row in rows
    ]
