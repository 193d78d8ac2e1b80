"""Draws the questions of `systems.py --suite table1` from larger files.

    python benchmarks/sample_questions.py --questions DIR --corpus FILE --output DIR

DIR has NAME.train.jsonl.gz, NAME.dev.jsonl.gz and NAME.test.jsonl.gz of nq_open,
squad_open, webquestions and curatedtrec: lines of `realm questions` with
"answer_in_corpus" and, where known, "gold_passage_id" and "gold_seen_in_train".
FILE is the corpus, JSON lines with "id" and "title". The gold passage of a question
becomes its "evidence". The output has

- train.jsonl and dev.jsonl, whose answers the corpus holds;
- NAME.jsonl, test questions that share no gold passage with a training question;
- squad_untitled.jsonl, test questions whose gold passage has no title. No other
  file has such questions;
- further_dev.jsonl, further questions of dev: those of nq_open, and 300 of
  squad_open whose gold passage no training question shares;
- all.jsonl, all training questions whose answer the corpus holds, with those of
  nq_open_extra; quarter.jsonl, every fourth of them.
"""

import json
import pathlib
import random
import sys

import runs
import tyro

from realm_tf.text import answers
from realm_tf.text import sentences

# Of train and dev; nq_open has 1,308 and 333.
_NUM_TRAIN = {
    "nq_open": 1308,
    "squad_open": 3300,
    "webquestions": 300,
    "curatedtrec": 300,
}
_NUM_DEV = {
    "nq_open": 80,
    "squad_open": 60,
    "webquestions": 30,
    "curatedtrec": 30,
}
_NUM_TEST = 500
_NUM_FURTHER_SQUAD = 300
_UNTITLED = "squad_untitled"


def main(
    *, questions: pathlib.Path, corpus: pathlib.Path, output: pathlib.Path
):
    """Draws the questions and writes them."""
    passages = {row["id"]: row for row in runs.read_rows(corpus)}
    untitled = {
        name for name, row in passages.items() if not row["title"].strip()
    }

    def draw(name, split, number, keep):
        """Some of a file's questions that are to be kept, in its order."""
        rows = runs.read_rows(questions / f"{name}.{split}.jsonl.gz")
        rows = [row for row in rows if keep(row)]
        kept = random.Random(f"{name}.{split}").sample(
            range(len(rows)), min(number, len(rows))
        )
        return [rows[n] for n in sorted(kept)]

    def titled(row):
        return row.get("gold_passage_id") not in untitled

    def answered(row):
        return row["answer_in_corpus"] and titled(row)

    files = {"train": [], "dev": []}
    for name in _NUM_TRAIN:
        files["train"] += draw(name, "train", _NUM_TRAIN[name], answered)
        files["dev"] += draw(name, "dev", _NUM_DEV[name], answered)
    for name in _NUM_TRAIN:
        files[name] = draw(
            name,
            "test",
            _NUM_TEST,
            lambda row: titled(row) and not row.get("gold_seen_in_train"),
        )
    files[_UNTITLED] = draw(
        "squad_open", "test", _NUM_TEST, lambda row: not titled(row)
    )
    squad = [
        row
        for row in runs.read_rows(questions / "squad_open.dev.jsonl.gz")
        if not row["gold_seen_in_train"]
    ]
    random.Random(1).shuffle(squad)
    further = runs.read_rows(questions / "nq_open.dev.jsonl.gz")
    further += squad[:_NUM_FURTHER_SQUAD]
    files["further_dev"] = [row for row in further if row not in files["dev"]]
    files["all"] = [
        row
        for name in (*_NUM_TRAIN, "nq_open_extra")
        for row in draw(name, "train", sys.maxsize, answered)
    ]
    files["quarter"] = files["all"][::4]
    output.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        with open(output / f"{name}.jsonl", "w") as file:
            file.writelines(
                f"{json.dumps({**row, **_evidence(row, passages)})}\n"
                for row in rows
            )
        print(f"{name:<20}{len(rows):>6}")


def _evidence(row, passages):
    """The first sentence of the gold passage that holds an answer."""
    passage = passages.get(row.get("gold_passage_id"))
    if passage is None:
        return {}
    text = passage["text"]
    found = [text[first:limit] for first, limit in sentences.split(text)]
    rank = answers.AnswerFinder(found).first_rank(
        range(len(found)), row["answers"], row["answer_type"]
    )
    if rank is None:
        return {}
    evidence = {"title": passage["title"], "sentence": found[rank - 1]}
    return {"evidence": evidence}


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
