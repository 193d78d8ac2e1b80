"""Readers of the hand-labelled sets: sentence boundaries, names and dates."""

import pathlib
import runpy

_BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
read_marked = runpy.run_path(str(_BENCHMARKS / "tagging.py"))["read_marked"]
LABELS = ("PER", "LOC", "ORG", "MISC", "DATE")


def read_passages(path) -> list[list[str]]:
    """Passages as lists of sentences.

    Args:
        path: str or path. One sentence a line, a blank line between passages.

    Returns:
        list of lists of str. A passage's text is its sentences joined by one
        space.
    """
    paragraphs = pathlib.Path(path).read_text(encoding="utf-8").split("\n\n")
    return [
        [line.strip() for line in paragraph.strip().splitlines()]
        for paragraph in paragraphs
        if paragraph.strip()
    ]
