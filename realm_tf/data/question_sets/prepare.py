"""From the questions of a set to its files, and what is said of these."""

import json
from collections.abc import Callable

from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError

# google-research/language, orqa/preprocessing/create_data_splits.py: the hash
# modulo 100,000, and that modulo 10.
_ORQA_BUCKETS = 10


def divide(questions: list[Question], split: str) -> dict[str, list[Question]]:
    """Name of each file to its questions.

    Args:
        questions: list of `Question`.
        split: str. `"orqa"` or `"none"`.

    Raises:
        InputError: if a file would have none.
    """
    if split == "none":
        return {"questions.jsonl": questions}
    parts = {"train.jsonl": [], "dev.jsonl": []}
    dev = is_orqa_dev([question.question for question in questions])
    for question, in_dev in zip(questions, dev, strict=True):
        parts["dev.jsonl" if in_dev else "train.jsonl"].append(question)
    for name, part in parts.items():
        if not part:
            raise InputError(
                f"--split orqa leaves {name} without a question: of "
                f"{len(questions)} in all. Use --split none."
            )
    return parts


def is_orqa_dev(questions: list[str]) -> list[bool]:
    """Whether ORQA puts a training question into its development set.

    Args:
        questions: list of str. As published, to the byte.

    Returns:
        list of bool: FarmHash Fingerprint64 of the UTF-8 bytes, modulo 10,
        is 0.

    References:
        google-research/language, orqa/preprocessing/create_data_splits.py.
        TensorFlow's `to_hash_bucket_fast` is that fingerprint modulo a number.
    """
    import tensorflow as tf

    buckets = tf.strings.to_hash_bucket_fast(questions, _ORQA_BUCKETS)
    return (buckets.numpy() == 0).tolist()


def lines(questions: list[Question]) -> str:
    """Questions as JSON, one a line."""
    return "".join(
        json.dumps(question.line, ensure_ascii=False) + "\n"
        for question in questions
    )


def report(
    parts: dict[str, list[Question]], find_answered: Callable | None
) -> dict:
    """What files of questions hold, and what two of them share.

    Args:
        parts: dict of file name to list of `Question`.
        find_answered: function of a list of `Question` that tells which of
            them some block answers. `None`: it is not asked.

    Returns:
        dict: `files`, for each `questions`, `answers` of all, `patterns`,
        `with_evidence` and perhaps `answer_in_blocks`, questions. If there is
        a dev.jsonl, `in_train_and_dev`: its questions that train.jsonl has,
        too, once case and white space are ignored.
    """
    found = {"files": {name: _statistics(part) for name, part in parts.items()}}
    if find_answered is not None:
        answered = find_answered([q for part in parts.values() for q in part])
        for name, part in parts.items():
            here, answered = answered[: len(part)], answered[len(part) :]
            found["files"][name]["answer_in_blocks"] = sum(here)
    if "dev.jsonl" in parts:
        train, dev = (
            [" ".join(each.question.casefold().split()) for each in part]
            for part in parts.values()
        )
        train = set(train)
        found["in_train_and_dev"] = sum(question in train for question in dev)
    return found


def _statistics(questions):
    return {
        "questions": len(questions),
        "answers": sum(len(question.answers) for question in questions),
        "patterns": sum(q.answer_type == "regex" for q in questions),
        "with_evidence": sum(bool(q.line.get("evidence")) for q in questions),
    }


def shown(counts: dict) -> str:
    """Counts with their names, on one line, those that are 0 left out."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n)
