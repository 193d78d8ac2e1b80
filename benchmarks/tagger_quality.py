"""Precision and recall of names and dates, against hand-labelled sentences.

    python benchmarks/tagger_quality.py [--tagger-model DIR]

The sentences are those of realm_tf/quickstart/names_and_dates.txt. A span is
right if both its ends are; labels other than dates are taken together, as the
rules do not tell persons from places. `rules` was written with these sentences
in sight; `bert` was not.
"""

import json

import labelled
import tyro

from realm_tf import quickstart
from realm_tf.artifacts import schema
from realm_tf.tagging import taggers


def main(*, tagger_model: str | None = None):
    """Measures the rules, and `bert` if there is a tagger model."""
    marked = labelled.read_marked(quickstart.NAMES_AND_DATES)
    result = {"sentences": len(marked), "rules": scores(marked, "rules")}
    if tagger_model:
        result["bert"] = scores(marked, "bert", tagger_model=tagger_model)
    return result


def scores(marked, name, **arguments):
    """Precision, recall and F1 of a tagger, dates and names apart."""
    tagger = taggers.make_tagger(name, **arguments)
    tagged = tagger.tag([_block(sentence) for sentence, _ in marked])
    found, expected = {}, {}
    for number, ((_, spans), block_spans) in enumerate(
        zip(marked, tagged, strict=True)
    ):
        for start, limit, label in spans:
            kind = "dates" if label == "DATE" else "names"
            expected.setdefault(kind, set()).add((number, start, limit))
        for start, limit, label in block_spans:
            kind = "dates" if label.lower() == "date" else "names"
            if label != "number":
                found.setdefault(kind, set()).add((number, start, limit))
    return {kind: _score(found[kind], expected[kind]) for kind in expected}


def _block(sentence):
    return schema.Block(0, "", "", sentence, "", [], sentence_starts=[0])


def _score(found, expected):
    right = len(found & expected)
    precision, recall = right / len(found), right / len(expected)
    return {
        "precision": round(precision, 4),
        "recall": round(recall, 4),
        "f1": round(2 * precision * recall / (precision + recall), 4),
        "spans": len(expected),
    }


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
