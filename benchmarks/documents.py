"""From documents to answers: the questions whose answer is right.

    python benchmarks/documents.py own --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --output DIR
    python benchmarks/documents.py real --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --debian debian --output DIR

Each makes a corpus below OUTPUT and asks its SavedModel.
"""

import gzip
import json
import pathlib
import re
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
_QUESTIONS = pathlib.Path(__file__).with_name("debian_questions.jsonl.gz")
# Folder to the files in it; every page of the FAQ is there twice.
_PARTS = {
    "developers-reference": "share/developers-reference/*.html",
    "faq": "share/doc/debian/FAQ/*.en.html",
    "handbook": "share/doc/debian-handbook/html/en-US/*.html",
    "policy": "share/doc/debian-policy/policy.html/*.html",
}
# Indexes, pictures, a licence, a list of changes, and all in one page.
_LEFT_OUT = {
    *("ap-flowcharts.html", "ap-license.html", "developers-reference.html"),
    *("genindex.html", "index.en.html", "index.html", "search.html"),
    "upgrading-checklist.html",
}
_AT_ONCE = 16
_IS_OF_CODE = re.compile(r"[/_$@<>#+]|^-|\.\w|\w-\w|::")
_SURE = 0.5


def own(
    *,
    model: str,
    output: str,
    calibration: str | None = None,
):
    """The handbook of an invented company, 60 documents of the tests.

    Asks its 40 questions, and 40 questions of the quick start that the handbook
    cannot answer; then 15 documents change. `area` is that under the ROC curve by
    which confidence separates both kinds: with calibration (`corpus`) and without
    (`shares`). `risk` is the area under the risk-coverage curve of all 80
    questions: the mean share of wrong answers among the most confident ones.
    `least risk` ranks all right answers first. Seconds are of whole commands, in
    this process.
    """
    root = pathlib.Path(output)
    documents = root / "documents"
    shutil.copytree(handbook.DOCUMENTS, documents)
    found = {}
    for name, chosen in (("shares", None), ("corpus", calibration)):
        create = realm.CreateCorpus(
            documents=str(documents),
            model=model,
            calibration=chosen,
            output=str(root / name),
        )
        found["create"] = _run(create)
        with SavedModelServable(str(root / name / "saved_model")) as servable:
            found[name] = _ask(servable)
    for path in sorted(documents.rglob("*.md"))[:_NUM_CHANGED]:
        with path.open("a") as file:
            file.write("\nChanged today, by Ola.\n")
    found["sync"] = _run(realm.SyncCorpus(corpus=str(root / "corpus")))
    print(json.dumps(found, indent=1))


def _run(operation):
    started = time.perf_counter()
    counts = operation.run()
    return {"seconds": round(time.perf_counter() - started, 1), **counts}


def _ask(servable):
    asked, wanted = zip(*handbook.read_questions(), strict=True)
    others = [
        question.question
        for question in Questions(quickstart.questions("test")).questions
    ][:: 322 // _NUM_UNANSWERABLE][:_NUM_UNANSWERABLE]
    own, other = servable.ask(asked), servable.ask(others)
    right = _are_right(own, wanted)
    # No answer to the other questions is right.
    every = [*zip(own, right, strict=True), *((each, False) for each in other)]
    return {
        "right": int(right.sum()),
        "in the first block": _num_held(own, wanted, 1),
        "in five blocks": _num_held(own, wanted, 5),
        "area": _area(own, other, "confidence"),
        "area of the score": _area(own, other, "score"),
        "risk": _risk((each.confidence, is_so) for each, is_so in every),
        "least risk": _risk((is_so, is_so) for _, is_so in every),
        "answered": sum(each.answered for each in own),
        "answered and right": sum(
            each.answered for each, is_so in every if is_so
        ),
        "answered of the others": sum(each.answered for each in other),
    }


def _are_right(found, wanted):
    return np.array(
        [
            answers.exact_match(each.answer, accepted)
            for each, accepted in zip(found, wanted, strict=True)
        ]
    )


def _num_held(found, wanted, num_blocks):
    """Questions with an answer in the first blocks."""
    texts = [
        [each.text for each in answer.candidates[:num_blocks]]
        for answer in found
    ]
    return sum(
        answers.AnswerFinder(read).first_rank(range(len(read)), accepted)
        is not None
        for read, accepted in zip(texts, wanted, strict=True)
    )


def _area(own, other, name):
    """Under the ROC curve: how often an own question has the higher value."""
    first, second = (
        np.array([getattr(each, name) for each in group])
        for group in (own, other)
    )
    differences = np.sign(first[:, None] - second)
    return round(float(np.mean(0.5 + differences / 2)), 3)


def _risk(every):
    """Area under the risk-coverage curve of (confidence, is right)."""
    ranked = sorted(every, key=lambda pair: pair[0], reverse=True)
    wrong = np.cumsum([not is_right for _, is_right in ranked])
    risk = np.mean(wrong / np.arange(1, len(ranked) + 1))
    return round(float(risk), 3)


def real(
    *, model: str, debian: str, output: str, calibration: str | None = None
):
    """The handbooks of the Debian project: 171 files of HTML, 270 questions.

    DEBIAN is a folder with the files of four packages of Debian 12:

        for name in debian-faq debian-handbook debian-policy developers-reference
        do apt-get download $name; dpkg -x ${name}_*.deb debian; done

    Their versions are: policy 4.6.2.0, reference 12.18, FAQ 11.1, handbook
    11.20220922. Nothing here was trained on them. A language model that had the
    documents wrote the questions in its own words. Answers that are commands,
    paths, options or fields (two fifths) are recognised by their marks and counted
    apart.
    """
    root = pathlib.Path(output)
    for folder, pattern in _PARTS.items():
        (root / "documents" / folder).mkdir(parents=True)
        for path in (pathlib.Path(debian) / "usr").glob(pattern):
            if path.name not in _LEFT_OUT:
                shutil.copy(path, root / "documents" / folder)
    counts = realm.CreateCorpus(
        documents=str(root / "documents"),
        model=model,
        calibration=calibration,
        output=str(root / "corpus"),
    ).run()
    with gzip.open(_QUESTIONS, "rt") as file:
        rows = [json.loads(line) for line in file]
    found = []
    with SavedModelServable(str(root / "corpus" / "saved_model")) as servable:
        for first in range(0, len(rows), _AT_ONCE):
            part = [row["question"] for row in rows[first : first + _AT_ONCE]]
            found += servable.ask(part)
    kinds = {
        "all": rows,
        "of code": [row for row in rows if _is_of_code(row)],
        "of words and numbers": [row for row in rows if not _is_of_code(row)],
    }
    answer_of = dict(zip((row["question"] for row in rows), found, strict=True))
    told = {
        kind: _figures(of_kind, [answer_of[row["question"]] for row in of_kind])
        for kind, of_kind in kinds.items()
    }
    print(json.dumps({"create": counts, **told}, indent=1))


def _is_of_code(row):
    return _IS_OF_CODE.search(row["answer"][0]) is not None


def _figures(rows, found):
    wanted = [row["answer"] for row in rows]
    right = _are_right(found, wanted)
    files = [
        [candidate.url.partition("#")[0] for candidate in each.candidates]
        for each in found
    ]
    named = [(row["file"], read) for row, read in zip(rows, files, strict=True)]
    sure = np.array([each.confidence >= _SURE for each in found])
    return {
        "questions": len(rows),
        "right": _share(right),
        "the document is first": _share(f in read[:1] for f, read in named),
        "the document is read": _share(f in read for f, read in named),
        "an answer is read": round(_num_held(found, wanted, 5) / len(rows), 3),
        "above confidence 0.5": int(sure.sum()),
        "right of these": _share(right[sure]),
    }


def _share(are_so):
    return round(float(np.mean(list(are_so))), 3)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"own": own, "real": real}, description=__doc__
    )
