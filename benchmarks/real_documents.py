"""An organisation's own handbooks: how many questions are answered rightly.

    for name in debian-faq debian-handbook debian-policy developers-reference
    do apt-get download $name; dpkg -x ${name}_*.deb debian; done
    python benchmarks/real_documents.py --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --debian debian --output DIR

The documents are those of the Debian project (of Debian 12: policy 4.6.2.0,
reference 12.18, FAQ 11.1, handbook 11.20220922), which no one here has written and
nothing here was trained on: 171 files of HTML. The 270 questions were written for this by
a language model that had the documents, in words of its own. Answers that are
commands, paths, options, fields and such are told apart, by their marks: two fifths of all.
"""

import gzip
import json
import pathlib
import re
import shutil

import numpy as np
import own_documents
import tyro

import realm_tf as realm
from realm_tf.serving.servable import SavedModelServable
from realm_tf.text import answers

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


def main(
    *, model: str, debian: str, output: str, calibration: str | None = None
):
    """Makes the corpus below `output`, and asks."""
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
    right = np.array(
        [
            answers.exact_match(each.answer, accepted)
            for each, accepted in zip(found, wanted, strict=True)
        ]
    )
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
        "an answer is read": round(
            own_documents.held(found, wanted, 5) / len(rows), 3
        ),
        "above confidence 0.5": int(sure.sum()),
        "right of these": _share(right[sure]),
    }


def _share(are_so):
    return round(float(np.mean(list(are_so))), 3)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
