"""Public question sets, made questions files of this project.

`FORMS` maps the fields that authors publish. `read` yields lines of this
project's own form, `merge` checks them, `divide` and `report` make files.
"""

import collections
import contextlib
import dataclasses
import json
import re
import urllib.parse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from realm_tf.articles import pages
from realm_tf.artifacts import question_files
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.text import sentences

# google-research/language, orqa/preprocessing/create_data_splits.py: the hash
# modulo 100,000, and that modulo 10.
_ORQA_BUCKETS = 10
_READ_KEYS = {"question", "text", "answer", "answers"}
# SEMPRE writes brackets, "quoted" with backslashes as in JSON, bare words.
_DESCRIPTION = r'\(\s*description(?:\s*("(?:[^"\\]|\\.)*")|\s+([^\s()"]+))\s*\)'
_DESCRIPTIONS = re.compile(rf"\s*\(\s*list(?:\s*{_DESCRIPTION})*\s*\)\s*")


def read(path: str, form: str) -> Iterator[tuple[str, dict]]:
    """The questions of a file.

    Args:
        path: str. May be compressed.
        form: str. One of `FORMS`.

    Yields:
        `(place, line)`: the place for messages; `question`, `answer` (a list,
        perhaps empty), `id` and `evidence` if there are any. Lines of the form
        `"jsonl"` are as in the file.

    Raises:
        InputError: naming the place of what is not of the form.
    """
    found = FORMS[form]
    if found is None:
        yield from _rows(path, "question and answer")
        return
    expected = " and ".join(map(" or ".join, (found.question, found.answers)))
    for place, row in found.rows(path, expected):
        with _of_form(place, expected):
            line = {
                "question": row[_first(found.question, row)],
                "answer": found.to_answers(row[_first(found.answers, row)]),
                **{key: row[key] for key in ("id", "evidence") if key in row},
            }
        if found.is_pattern:
            line["answer_type"] = "regex"
        yield place, line


def _first(keys, row):
    return next((key for key in keys if key in row), keys[-1])


def _rows(path, expected):
    """The rows of a JSON array, of JSONL, or of CuratedTREC's TSV."""
    with pages.open_bytes(path) as file:
        # After the mark of UTF-8 and white space.
        first = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        file.seek(0)
        if first == b"[":
            with _of_form(path, expected):
                rows = json.load(file)
            for number, row in enumerate(rows, start=1):
                yield f"{path}, entry {number}", row
            return
        for number, text in pages.read_lines(file, path):
            if not text.strip():
                continue
            place = f"{path}, line {number}"
            with _of_form(place, expected):
                if first == b"{":
                    row = json.loads(text)
                else:
                    name, _, question, pattern = text.split("\t")
                    row = {"id": name, "question": question}
                    row["answer"] = [pattern]
            yield place, row


def _squad_rows(path, expected):
    """SQuAD's questions, each with its evidence.

    The evidence is the article's title and the sentence of the paragraph that
    holds the first marked answer, so that evaluation can tell whether this
    sentence was retrieved. It is left out where the answer is not at its mark.
    """
    with pages.open_bytes(path) as file, _of_form(path, expected):
        articles = json.load(file)["data"]
    for number, article in enumerate(articles, start=1):
        place = f"{path}, article {number}"
        with _of_form(place, expected):
            # "Fr%C3%A9d%C3%A9ric_Chopin", as in the URL of the page.
            title = urllib.parse.unquote(article["title"]).replace("_", " ")
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                bounds = sentences.split(context)
                for row in paragraph["qas"]:
                    sentence = _sentence(row["answers"], context, bounds)
                    if sentence:
                        evidence = {"title": title, "sentence": sentence}
                        row = {**row, "evidence": evidence}
                    yield f"{place}, question {row.get('id')!r}", row


def _sentence(marked, context, bounds):
    if not marked:
        return ""
    start, text = marked[0].get("answer_start", -1), marked[0]["text"]
    if start < 0 or not text or not context.startswith(text, start):
        return ""
    # An answer may go beyond its sentence: then it is all it touches.
    limit = start + len(text)
    first = max((s for s, _ in bounds if s <= start), default=bounds[0][0])
    last = min((s for _, s in bounds if s >= limit), default=bounds[-1][1])
    return context[first:last]


@contextlib.contextmanager
def _of_form(place, expected):
    """Turns errors of missing keys and of other types into an `InputError`."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{place} is not of the form that --from names "
            f"({type(error).__name__}: {error}): expected {expected}."
        ) from error


def parse_descriptions(text: str | list) -> list[str]:
    """The answers in SEMPRE's `(list (description "X") (description Y))`.

    Args:
        text: str. A list is returned as it is.

    Raises:
        ValueError: if it is no such list.

    Example:

    >>> parse_descriptions('(list (description "New York") (description X))')
    ['New York', 'X']
    """
    if isinstance(text, list):
        return text
    if not _DESCRIPTIONS.fullmatch(text):
        raise ValueError(text)
    return [
        bare or json.loads(quoted)
        for quoted, bare in re.findall(_DESCRIPTION, text)
    ]


class Form(NamedTuple):
    """Where a form keeps a question and its answers.

    Args:
        question: tuple of str. Keys of the question; the first that a row has
            counts.
        answers: tuple of str. Keys of the answers, in the same way.
        to_answers: function of the value of the answers that gives a list of
            str. Defaults to the value itself.
        rows: function of a path and of the expected keys that yields
            `(place, row)`. Defaults to JSON, JSONL and TSV.
        is_pattern: bool. Whether answers are regular expressions. Defaults to
            `False`.
    """

    question: tuple[str, ...]
    answers: tuple[str, ...]
    to_answers: Callable = lambda value: value
    rows: Callable = _rows
    is_pattern: bool = False


FORMS = {
    "nq-open": Form(("question",), ("answer",)),
    # The test set of EfficientQA, with predictions that were judged correct
    # (google-research-datasets/natural-questions, nq_open/README.md).
    "efficientqa": Form(("question",), ("answer_and_def_correct_predictions",)),
    # As Berant et al. (2013) publish it, or brmson's JSON.
    "webquestions": Form(
        ("utterance", "qText"), ("targetValue", "answers"), parse_descriptions
    ),
    # brmson's TSV or JSON, or DrQA's JSONL.
    "curatedtrec": Form(
        ("question", "qText"), ("answer", "answers"), is_pattern=True
    ),
    "squad": Form(
        ("question",),
        ("answers",),
        lambda marked: [each["text"] for each in marked],
        _squad_rows,
    ),
    "kilt": Form(
        ("input",),
        ("output",),
        lambda outputs: [
            each["answer"] for each in outputs if "answer" in each
        ],
    ),
    "flashrag": Form(("question",), ("golden_answers",)),
    # This project's own form, or DPR's ("answers"); see `to_question`.
    "jsonl": None,
}


def merge(
    read: Iterable[tuple[str, dict]], language: str | None = None
) -> tuple[list[Question], dict[str, int]]:
    """Checks lines; those of the same question and type become one.

    The first one's further keys are kept, and the answers of all, each once.

    Args:
        read: iterable of `(place, line)`; see `forms.read`.
        language: str. Code of their language. Defaults to `None`: the lines
            keep theirs.

    Returns:
        list of `Question`, in the order of the first lines; counts of
        questions.

    Raises:
        InputError: if question or answers are no text.
    """
    counts = collections.Counter(read=0, kept=0)
    # (question, type): (the first one, the answers of all as keys).
    kept = {}
    for place, line in read:
        counts["read"] += 1
        question = question_files.to_question(line, place, need_answers=False)
        is_pattern = question.answer_type == "regex"
        found = [
            a if is_pattern else " ".join(a.split()) for a in question.answers
        ]
        accepted = [answer for answer in found if answer.strip()]
        if not question.question.strip() or not accepted:
            counts[
                "no_answer" if question.question.strip() else "empty_question"
            ] += 1
            continue
        key = (question.question, question.answer_type)
        counts["duplicate_question" if key in kept else "kept"] += 1
        _, united = kept.setdefault(key, (question, {}))
        united.update(dict.fromkeys(accepted))
    questions = []
    for first, united in kept.values():
        line = {"question": first.question, "answer": list(united)}
        line |= {k: v for k, v in first.line.items() if k not in _READ_KEYS}
        if language:
            line["language"] = language
        questions.append(
            dataclasses.replace(first, answers=tuple(united), line=line)
        )
    return questions, dict(counts)


def divide(questions: list[Question], split: str) -> dict[str, list[Question]]:
    """Name of each file to its questions.

    Args:
        questions: list of `Question`.
        split: str. `"orqa"` or `"none"`.
    """
    if split == "none":
        return {"questions.jsonl": questions}
    parts = {"train.jsonl": [], "dev.jsonl": []}
    dev = is_orqa_dev([question.question for question in questions])
    for question, in_dev in zip(questions, dev, strict=True):
        parts["dev.jsonl" if in_dev else "train.jsonl"].append(question)
    return parts


def is_orqa_dev(questions: list[str]) -> list[bool]:
    """Whether ORQA puts a training question into its development set.

    Args:
        questions: list of str. As published, to the byte.

    Returns:
        list of bool: FarmHash Fingerprint64 of the UTF-8 bytes, modulo 10,
        is 0.

    References:
        google-research/language, orqa/preprocessing/create_data_splits.py.
        TensorFlow's `to_hash_bucket_fast` is that fingerprint modulo a number.
    """
    import tensorflow as tf

    buckets = tf.strings.to_hash_bucket_fast(questions, _ORQA_BUCKETS)
    return (buckets.numpy() == 0).tolist()


def report(
    parts: dict[str, list[Question]], answered: Collection[Question] | None
) -> dict:
    """Counts of the questions of each file.

    Args:
        parts: dict of file name to list of `Question`.
        answered: set of `Question`. Those that some block answers. `None` if
            no block was searched.

    Returns:
        dict of file name to dict: `questions`, `answers` of all and, if blocks
        were searched, `answer_in_blocks`.
    """
    found = {}
    for name, part in parts.items():
        found[name] = counts = {
            "questions": len(part),
            "answers": sum(len(each.answers) for each in part),
        }
        if answered is not None:
            counts["answer_in_blocks"] = sum(each in answered for each in part)
    return found


def lines(questions: Iterable[dict]) -> str:
    """Lines of questions as JSONL."""
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in questions
    )


def shown(counts: dict) -> str:
    """Counts with their names, on one line, those that are 0 left out."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n)
