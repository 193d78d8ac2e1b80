"""Fits a calibration to answers over several corpora, each left out once.

    python benchmarks/confidence.py --model DIR --answers A/answers.jsonl B/answers.jsonl

MODEL comes with a calibration, with which it has answered: documents.py and
organisations.py wrote the files, one for each corpus. Prints the calibration that is
fitted to all of them, and a line of a table for each corpus: the area under the ROC
curve of the reader's score, right answers against near misses; the share of near misses
that is refused where 5 % of its own right answers are lost; and the shares of both that
are refused by a calibration of the other corpora.
"""

import dataclasses
import json
import pathlib

import documents
import numpy as np
import scipy.special
import tyro

from realm_tf.answering import calibration
from realm_tf.artifacts.objects import Model


def leave_one_out(scores, is_right, is_answerable, groups) -> dict:
    """What a calibration of other groups is worth, for each group.

    Args:
        scores: float array `(num,)`. The reader's, of the best span each.
        is_right: bool array `(num,)`.
        is_answerable: bool array `(num,)`. False for near misses.
        groups: array `(num,)` of str. Of at least two names.

    Returns:
        dict of a name to dict of figures.
    """
    told = {}
    for name in np.unique(groups):
        own = groups == name
        fitted, alone = (
            calibration.fit_scores(
                scores[rows],
                is_right[rows],
                is_answerable=is_answerable[rows],
                groups=groups[rows],
            )
            for rows in (~own, own)
        )
        right = scores[own & is_right].tolist()
        near = scores[own & ~is_answerable].tolist()
        kept = np.quantile(right, calibration.LOST, method="lower")
        told[str(name)] = {
            "right": len(right),
            "near misses": len(near),
            "area": documents.area(right, near),
            "refused at 5 % lost": round(
                float(np.mean(np.less(near, kept))), 3
            ),
            "refused": _refused(fitted, near),
            "right refused": _refused(fitted, right),
            "refused by its own": _refused(alone, near),
        }
    return told


def _refused(fitted, scores):
    given = fitted.confidence(scores) >= calibration.least_confidence(fitted)
    return round(float(np.mean(~given)), 3)


def main(*, model: str, answers: tuple[str, ...]):
    """Fits to files of answers.

    Args:
        model: that answered, with its calibration.
        answers: answers.jsonl of each corpus; its folder is its name.
    """
    known = calibration.for_model(None, Model(model), "hybrid")
    rows = [
        {**row, "group": pathlib.Path(path).parent.name}
        for path in answers
        for row in map(json.loads, pathlib.Path(path).read_text().splitlines())
        # What another document answers is no near miss.
        if row["given"] and not (row["is_right"] and row.get("near_miss"))
    ]
    logits = scipy.special.logit([row["confidence"] for row in rows])
    arrays = {
        "scores": (logits - known.bias) / known.weight,
        "is_right": np.array([row["is_right"] for row in rows]),
        "is_answerable": np.array([not row.get("near_miss") for row in rows]),
        "groups": np.array([row["group"] for row in rows]),
    }
    fitted = calibration.fit_scores(**arrays)
    print(json.dumps(dataclasses.asdict(fitted)))
    print(documents.table(leave_one_out(**arrays)))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
