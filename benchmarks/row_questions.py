"""Questions about the rows of tables, made of a corpus alone.

Blocks hold each row as a sentence of `articles.table_rows.table_lines`. One cell is
the answer. The question names its header, and another cell that only this row has.
To answer, a reader must find the row, the column and the end of a cell.
"""

import collections
import json
import pathlib
import random
import re
from collections.abc import Iterable

from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Passages

# {header} of the cell, {row}: a cell that only this row has.
_FORMS = (
    "what is the {header} of {row}",
    "what is the {header} for {row}",
    "what is {row}'s {header}",
    "what {header} does {row} have",
    "which {header} has {row}",
    "{header} of {row}",
    "{row} {header}",
)
_FORMS_OF_NUMBERS = (
    *_FORMS,
    "how much is the {header} of {row}",
    "how high is the {header} of {row}",
    "how many {header} does {row} have",
)
# All numbers below are our choices.
# Characters; longer headers are sentences with a colon.
_MAX_HEADER = 40
_MAX_ANSWER_WORDS = 6
_MAX_ROW_WORDS = 8
# How often the first column names the row.
_BY_FIRST = 0.6
# How often a question is in lower case, and names the article.
_LOWERED = 0.5
_TITLED = 0.3
# Questions of a passage, and of an article: some tables are long.
_OF_A_PASSAGE = 8
_OF_AN_ARTICLE = 120
_NUMBER = re.compile(r"[^\w\s]?\d[\d.,]*\s?(%|\w{1,4})?")


def make_row_questions(
    passages: Iterable[schema.AnnotatedPassage],
    *,
    num_questions: int = 26_000,
    seed: int = 0,
) -> list[dict]:
    """Draws questions about rows evenly; the spans are not used.

    Args:
        passages: iterable of `schema.AnnotatedPassage`.
        num_questions: int. At most this many. Defaults to `26000`.
        seed: int. Defaults to `0`.

    Returns:
        list of dict in the form of a questions file: `question`, `answer` and
        `evidence`.
    """
    generator = random.Random(seed)
    found = []
    for passage in passages:
        of_passage = list(_of_passage(passage, generator))
        generator.shuffle(of_passage)
        found += of_passage[:_OF_A_PASSAGE]
    generator.shuffle(found)
    # Counted as they are drawn, so that a long table is drawn from evenly.
    kept, asked = [], collections.Counter()
    for question in found:
        title = question["evidence"]["title"]
        asked[title] += 1
        if asked[title] <= _OF_AN_ARTICLE:
            kept.append(question)
    return kept[:num_questions]


def _of_passage(passage, generator):
    content = passage.text.encode("utf-8")
    sentences = [
        content[start:limit].decode()
        for start, limit in zip(
            passage.sentence_byte_start,
            passage.sentence_byte_limit,
            strict=True,
        )
    ]
    rows = [(each, table_cells(each)) for each in sentences]
    rows = [(sentence, cells) for sentence, cells in rows if len(cells) > 1]
    # How many rows have a cell.
    common = collections.Counter(
        cell for _, cells in rows for cell in set(cells)
    )
    for sentence, cells in rows:
        names = [
            cell
            for cell in cells
            if common[cell] == 1
            and not _NUMBER.fullmatch(cell[1])
            and len(cell[1]) > 2
            and len(cell[1].split()) <= _MAX_ROW_WORDS
        ]
        if not names:
            continue
        for cell in cells:
            is_by_first = generator.random() < _BY_FIRST
            name = names[0] if is_by_first else generator.choice(names)
            answer = cell[1]
            if name != cell and _can_be_asked(answer, name[1]):
                yield {
                    "question": _question(
                        cell, name[1], passage.title, generator
                    ),
                    "answer": [answer],
                    "evidence": {"title": passage.title, "sentence": sentence},
                }


def _can_be_asked(answer, row):
    return (
        any(character.isalnum() for character in answer)
        and len(answer.split()) <= _MAX_ANSWER_WORDS
        and answer.lower() not in row.lower()
    )


def _question(cell, row, title, generator):
    header, answer = cell
    is_number = _NUMBER.fullmatch(answer)
    # "Area (km2)" is asked for as "area".
    header = re.sub(r"\s*\(.*?\)", "", header).lower() or header.lower()
    form = generator.choice(_FORMS_OF_NUMBERS if is_number else _FORMS)
    question = form.format(header=header, row=row)
    if generator.random() < _TITLED and title.lower() not in question.lower():
        question += f" in {title}"
    return question.lower() if generator.random() < _LOWERED else question


def table_cells(line: str) -> list[tuple[str, str]]:
    """Reads header and text of cells from `articles.table_rows.table_lines`.

    Args:
        line: str. One sentence.

    Returns:
        list; empty if the line is no row, or a row of one cell.

    Example:

    >>> table_cells("City: Oslo; Stay: 160 EUR.")
    [('City', 'Oslo'), ('Stay', '160 EUR')]
    >>> table_cells("He said: no.") + table_cells("We sell kettles; lids cost more.")
    []
    """
    cells = []
    for part in line.removesuffix(".").split("; "):
        header, found, cell = part.partition(": ")
        if not found or not cell or len(header) > _MAX_HEADER:
            return []
        cells.append((header, cell))
    return cells if len(cells) > 1 else []


def write(passages: Passages, path: str) -> None:
    """Writes questions about the rows of passages, one a line."""
    lines = [
        json.dumps(each, ensure_ascii=False) + "\n"
        for each in make_row_questions(passages.read())
    ]
    pathlib.Path(path).write_text("".join(lines), encoding="utf-8")
