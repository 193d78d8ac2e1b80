"""Readers of public question sets in the forms their authors publish.

`FORMS` says where each form keeps questions and answers. `read` yields lines of
this project's own form, with the place of each for messages.
"""

import contextlib
import json
import re
import urllib.parse
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

from realm_tf.articles import pages
from realm_tf.artifacts import question_files
from realm_tf.errors import InputError
from realm_tf.text import sentences

# SEMPRE writes brackets, "quoted" with backslashes, bare words.
_DESCRIPTION = r'\(\s*description(?:\s*"((?:[^"\\]|\\.)*)"|\s+([^\s()"]+))\s*\)'
_DESCRIPTIONS = re.compile(rf"\s*\(\s*list(?:\s*{_DESCRIPTION})*\s*\)\s*")
_ESCAPED = re.compile(r"\\(.)")
_CONTROLS = {"n": "\n", "t": "\t"}
_READ_KEYS = {"question", "text", "answer", "answers"}


def read(path: str, form: str) -> Iterator[tuple[str, dict]]:
    """The questions of a file.

    Args:
        path: str. May be compressed.
        form: str. One of `FORMS`.

    Yields:
        `(place, line)`: the place for messages; `question`, `answer` (a list,
        perhaps empty) and what else is kept.

    Raises:
        InputError: naming the place of what is not of the form.
    """
    found = FORMS[form]
    expected = " and ".join(
        " or ".join(keys) for keys in (found.question, found.answers)
    )
    for place, row in found.rows(path, expected):
        with _of_form(place, expected):
            answers = row[_first(found.answers, row)]
            line = {
                "question": row[_first(found.question, row)],
                "answer": found.to_answers(answers),
            }
            if found.is_pattern:
                line["answer_type"] = "regex"
            kept = found.kept
            if kept is None:
                kept = {key: key for key in row if key not in _READ_KEYS}
            line |= {k: row[v] for k, v in kept.items() if v in row}
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


def _own_rows(path, expected):
    questions = question_files.read_questions(path, need_answers=False)
    for number, each in enumerate(questions, start=1):
        row = {"question": each.question, "answer": list(each.answers)}
        yield f"{path}, question {number}", {**each.line, **row}


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
    except (
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
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
        bare or _ESCAPED.sub(lambda m: _CONTROLS.get(m[1], m[1]), quoted)
        for quoted, bare in re.findall(_DESCRIPTION, text)
    ]


class Form(NamedTuple):
    """Where a form keeps a question and its answers.

    Args:
        question: tuple of str. Keys of the question; the first that a row has
            counts.
        answers: tuple of str. Keys of the answers, in the same way.
        kept: dict. Our key to the key of what else is kept; `None` keeps all.
            Defaults to the id.
        to_answers: function of the value of the answers that gives a list of
            str. Defaults to the value itself.
        rows: function of a path and of the expected keys that yields
            `(place, row)`. Defaults to JSON, JSONL and TSV.
        is_pattern: bool. Whether answers are regular expressions. Defaults to
            `False`.
    """

    question: tuple[str, ...]
    answers: tuple[str, ...]
    kept: dict[str, str] | None = {"id": "id"}
    to_answers: Callable = lambda value: value
    rows: Callable = _rows
    is_pattern: bool = False


FORMS = {
    "nq-open": Form(("question",), ("answer",), {}),
    # The test set of EfficientQA, with predictions that were judged correct
    # (google-research-datasets/natural-questions, nq_open/README.md).
    "efficientqa": Form(
        ("question",), ("answer_and_def_correct_predictions",), {}
    ),
    # As Berant et al. (2013) publish it, or brmson's JSON.
    "webquestions": Form(
        ("utterance", "qText"),
        ("targetValue", "answers"),
        {"id": "qId"},
        parse_descriptions,
    ),
    # brmson's TSV or JSON, or DrQA's JSONL.
    "curatedtrec": Form(
        ("question", "qText"), ("answer", "answers"), is_pattern=True
    ),
    "squad": Form(
        ("question",),
        ("answers",),
        {"id": "id", "evidence": "evidence"},
        lambda marked: [each["text"] for each in marked],
        _squad_rows,
    ),
    "kilt": Form(
        ("input",),
        ("output",),
        to_answers=lambda outputs: [
            each["answer"] for each in outputs if "answer" in each
        ],
    ),
    "flashrag": Form(("question",), ("golden_answers",)),
    # The project's own form, or DPR's ("answers").
    "jsonl": Form(("question",), ("answer",), None, rows=_own_rows),
}
