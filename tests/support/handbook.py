"""The handbook of an invented company: 60 documents and 40 questions."""

import json
import pathlib

_FOLDER = pathlib.Path(__file__).parents[1] / "testdata" / "handbook"
# Markdown, HTML, plain text, CSV and PDF.
DOCUMENTS = _FOLDER / "documents"


def read_questions() -> list[tuple[str, list[str]]]:
    """Each question with its accepted answers."""
    lines = (_FOLDER / "questions.jsonl").read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return [(row["question"], row["answer"]) for row in rows]
