"""The embedded corpus, its questions, and the chain that runs on them."""

import pathlib

_HERE = pathlib.Path(__file__).parent

# A MediaWiki export written for this project.
CORPUS = str(_HERE / "wiki.xml.bz2")
# One sentence a line, a blank line between passages.
SENTENCE_BOUNDARIES = str(_HERE / "sentence_boundaries.txt")
# One sentence a line, spans as `[Vienna|LOC]`.
NAMES_AND_DATES = str(_HERE / "names_and_dates.txt")


def questions(split: str) -> str:
    """Path of the questions of a split: `"train"`, `"dev"` or `"test"`."""
    return str(_HERE / f"questions.{split}.jsonl")
