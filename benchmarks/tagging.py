"""Precision and recall of the taggers, and the rate of `bert`.

    python benchmarks/tagging.py [--tagger-model DIR --blocks DIR]

The hand-labelled sentences are realm_tf/quickstart/names_and_dates.txt. A span is
correct if both ends are. All labels but dates count as one, because the rules do
not distinguish persons from places. The authors of `rules` saw these sentences;
`bert` did not. The rate is that of one process.
"""

import json
import pathlib
import re
import timeit

import tyro

from realm_tf import quickstart
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.tagging import taggers

# As one call of the pipeline.
_BLOCKS_PER_CALL = 64
_NUM_BLOCKS = 1_000
_MARK = re.compile(r"\[([^\[\]|]+)\|([A-Z]+)\]")


def read_marked(path) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Sentences with their marked spans.

    Args:
        path: str or path. One sentence a line, spans as `[Vienna|LOC]`.

    Returns:
        list of `(sentence, spans)`; a span is `(start, limit, label)`, code
        points of the sentence without marks, the limit exclusive, in order.
    """
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [_parse(line) for line in lines if line.strip()]


def _parse(line):
    sentence, spans, done = "", [], 0
    for match in _MARK.finditer(line):
        sentence += line[done : match.start()]
        done = match.end()
        text, label = match.groups()
        spans.append((len(sentence), len(sentence) + len(text), label))
        sentence += text
    return sentence + line[done:], spans


def main(*, tagger_model: str | None = None, blocks: str | None = None):
    """Measures the rules, and `bert` if there is a tagger model.

    Args:
        tagger_model: directory of `realm train-tagger`.
        blocks: directory of `realm chunk`, for the rate.
    """
    marked = read_marked(quickstart.NAMES_AND_DATES)
    tagger = taggers.make_tagger("rules")
    found = {"sentences": len(marked), "rules": _scores(marked, tagger)}
    if tagger_model:
        tagger = taggers.make_tagger("bert", tagger_model=tagger_model)
        found["bert"] = _scores(marked, tagger)
        if blocks:
            found["rate"] = _rate(blocks, tagger)
    return found


def _scores(marked, tagger):
    """Precision and recall, dates and names apart."""
    tagged = tagger.tag([_block(sentence) for sentence, _ in marked])
    found, expected = {}, {}
    for number, ((_, spans), block_spans) in enumerate(
        zip(marked, tagged, strict=True)
    ):
        for kept, those in ((expected, spans), (found, block_spans)):
            for start, limit, label in those:
                kind = "dates" if label.lower() == "date" else "names"
                if label != "number":
                    kept.setdefault(kind, set()).add((number, start, limit))
    return {
        kind: {
            "precision": len(found[kind] & spans) / len(found[kind]),
            "recall": len(found[kind] & spans) / len(spans),
        }
        for kind, spans in expected.items()
    }


def _block(sentence):
    return schema.Block(0, "", "", sentence, "", [], sentence_starts=[0])


def _rate(directory, tagger):
    """Sentences a second of blocks from the whole corpus."""
    known = Blocks(directory)
    step = max(1, known.num_blocks // _NUM_BLOCKS)
    blocks = list(known.read())[::step]

    def tag():
        for first in range(0, len(blocks), _BLOCKS_PER_CALL):
            tagger.tag(blocks[first : first + _BLOCKS_PER_CALL])

    sentences = sum(len(block.sentence_starts) for block in blocks)
    return {
        "sentences_per_second": sentences / timeit.timeit(tag, number=1),
        "sentences_per_block": sentences / len(blocks),
    }


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
