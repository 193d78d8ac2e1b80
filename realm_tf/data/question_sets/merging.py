"""Entries of published files, and what is left of them: questions, each once."""

import collections
import dataclasses
import json

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


class MergedQuestions:
    """Entries, checked; those of the same question and type are one.

    The first one's further keys are kept, and the answers of all, each once.

    Attributes:
        counts: `Counter` of questions.
        answer_counts: `Counter` of answers.
    """

    def __init__(self):
        self.counts = collections.Counter(read=0, kept=0)
        self.answer_counts = collections.Counter()
        # (question, type): (its further keys, its answers as keys).
        self._kept = {}

    def add(self, entry: Entry) -> None:
        """Takes an entry or counts why not.

        Raises:
            InputError: if question or answers are no text.
        """
        self.counts["read"] += 1
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
            self.counts[reason] += 1
            return
        self.answer_counts["empty_answer"] += len(found) - len(accepted)
        self.answer_counts["invalid_pattern"] += is_pattern * sum(
            answers.compile_pattern(pattern) is None for pattern in accepted
        )
        key = (entry.question, entry.answer_type)
        known = key in self._kept
        self.counts["duplicate_question" if known else "kept"] += 1
        _, united = self._kept.setdefault(key, (entry.extra, {}))
        united.update(dict.fromkeys(accepted))

    def questions(self) -> list[Question]:
        """What is left, in the order of the first entries."""
        return [
            _question(text, answer_type, tuple(united), extra)
            for (text, answer_type), (extra, united) in self._kept.items()
        ]


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


def _question(text, answer_type, accepted, extra):
    line = {"question": text, "answer": list(accepted)}
    if answer_type != "string":
        line["answer_type"] = answer_type
    return Question(text, accepted, answer_type, {**line, **extra})
