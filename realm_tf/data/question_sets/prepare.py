"""From the questions of a set to the files of a directory."""

import json

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.progress import Progress

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


def count_answered(report: dict, files: dict, blocks: Blocks) -> None:
    """Adds to each file's statistics how many questions a block answers.

    Args:
        report: dict. Its `files` get `answer_in_blocks`.
        files: dict. Name of each file to its questions.
        blocks: `Blocks`.
    """
    from realm_tf.data.question_sets.answer_search import find_answered

    answered = find_answered(
        [question for each in files.values() for question in each],
        (block.text for block in blocks.read()),
        progress=Progress("questions", "blocks", blocks.num_blocks),
    )
    for name, each in files.items():
        here, answered = answered[: len(each)], answered[len(each) :]
        report["files"][name]["answer_in_blocks"] = sum(here)


def lines(questions: list[Question]) -> str:
    """Questions as JSON, one a line."""
    return "".join(
        json.dumps(question.line, ensure_ascii=False) + "\n"
        for question in questions
    )
