"""The embedded corpus, its questions, and the chain that runs on them."""

import pathlib

_HERE = pathlib.Path(__file__).parent

# A MediaWiki export written for this project.
CORPUS = str(_HERE / "wiki.xml.bz2")


def questions(split: str) -> str:
    """Path of the questions of a split: `"train"`, `"dev"` or `"test"`."""
    return str(_HERE / f"questions.{split}.jsonl")
