"""A company's handbook: from documents to answers, and after changes.

    python benchmarks/own_documents.py --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --output DIR

The handbook of the tests, 60 documents of many kinds, becomes a corpus, and 40
questions are asked; then 15 of its documents change. Besides, questions of the
quick start are asked, which the handbook cannot answer: how well confidence
tells these from the others is the area under the ROC curve, as calibrated and
as the share of the best span, and `answered` how many of both kinds are said to
be answered. The area under the risk-coverage curve of all 80 is the share of wrong
answers among the surest ones, as a mean over how many of these are given; at
best, with all right ones first, it is `least risk`. Seconds are of whole commands, in
this process.
"""

import dataclasses
import json
import pathlib
import shutil
import sys
import time

import numpy as np
import tyro

import realm_tf as realm
from realm_tf import quickstart
from realm_tf.artifacts.question_files import Questions
from realm_tf.serving.servable import SavedModelServable
from realm_tf.text import answers

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "support"))
import handbook

_NUM_CHANGED = 15
_NUM_UNANSWERABLE = 40


def main(
    *,
    model: str,
    output: str,
    calibration: str | None = None,
):
    """Makes the corpus below `output`, and asks."""
    root = pathlib.Path(output)
    documents = root / "documents"
    shutil.copytree(handbook.DOCUMENTS, documents)
    found = {}
    for name, chosen in (("shares", None), ("corpus", calibration)):
        started = time.perf_counter()
        counts = realm.CreateCorpus(
            documents=str(documents),
            model=model,
            calibration=chosen,
            output=str(root / name),
        ).run()
        seconds = time.perf_counter() - started
        found["create"] = {"seconds": round(seconds, 1), **counts}
        with SavedModelServable(str(root / name / "saved_model")) as servable:
            found[name], wrong = _ask(servable)
    found["wrong"] = wrong
    for path in sorted(documents.rglob("*.md"))[:_NUM_CHANGED]:
        with path.open("a") as file:
            file.write("\nChanged today, by Ola.\n")
    started = time.perf_counter()
    counts = realm.SyncCorpus(corpus=str(root / "corpus")).run()
    seconds = time.perf_counter() - started
    found["sync"] = {"seconds": round(seconds, 1), **counts}
    print(json.dumps(found, indent=1))


def _ask(servable):
    asked, wanted = zip(*handbook.read_questions(), strict=True)
    others = [
        question.question
        for question in Questions(quickstart.questions("test")).questions
    ][:: 322 // _NUM_UNANSWERABLE][:_NUM_UNANSWERABLE]
    own, other = servable.ask(asked), servable.ask(others)
    right = [
        answers.exact_match(each.answer, accepted)
        for each, accepted in zip(own, wanted, strict=True)
    ]
    found = {
        "right": sum(right),
        "in the first block": held(own, wanted, 1),
        "in five blocks": held(own, wanted, 5),
        "area": round(_area(own, other, "confidence"), 3),
        "area of the score": round(_area(own, other, "score"), 3),
        "risk": round(_risk(own, right, other), 3),
        "least risk": round(_mean_risk(sorted(_all(right, other))), 3),
        "answered": sum(each.answered for each in own),
        "answered and right": sum(
            each.answered and is_right
            for each, is_right in zip(own, right, strict=True)
        ),
        "answered of what cannot be": sum(e.answered for e in other),
    }
    wrong = [
        {"question": question, "wanted": accepted, "found": each.answer}
        for each, is_right, question, accepted in zip(
            own, right, asked, wanted, strict=True
        )
        if not is_right
    ]
    return found, wrong


def held(own, wanted, num_blocks):
    """Questions with an answer in the first blocks."""
    return sum(
        answers.AnswerFinder(
            [each.text for each in answer.candidates[:num_blocks]]
        ).first_rank(range(min(num_blocks, len(answer.candidates))), accepted)
        is not None
        for answer, accepted in zip(own, wanted, strict=True)
    )


def _area(own, other, name):
    """Under the ROC curve: how often the first kind has more."""
    first, second = (
        np.array([dataclasses.asdict(each)[name] for each in group])
        for group in (own, other)
    )
    differences = np.sign(first[:, None] - second)
    return float(np.mean(0.5 + differences / 2))


def _all(right, other):
    """Whether each answer is wrong: those of the others are."""
    return [not each for each in right] + [True for _ in other]


def _risk(own, right, other):
    """Under the risk-coverage curve, the most confident answers first."""
    confidences = [each.confidence for each in (*own, *other)]
    wrong = np.array(_all(right, other))
    return _mean_risk(wrong[np.argsort(confidences)[::-1]])


def _mean_risk(wrong):
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
