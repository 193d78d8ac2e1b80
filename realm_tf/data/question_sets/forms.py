"""Readers of public question sets in the forms their authors publish.

Each takes a path and yields `Entry`; files may be compressed. What a reader
does not find where it belongs is an `InputError` that names file and place.
"""

import contextlib
import json
import re
import urllib.parse
from collections.abc import Iterator

from realm_tf.articles import pages
from realm_tf.artifacts import question_files
from realm_tf.data.question_sets import natural_questions
from realm_tf.data.question_sets.merging import Entry
from realm_tf.errors import InputError
from realm_tf.text import sentences

# Which answers of NQ-open count: those of the annotators, or, in the test set
# of EfficientQA, also predictions that were judged definitely correct
# (google-research-datasets/natural-questions, nq_open/README.md).
ANSWER_FIELDS = ("answer", "answer_and_def_correct_predictions")

_OWN_KEYS = ("question", "answer", "answers", "answer_type")
# What SEMPRE writes: brackets, "quoted" with backslashes, bare words.
_DESCRIPTION = r'\(\s*description(?:\s*"((?:[^"\\]|\\.)*)"|\s+([^\s()"]+))\s*\)'
_DESCRIPTIONS = re.compile(rf"\s*\(\s*list(?:\s*{_DESCRIPTION})*\s*\)\s*")
_ESCAPED = re.compile(r"\\(.)")
_CONTROLS = {"n": "\n", "t": "\t"}


def read_jsonl(path: str) -> Iterator[Entry]:
    """The project's own form and DPR's ("answers"); further keys are kept.

    Lines without an answer have none, too.
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
    """
    for entry in read_jsonl(path):
        if answer_field != "answer":
            expected = (
                f"{answer_field!r}, which only the test set of EfficientQA "
                "has: leave out --answer-field"
            )
            with _of_form(entry.place, expected):
                entry.answers = entry.extra[answer_field]
        # The other lists of answers would be taken for part of the form.
        entry.extra = {}
        yield entry


def read_webquestions(path: str) -> Iterator[Entry]:
    """WebQuestions, as Berant et al. (2013) publish it or in brmson's form."""
    expected = (
        'an array of {"utterance", "targetValue": (list (description "...") '
        '...)} or {"qId", "qText", "answers"}'
    )
    with _of_form(path, expected):
        items = enumerate(_read_json(path), start=1)
    for number, item in items:
        place = f"{path}, entry {number}"
        with _of_form(place, expected):
            if "utterance" in item:
                answers = parse_descriptions(item["targetValue"])
                yield Entry(place, item["utterance"], answers)
            else:
                extra = {"id": item["qId"]} if "qId" in item else {}
                yield Entry(place, item["qText"], item["answers"], extra=extra)


def read_curatedtrec(path: str) -> Iterator[Entry]:
    """CuratedTREC: regular expressions as answers.

    Args:
        path: str. brmson's TSV (id, type, question, pattern), brmson's JSON
            (as WebQuestions), or DrQA's JSONL (`question`, `answer`).
    """
    first = next((line.strip()[0] for _, line in _read_lines(path)), "")
    read = {"{": read_jsonl, "[": read_webquestions}.get(first, _read_tsv)
    for entry in read(path):
        entry.answer_type = "regex"
        yield entry


def _read_tsv(path):
    for place, line in _read_lines(path):
        with _of_form(place, "id, type, question and pattern, tabs between"):
            name, _, question, pattern = line.split("\t")
        yield Entry(place, question, [pattern], extra={"id": name})


def read_squad(path: str) -> Iterator[Entry]:
    """SQuAD v1.1 and v2.0 as open questions, with their evidence.

    The evidence is the article's title and the sentence of the paragraph in
    which the first answer is marked, so that evaluation can tell whether that
    very sentence was retrieved. It is left out where the answer does not stand
    where the file says. Unanswerable questions (v2.0) are dropped as
    `impossible`.
    """
    expected = "a document of SQuAD, v1.1 or v2.0"
    with _of_form(path, expected):
        articles = enumerate(_read_json(path)["data"], start=1)
    for number, article in articles:
        place = f"{path}, article {number}"
        with _of_form(place, expected):
            # "Fr%C3%A9d%C3%A9ric_Chopin", as in the URL of the page.
            title = urllib.parse.unquote(article["title"]).replace("_", " ")
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                bounds = sentences.split(context)
                for item in paragraph["qas"]:
                    yield _squad_entry(item, place, title, context, bounds)


def _squad_entry(item, place, title, context, bounds):
    marked = item["answers"]
    entry = Entry(
        place=f"{place}, question {item.get('id')!r}",
        question=item["question"],
        answers=[answer["text"] for answer in marked],
        extra={"id": item["id"]} if "id" in item else {},
        dropped="impossible" if item.get("is_impossible") else "",
    )
    if marked and not entry.dropped:
        sentence = _sentence(marked[0], context, bounds)
        if sentence:
            entry.extra["evidence"] = {"title": title, "sentence": sentence}
    return entry


def _sentence(answer, context, bounds):
    start, text = answer.get("answer_start", -1), answer["text"]
    if start < 0 or not text or not context.startswith(text, start):
        return ""
    # An answer may go beyond its sentence: then it is all it touches.
    limit = start + len(text)
    first = max((s for s, _ in bounds if s <= start), default=bounds[0][0])
    last = min((s for _, s in bounds if s >= limit), default=bounds[-1][1])
    return context[first:last]


def read_natural_questions(
    path: str, *, max_answer_tokens: int = natural_questions.MAX_ANSWER_TOKENS
) -> Iterator[Entry]:
    """Natural Questions in full, as published (v1.0) or simplified.

    Args:
        path: str.
        max_answer_tokens: int. Of a span, tags counted. Defaults to `5`.
    """
    expected = (
        'an example of Natural Questions: "question_text", "annotations" and '
        '"document_html" or "document_text"'
    )
    for place, line in _read_lines(path):
        with _of_form(place, expected):
            yield natural_questions.entry(
                json.loads(line), place, max_answer_tokens
            )


def read_kilt(path: str) -> Iterator[Entry]:
    """KILT's question answering tasks (facebookresearch/KILT).

    Each `output` with an `answer` gives one; the pages that they were found on,
    `provenance`, are kept by their titles.
    """
    expected = '"input" and "output", a list of {"answer", "provenance"}'
    for place, line in _read_lines(path):
        with _of_form(place, expected):
            row = json.loads(line)
            outputs = row["output"]
            titles = dict.fromkeys(
                page["title"]
                for output in outputs
                for page in output.get("provenance", [])
                if page.get("title")
            )
            yield Entry(
                place,
                row["input"],
                [each["answer"] for each in outputs if "answer" in each],
                extra={"id": row["id"], "titles": list(titles)},
            )


def read_flashrag(path: str) -> Iterator[Entry]:
    """The question sets of FlashRAG (RUC-NLPIR/FlashRAG)."""
    expected = '"id", "question" and "golden_answers", a list of strings'
    for place, line in _read_lines(path):
        with _of_form(place, expected):
            row = json.loads(line)
            yield Entry(
                place,
                row["question"],
                list(row["golden_answers"]),
                extra={"id": row["id"]},
            )


def parse_descriptions(text: str) -> list[str]:
    """The answers in SEMPRE's `(list (description "X") (description Y))`.

    Raises:
        ValueError: if it is no such list.

    Example:

    >>> parse_descriptions('(list (description "New York") (description X))')
    ['New York', 'X']
    """
    if not _DESCRIPTIONS.fullmatch(text):
        raise ValueError(text)
    return [
        bare or _ESCAPED.sub(lambda m: _CONTROLS.get(m[1], m[1]), quoted)
        for quoted, bare in re.findall(_DESCRIPTION, text)
    ]


def _read_lines(path):
    """Place and text of each line that is not blank."""
    with pages.open_bytes(path) as file:
        for number, line in pages.read_lines(file, path):
            if line.strip():
                yield f"{path}, line {number}", line


def _read_json(path):
    with pages.open_bytes(path) as file:
        content = file.read()
    return json.loads(content.decode("utf-8-sig"))


@contextlib.contextmanager
def _of_form(place, expected):
    """What is missing or of another type is an error that names its place."""
    try:
        yield
    except InputError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(
            f"{place} is not of the form that --from says "
            f"({type(error).__name__}: {error}): expected {expected}."
        ) from error
