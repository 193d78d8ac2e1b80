"""What is left of entries: questions, each once, and counts of the rest."""

import collections
import json

from realm_tf.artifacts.question_files import Question
from realm_tf.data.question_sets import statistics as question_statistics
from realm_tf.data.question_sets.entry import Entry
from realm_tf.errors import InputError
from realm_tf.text import answers


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
            InputError: if it holds what cannot be written.
        """
        self.counts["read"] += 1
        if not isinstance(entry.question, str):
            raise InputError(f"{entry.place}: the question is no string.")
        extra = json.dumps(entry.extra, ensure_ascii=False)
        _check_characters(
            "".join([entry.question, *entry.answers, extra]), entry.place
        )
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
        self._count_answers(found, accepted, is_pattern)
        key = (entry.question, entry.answer_type)
        known = key in self._kept
        self.counts["duplicate_question" if known else "kept"] += 1
        _, united = self._kept.setdefault(key, (entry.extra, {}))
        united.update(dict.fromkeys(accepted))

    def _count_answers(self, found, accepted, is_pattern):
        num_empty = len(found) - len(accepted)
        num_invalid = is_pattern * sum(
            answers.compile_pattern(pattern) is None for pattern in accepted
        )
        if num_empty:
            self.answer_counts["empty_answer"] += num_empty
        if num_invalid:
            self.answer_counts["invalid_pattern"] += num_invalid

    def questions(self, paths: list[str]) -> list[Question]:
        """What is left, in the order of the first entries.

        Args:
            paths: list of str. What was read, for the message.

        Raises:
            InputError: if nothing is left.
        """
        if not self._kept:
            raise InputError(
                f"{', '.join(paths)} holds no question with an answer "
                f"({question_statistics.shown(self.counts)}): is it of another form than --from "
                "says, or a test set without answers?"
            )
        return [
            _question(text, answer_type, tuple(united), extra)
            for (text, answer_type), (extra, united) in self._kept.items()
        ]


def _check_characters(text, place):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place} holds half of a surrogate pair, which is no character: "
            "expected \\u escapes in pairs."
        ) from error


def _question(text, answer_type, accepted, extra):
    line = {"question": text, "answer": list(accepted)}
    if answer_type != "string":
        line["answer_type"] = answer_type
    return Question(text, accepted, answer_type, {**line, **extra})
