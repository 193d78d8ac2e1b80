"""Questions and answers: files, and batches for training."""

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable

from realm_tf.articles import pages
from realm_tf.artifacts.directory import File
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.text.answers import ENGLISH
from realm_tf.text.answers import base_language
from realm_tf.text.packing import pad

ANSWER_TYPES = ("string", "regex")
# Questions of `about`, the words of one, and the blocks that are looked at for
# others; our choice.
NUM_ABOUT = 16
_NUM_LOOKED_AT = 1000
_NUM_WORDS = 8
# Wordpieces of `[CLS] question [SEP]`; longer questions are cut. 32 in the
# original's reader; a longer limit costs nothing, since rows are padded to
# their bucket only.
MAX_QUERY_LENGTH = 64
# Upper limits of `[CLS] question [SEP]` for batches of similar length.
BUCKETS = (16, 24, 32, MAX_QUERY_LENGTH)

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Question:
    """One line of a questions file.

    Args:
        question: str.
        answers: tuple of str. Accepted answers, or patterns.
        answer_type: str. `"string"`, or `"regex"` as in CuratedTREC.
        line: dict. The whole line as it was read.
    """

    question: str
    answers: tuple[str, ...]
    answer_type: str = "string"
    line: dict = dataclasses.field(default_factory=dict, compare=False)

    @property
    def language(self) -> str:
        """Whose rules of `text.answers` compare answers: the line's
        `"language"`, or English."""
        return base_language(self.line.get("language", ENGLISH))

    @property
    def accepted(self) -> tuple[tuple[str, ...], str, str]:
        """Answers, type and language: what `text.answers` compares with."""
        return self.answers, self.answer_type, self.language

    def id_at(self, number: int) -> str:
        """The line's `"id"`, or BEIR's `"_id"`, or else `number`."""
        return str(self.line.get("id", self.line.get("_id", number)))


def about(blocks: Iterable[tuple[str, str]]) -> list[Question]:
    """Questions that an export is verified with where it is given none.

    Args:
        blocks: iterable of (title, text). Titles are asked for, or the first
            words of a text without one.

    Returns:
        list of `Question`, at most `NUM_ABOUT`, each another one.
    """
    found = {}
    for title, text in itertools.islice(blocks, _NUM_LOOKED_AT):
        found[title.strip() or " ".join(text.split()[:_NUM_WORDS])] = None
        if len(found) == NUM_ABOUT:
            break
    return [Question(each, answers=()) for each in found]


class Questions(File):
    """A JSONL file of questions, read once.

    Args:
        path: str or path. The file; `.gz` and `.bz2` are read as they are.
    """

    what = "Questions file"

    @functools.cached_property
    def questions(self) -> list:
        """`Question` of each line; see `read_questions`."""
        return read_questions(self.path)

    def __len__(self):
        return len(self.questions)

    def __iter__(self):
        return iter(self.questions)

    def __repr__(self):
        if not self.is_complete:
            return f"Questions({self.path!r}, not made yet)"
        return f"Questions({self.path!r}: {len(self)} questions)"


def read_questions(path: str, *, need_answers=True) -> list[Question]:
    """Reads a JSONL file of questions; gzip and bz2 are read as they are.

    Lines are `{"question": str, "answer": [str, ...]}` (or `"answers"`; one
    str is taken as a list of one), `"answer_type": "regex"` for patterns,
    `"evidence": {"title": str, "sentence": str}` where it is known which
    sentence of which article answers, `"language": "de"` where it is not English;
    further keys are kept. `"text"` will do
    for `"question"`. Blank lines are
    skipped.

    Args:
        path: str.
        need_answers: bool or `"key"`. Refuse a line without answers; with
            `"key"`, not one whose list is empty, which says that nothing
            answers the question. Defaults to `True`.

    Returns:
        list of `Question`.

    Raises:
        InputError: naming file and line, if the file cannot be read, a line
            is not JSON or lacks something.
    """
    questions = []
    for number, text in _lines(path):
        if not text.strip():
            continue
        where = f"{path}, line {number}"
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where} is not JSON ({error}): "
                'expected {"question": "...", "answer": ["..."]}.'
            ) from error
        questions.append(to_question(line, where, need_answers=need_answers))
    if not questions:
        raise InputError(f"{path} holds no question.")
    return questions


def _lines(path):
    if not Path(path).exists():
        raise InputError(f"Questions file {path} does not exist.")
    with pages.open_bytes(path) as file:
        yield from pages.read_lines(file, path)


def to_question(line, where: str, *, need_answers=True) -> Question:
    """A line of a questions file, checked.

    Args:
        line: dict. See `read_questions`.
        where: str. Its place, for messages.
        need_answers: bool or `"key"`. See `read_questions`.

    Raises:
        InputError: if the line lacks something.
    """
    if _SURROGATE.search(json.dumps(line, ensure_ascii=False)):
        raise InputError(
            f"{where} holds half of a surrogate pair, which is no "
            "character: expected \\u escapes in pairs."
        )
    # A BEIR folder's queries.jsonl has "text".
    text = (
        line.get("question", line.get("text")) if isinstance(line, dict) else 0
    )
    if not isinstance(text, str):
        raise InputError(
            f'{where} lacks "question" (a string): expected '
            '{"question": "...", "answer": ["..."]}.'
        )
    answers = line.get("answer", line.get("answers", []))
    answers = [answers] if isinstance(answers, str) else answers
    if not isinstance(answers, list) or not all(
        isinstance(answer, str) for answer in answers
    ):
        raise InputError(f'{where}: "answer" must be a list of strings.')
    is_said = need_answers == "key" and {"answer", "answers"} & line.keys()
    if need_answers and not answers and not is_said:
        raise InputError(f'{where} lacks "answer" (a list of strings).')
    answer_type = line.get("answer_type", "string")
    if answer_type not in ANSWER_TYPES:
        raise InputError(
            f'{where}: "answer_type" must be one of {ANSWER_TYPES}. '
            f"Received: {answer_type!r}"
        )
    evidence = line.get("evidence")
    if evidence is not None and not (
        isinstance(evidence, dict)
        and isinstance(evidence.get("title"), str)
        and isinstance(evidence.get("sentence"), str)
    ):
        raise InputError(
            f'{where}: "evidence" must be {{"title": "...", "sentence": "..."}}.'
        )
    return Question(text, tuple(answers), answer_type, line)


def answer_wordpieces(answers, tokenizer, *, max_length: int):
    """The wordpieces of each answer as they would stand in a block.

    A leading a/an/the, which evaluation ignores, is dropped. An answer of
    nothing but [UNK] is left out: any unknown word would be right.

    Args:
        answers: list of str.
        tokenizer: `Tokenizer`.
        max_length: int. Answers of more wordpieces are left out: no span can
            be that wide.

    Returns:
        list of lists of int, without repetitions.
    """
    found = {}
    for answer in answers:
        words = answer.split()
        if len(words) > 1 and words[0].lower() in ("a", "an", "the"):
            words = words[1:]
        ids = tuple(tokenizer.tokenize(" ".join(words)).ids)
        if 0 < len(ids) <= max_length and set(ids) != {tokenizer.unk_id}:
            found[ids] = None
    return [list(ids) for ids in found]


def query_wordpieces(question: str, tokenizer) -> list[int]:
    """`[CLS] question [SEP]`, cut to `MAX_QUERY_LENGTH`."""
    ids = tokenizer.tokenize(question).ids[: MAX_QUERY_LENGTH - 2]
    return [tokenizer.cls_id, *ids, tokenizer.sep_id]


def batches_by_length(questions: list[str], tokenizer, batch_size: int):
    """Questions of like length together, so that little is padding.

    Args:
        questions: list of str. Those that ask nothing are left out.
        tokenizer: `Tokenizer`.
        batch_size: int. Questions of a batch, at most.

    Yields:
        `(places, rows)` of a batch: lists of int, the numbers of the
        questions, and of their `query_wordpieces`.
    """
    rows = [query_wordpieces(question, tokenizer) for question in questions]
    # Two special wordpieces only: nothing was asked.
    asked = [place for place, ids in enumerate(rows) if len(ids) > 2]
    order = sorted(asked, key=lambda place: len(rows[place]))
    for first in range(0, len(order), batch_size):
        places = order[first : first + batch_size]
        yield places, [rows[place] for place in places]


def pack_queries(rows: list[list[int]], pad_id: int, buckets=BUCKETS) -> dict:
    """`token_ids` and `padding_mask`, padded to the longest row's bucket."""
    longest = max(map(len, rows))
    length = next(limit for limit in buckets if longest <= limit)
    return {
        "token_ids": pad(rows, length, pad_id),
        "padding_mask": pad([[1] * len(ids) for ids in rows], length),
    }
