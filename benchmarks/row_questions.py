"""Questions about the rows of tables, made of a corpus alone.

Blocks tell tables row by row, as `articles.table_rows.table_lines`. A cell of a
row is the answer, another one that tells this row from the others says which row is
meant, and the answer's header what of it: whoever finds the answer has found the
row, the column, and where a cell ends.
"""

import collections
import itertools
import random
import re
from collections.abc import Iterable
from collections.abc import Iterator

from realm_tf.artifacts import schema

# What is asked of a cell: {header} of the row that {row} tells.
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
# How often the first column says which row is meant, and not another one.
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
    num_questions: int,
    seed: int = 0,
) -> Iterator[dict]:
    """Questions about rows, evenly drawn; their spans are not read.

    Args:
        passages: iterable of `schema.AnnotatedPassage`.
        num_questions: int. At most this many.
        seed: int. Defaults to `0`.

    Yields:
        dict in the form of a questions file: `question`, `answer` and
        `evidence`.
    """
    generator = random.Random(seed)
    found = []
    for passage in passages:
        of_passage = list(_of_passage(passage, generator))
        generator.shuffle(of_passage)
        found += of_passage[:_OF_A_PASSAGE]
    generator.shuffle(found)
    asked = collections.Counter()
    # Counted as they are drawn, so that a long table is drawn from evenly.
    drawn = (
        question
        for question in found
        if _count(asked, question["evidence"]["title"]) <= _OF_AN_ARTICLE
    )
    yield from itertools.islice(drawn, num_questions)


def _count(counter, key):
    counter[key] += 1
    return counter[key]


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
    """Reads a line of `articles.table_rows.table_lines`: header and text of cells.

    Args:
        line: str. One sentence.

    Returns:
        list; empty if it tells no row, or one of a single cell.

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
