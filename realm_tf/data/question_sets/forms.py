"""Readers of public question sets in the forms their authors publish.

Each takes a path and yields `Entry`; files may be compressed. Natural Questions
in full are read by `natural_questions`.
"""

import bisect
import json
import re
import urllib.parse
from collections.abc import Iterator

from realm_tf.articles import pages
from realm_tf.artifacts import question_files
from realm_tf.data.question_sets.entry import Entry
from realm_tf.errors import InputError
from realm_tf.text import sentences

# Which answers of NQ-open count: those of the annotators, or, in the test set
# of EfficientQA, also predictions that were judged definitely correct
# (google-research-datasets/natural-questions, nq_open/README.md).
ANSWER_FIELDS = ("answer", "answer_and_def_correct_predictions")

_OWN_KEYS = ("question", "answer", "answers", "answer_type")
# What SEMPRE writes: brackets, "quoted" with backslashes, bare words.
_LISP = re.compile(r'\s*(?:([()])|"((?:[^"\\]|\\.)*)"|([^\s()"]+))')
_OPEN, _CLOSE = ("(",), (")",)
_ESCAPED = re.compile(r"\\(.)")
_CONTROLS = {"n": "\n", "t": "\t"}


def read_jsonl(path: str) -> Iterator[Entry]:
    """The project's own form and DPR's ("answers"); further keys are kept.

    Args:
        path: str.

    Yields:
        `Entry`. Lines without an answer are dropped as `no_answer`.

    Raises:
        InputError: naming file and line, as `read_questions`.
    """
    questions = question_files.read_questions(path, need_answers=False)
    for number, question in enumerate(questions, start=1):
        yield Entry(
            place=f"{path}, question {number}",
            question=question.question,
            answers=list(question.answers),
            answer_type=question.answer_type,
            extra={
                name: value
                for name, value in question.line.items()
                if name not in _OWN_KEYS
            },
        )


def read_nq_open(path: str, *, answer_field: str = "answer") -> Iterator[Entry]:
    """NQ-open and EfficientQA as released.

    Args:
        path: str.
        answer_field: str. One of `ANSWER_FIELDS`. A file without the second
            is refused when it is asked for. Defaults to `"answer"`.

    Yields:
        `Entry`.

    Raises:
        InputError: naming file and question, if the field is missing.
    """
    for entry in read_jsonl(path):
        if answer_field != "answer":
            answers = entry.extra.get(answer_field)
            if not _is_strings(answers):
                raise InputError(
                    f"{entry.place} lacks {answer_field!r} (a list of "
                    "strings), which only the test set of EfficientQA has: "
                    "leave out --answer-field."
                )
            entry.answers = answers
        # The other lists of answers would be taken for part of the form.
        entry.extra = {}
        yield entry


def read_webquestions(path: str) -> Iterator[Entry]:
    """WebQuestions, as Berant et al. (2013) publish it or in brmson's form.

    Args:
        path: str. A JSON array of `{"utterance", "targetValue"}`, or of
            `{"qId", "qText", "answers"}`.

    Yields:
        `Entry`.

    Raises:
        InputError: naming file and entry, if one is of neither form.
    """
    for place, item in _read_array(path):
        if "utterance" in item or "targetValue" in item:
            question = _string(item, "utterance", place)
            target = _string(item, "targetValue", place)
            yield Entry(place, question, parse_descriptions(target, place))
        else:
            yield _brmson(item, place)


def read_curatedtrec(path: str) -> Iterator[Entry]:
    """CuratedTREC: regular expressions as answers.

    Args:
        path: str. brmson's TSV (id, type, question, pattern), brmson's JSON
            (as WebQuestions), or DrQA's JSONL (`question`, `answer`).

    Yields:
        `Entry`, all of type regex.

    Raises:
        InputError: naming file and line, if one is of another form.
    """
    first = _first_character(path)
    if first == "{":
        entries = read_jsonl(path)
    elif first == "[":
        entries = (_brmson(item, place) for place, item in _read_array(path))
    else:
        entries = _read_tsv(path)
    for entry in entries:
        entry.answer_type = "regex"
        yield entry


def read_squad(path: str) -> Iterator[Entry]:
    """SQuAD v1.1 and v2.0 as open questions, with their evidence.

    The evidence is the article's title and the sentence of the paragraph in
    which the first answer is marked, so that evaluation can tell whether that
    very sentence was retrieved. It is left out where the answer does not stand
    where the file says.

    Args:
        path: str. The JSON document.

    Yields:
        `Entry`. Unanswerable questions (v2.0) are dropped as `impossible`.

    Raises:
        InputError: naming file and question, if something is missing.
    """
    document = _read_json(path)
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise InputError(
            f'{path} has no list "data": expected a file of SQuAD, v1.1 or '
            "v2.0."
        )
    for number, article in enumerate(articles, start=1):
        place = f"{path}, article {number}"
        title = _title(_string(article, "title", place))
        for paragraph in _items(article, "paragraphs", place):
            context = _string(paragraph, "context", place)
            bounds = None
            for item in _items(paragraph, "qas", place):
                if bounds is None:
                    bounds = sentences.split(context)
                yield _squad_entry(item, place, title, context, bounds)


def _squad_entry(item, place, title, context, bounds):
    place = f"{place}, question {item.get('id')!r}"
    marked = _items(item, "answers", place)
    entry = Entry(
        place=place,
        question=_string(item, "question", place),
        answers=[_string(answer, "text", place) for answer in marked],
        extra={"id": item["id"]} if "id" in item else {},
        dropped="impossible" if item.get("is_impossible") else "",
    )
    if marked and not entry.dropped:
        sentence = _sentence(marked[0], context, bounds)
        if sentence:
            entry.extra["evidence"] = {"title": title, "sentence": sentence}
    return entry


def _sentence(answer, context, bounds):
    start, text = answer.get("answer_start"), answer["text"]
    if not isinstance(start, int) or start < 0:
        return ""
    if not text or not context.startswith(text, start):
        return ""
    starts = [first for first, _ in bounds]
    limits = [last for _, last in bounds]
    # An answer may go beyond its sentence: then it is all it touches.
    first = max(0, bisect.bisect_right(starts, start) - 1)
    last = bisect.bisect_left(limits, start + len(text))
    return context[starts[first] : limits[min(last, len(limits) - 1)]]


def _title(name):
    # "Fr%C3%A9d%C3%A9ric_Chopin", as in the URL of the page.
    return urllib.parse.unquote(name).replace("_", " ")


def parse_descriptions(text: str, place: str) -> list[str]:
    """The answers in SEMPRE's `(list (description "X") (description Y))`.

    Args:
        text: str.
        place: str. For messages.

    Returns:
        list of str.

    Raises:
        InputError: if it is no such list.

    Example:

    >>> parse_descriptions('(list (description "New York") (description X))', "")
    ['New York', 'X']
    """
    tokens, end = [], 0
    while match := _LISP.match(text, end):
        bracket, quoted, bare = match.groups()
        # A bracket is a tuple, so that a quoted "(" is none.
        word = bare if quoted is None else _unescape(quoted)
        tokens.append((bracket,) if bracket else word)
        end = match.end()
    head, inner, tail = tokens[:2], tokens[2:-1], tokens[2:][-1:]
    groups = [inner[n : n + 4] for n in range(0, len(inner), 4)]
    if (
        (head, tail) != ([_OPEN, "list"], [_CLOSE])
        or text[end:].strip()
        or not all(map(_is_description, groups))
    ):
        raise InputError(
            f'{place}: "targetValue" must be (list (description "...") ...). '
            f"Received: {text!r}"
        )
    return [answer for _, _, answer, _ in groups]


def _is_description(tokens):
    return (
        len(tokens) == 4
        and (tokens[0], tokens[1], tokens[3]) == (_OPEN, "description", _CLOSE)
        and isinstance(tokens[2], str)
    )


def _unescape(text):
    return _ESCAPED.sub(lambda m: _CONTROLS.get(m[1], m[1]), text)


def _brmson(item, place):
    question = _string(item, "qText", place)
    answers = item.get("answers")
    if not _is_strings(answers):
        raise InputError(f'{place} lacks "answers" (a list of strings).')
    extra = {"id": item["qId"]} if "qId" in item else {}
    return Entry(place, question, list(answers), extra=extra)


def _read_tsv(path):
    with pages.open_bytes(path) as file:
        for number, line in pages.read_lines(file, path):
            if not line.strip():
                continue
            columns = line.split("\t")
            if len(columns) != 4:
                raise InputError(
                    f"{path}, line {number} has {len(columns)} columns, "
                    "expected 4 with tabs between them: id, type, question "
                    "and pattern."
                )
            name, _, question, pattern = columns
            yield Entry(
                f"{path}, line {number}",
                question,
                [pattern],
                extra={"id": name},
            )


def _first_character(path):
    with pages.open_bytes(path) as file:
        for _, line in pages.read_lines(file, path):
            if line.strip():
                return line.strip()[0]
    return ""


def _read_json(path):
    with pages.open_bytes(path) as file:
        content = file.read()
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not one JSON document ({error}): fetch the file "
            "again, or read lines of JSON with --from jsonl."
        ) from error


def _read_array(path):
    document = _read_json(path)
    if not isinstance(document, list):
        raise InputError(f"{path} holds no JSON array of questions.")
    for number, item in enumerate(document, start=1):
        place = f"{path}, entry {number}"
        if not isinstance(item, dict):
            raise InputError(f"{place} is no JSON object.")
        yield place, item


def _string(item, name, place):
    value = item.get(name) if isinstance(item, dict) else None
    if not isinstance(value, str):
        raise InputError(f'{place} lacks "{name}" (a string).')
    return value


def _items(item, name, place):
    value = item.get(name)
    if not isinstance(value, list) or not all(
        isinstance(each, dict) for each in value
    ):
        raise InputError(f'{place} lacks "{name}" (a list of objects).')
    return value


def _is_strings(value):
    return isinstance(value, list) and all(isinstance(v, str) for v in value)
