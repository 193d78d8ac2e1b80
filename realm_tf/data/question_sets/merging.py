"""Entries of published files, and what is left of them: questions, each once."""

import collections
import dataclasses
import json
from collections.abc import Iterable

from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.text import answers


@dataclasses.dataclass(slots=True)
class Entry:
    """A question as a reader hands it on, before it is checked and merged.

    Args:
        place: str. The file and the line or entry, for messages.
        question: str. Exactly as the file has it.
        answers: list of str. Accepted answers, or patterns.
        answer_type: str. `"string"` or `"regex"`.
        extra: dict. Further keys of the line that is written.
        dropped: str. Why it is no open question, such as `"impossible"`, or
            `""`.
    """

    place: str
    question: str
    answers: list[str]
    answer_type: str = "string"
    extra: dict = dataclasses.field(default_factory=dict)
    dropped: str = ""


def merge(
    entries: Iterable[Entry],
) -> tuple[list[Question], dict[str, int], dict[str, int]]:
    """Entries, checked; those of the same question and type are one.

    The first one's further keys are kept, and the answers of all, each once.

    Args:
        entries: iterable of `Entry`.

    Returns:
        list of `Question`, in the order of the first entries; counters of
        questions and of answers.

    Raises:
        InputError: if question or answers are no text.
    """
    counts = collections.Counter(read=0, kept=0)
    answer_counts = collections.Counter()
    # (question, type): (its further keys, its answers as keys).
    kept = {}
    for entry in entries:
        counts["read"] += 1
        _check(entry)
        is_pattern = entry.answer_type == "regex"
        found = [
            a if is_pattern else " ".join(a.split()) for a in entry.answers
        ]
        accepted = [answer for answer in found if answer.strip()]
        reason = entry.dropped
        if not reason and not entry.question.strip():
            reason = "empty_question"
        if not reason and not accepted:
            reason = "no_answer"
        if reason:
            counts[reason] += 1
            continue
        answer_counts["empty_answer"] += len(found) - len(accepted)
        answer_counts["invalid_pattern"] += is_pattern * sum(
            answers.compile_pattern(pattern) is None for pattern in accepted
        )
        key = (entry.question, entry.answer_type)
        counts["duplicate_question" if key in kept else "kept"] += 1
        _, united = kept.setdefault(key, (entry.extra, {}))
        united.update(dict.fromkeys(accepted))
    questions = []
    for (text, answer_type), (extra, united) in kept.items():
        line = {"question": text, "answer": list(united)}
        if answer_type != "string":
            line["answer_type"] = answer_type
        questions.append(
            Question(text, tuple(united), answer_type, {**line, **extra})
        )
    return questions, dict(counts), dict(+answer_counts)


def _check(entry):
    if not isinstance(entry.answers, list) or not all(
        isinstance(text, str) for text in (entry.question, *entry.answers)
    ):
        raise InputError(
            f"{entry.place}: expected a question that is a string and answers "
            "that are a list of strings."
        )
    text = [entry.question, entry.answers, entry.extra]
    try:
        json.dumps(text, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{entry.place} holds half of a surrogate pair, which is no "
            "character: expected \\u escapes in pairs."
        ) from error
