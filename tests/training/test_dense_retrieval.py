import json
import os

import numpy as np
import pytest

from realm_tf.errors import InputError
from realm_tf.operations.fine_tune import FineTune

# Of the questions of the tiny world.
COUNTS = {
    "questions": 8,
    "dropped_evidence_in_no_block": 0,
    "dropped_no_answer_retrieved": 0,
    "positives_of_evidence": 0,
    "without_hard_negative": 3,
}
DEV = [
    {"question": "Where was Ada in 1843?", "answer": ["London"]},
    {"question": "What is red?", "answer": ["fire"]},
]


def _write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir, questions_path):
    root = tmp_path_factory.mktemp("dpr")
    return {
        "root": root,
        "model": model_dir,
        "blocks": blocks_dir,
        "questions": [questions_path],
        "dev": _write(root / "dev.jsonl", DEV),
    }


def _train(world, output, *changes, **given):
    """The history of a run, with what changes the recipe and the inputs."""
    arguments = {
        name: given.pop(name, world[name])
        for name in ("model", "blocks", "questions")
    } | given
    operation = FineTune(
        recipe="dpr_tiny", set=changes, output=str(output), **arguments
    )
    return operation.run(verbose=0).metadata


@pytest.mark.slow
def test_without_dev_it_learns_its_questions(world, tmp_path):
    changes = ("num_epochs=40", "dropout=0", "batch_size=4")
    metadata = _train(world, tmp_path / "model", *changes)
    rows = metadata["history"]
    assert set(rows[0]) == {"loss", "accuracy", "rank"}
    # Epochs of two steps go up and down.
    loss, accuracy, rank = (
        np.array([row[name] for row in rows])
        for name in ("loss", "accuracy", "rank")
    )
    assert loss[-10:].mean() < 0.5 * loss[:2].mean()
    assert accuracy[-10:].mean() > accuracy[:2].mean() + 0.25
    assert rank[-10:].mean() < rank[:2].mean() - 1
    assert "best_step" not in metadata
    assert set(metadata["parents"]) == {"blocks", "model", "questions 0"}


@pytest.mark.slow
def test_files_are_mixed_and_what_is_dropped_is_told(world, tmp_path, capsys):
    more = [
        # Its evidence holds the answer, but is no block that BM25 puts first.
        {
            "question": "What is the river of Rome?",
            "answer": ["brown"],
            "evidence": {
                "title": "Rome",
                "sentence": "The water of the Tiber is brown.",
            },
        },
        {
            "question": "Where was Ada?",
            "answer": ["London"],
            "evidence": {"title": "Ada", "sentence": "Not in the corpus."},
        },
        {"question": "Where was Ada?", "answer": ["Leipzig"]},
    ]
    paths = [*world["questions"], _write(tmp_path / "more.jsonl", more)]
    metadata = _train(
        world, tmp_path / "model", "num_epochs=1", questions=paths
    )
    told = capsys.readouterr().err
    assert (
        "2 of 11 questions to learn from are dropped: 1 have no answer in "
        "BM25's best blocks, 1 name evidence that no block holds." in told
    )
    assert metadata["counts"] == COUNTS | {
        "questions": 11,
        "dropped_evidence_in_no_block": 1,
        "dropped_no_answer_retrieved": 1,
        "positives_of_evidence": 1,
        "questions_an_epoch": 9,
        "steps": 3,
    }


def test_questions_that_no_block_answers_are_refused(world, tmp_path):
    nowhere = [{"question": "Where was Ada?", "answer": ["Leipzig"]}]
    nowhere = _write(tmp_path / "nowhere.jsonl", nowhere)
    output = tmp_path / "out" / "model"
    with pytest.raises(InputError, match="1 of 1 questions to learn from"):
        _train(world, output, questions=[nowhere])
    with pytest.raises(InputError, match="1 of 1 questions of --dev"):
        _train(world, output, dev=nowhere)
    assert not os.listdir(tmp_path / "out")
