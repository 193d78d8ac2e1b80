"""From the lines that readers give to files of questions."""

import collections
import dataclasses
import json
from collections.abc import Collection
from collections.abc import Iterable

from realm_tf.artifacts import question_files
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.text import answers

# google-research/language, orqa/preprocessing/create_data_splits.py: the hash
# modulo 100,000, and that modulo 10.
_ORQA_BUCKETS = 10


def merge(
    read: Iterable[tuple[str, dict]],
) -> tuple[list[Question], dict[str, int], dict[str, int]]:
    """Checks lines; those of the same question and type become one.

    The first one's further keys are kept, and the answers of all, each once.

    Args:
        read: iterable of `(place, line)`; see `forms.read`.

    Returns:
        list of `Question`, in the order of the first lines; counters of
        questions and of answers.

    Raises:
        InputError: if question or answers are no text.
    """
    counts = collections.Counter(read=0, kept=0)
    answer_counts = collections.Counter()
    # (question, type): (the first one, the answers of all as keys).
    kept = {}
    for place, line in read:
        counts["read"] += 1
        question = question_files.to_question(line, place, need_answers=False)
        is_pattern = question.answer_type == "regex"
        found = [
            a if is_pattern else " ".join(a.split()) for a in question.answers
        ]
        accepted = [answer for answer in found if answer.strip()]
        if not question.question.strip() or not accepted:
            counts[
                "no_answer" if question.question.strip() else "empty_question"
            ] += 1
            continue
        answer_counts["empty_answer"] += len(found) - len(accepted)
        answer_counts["invalid_pattern"] += is_pattern * sum(
            answers.compile_pattern(pattern) is None for pattern in accepted
        )
        key = (question.question, question.answer_type)
        counts["duplicate_question" if key in kept else "kept"] += 1
        _, united = kept.setdefault(key, (question, {}))
        united.update(dict.fromkeys(accepted))
    questions = [
        dataclasses.replace(
            first,
            answers=tuple(united),
            line={**first.line, "answer": list(united)},
        )
        for first, united in kept.values()
    ]
    return questions, dict(counts), dict(+answer_counts)


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


def report(
    parts: dict[str, list[Question]], answered: Collection[Question] | None
) -> dict:
    """Counts of the questions of each file.

    Args:
        parts: dict of file name to list of `Question`.
        answered: set of `Question`. Those that some block answers. `None` if
            no block was searched.

    Returns:
        dict: `files`, for each `questions`, `answers` of all, `patterns`,
        `with_evidence` and perhaps `answer_in_blocks`.
    """
    found = {}
    for name, part in parts.items():
        found[name] = counts = {
            "questions": len(part),
            "answers": sum(len(each.answers) for each in part),
            "patterns": sum(each.answer_type == "regex" for each in part),
            "with_evidence": sum(
                bool(each.line.get("evidence")) for each in part
            ),
        }
        if answered is not None:
            counts["answer_in_blocks"] = sum(each in answered for each in part)
    return {"files": found}


def lines(questions: Iterable[dict]) -> str:
    """Lines of questions as JSONL."""
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for line in questions
    )


def shown(counts: dict) -> str:
    """Counts with their names, on one line, those that are 0 left out."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n)
