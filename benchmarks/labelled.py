"""The reader of the hand-labelled names and dates."""

import pathlib
import re

from realm_tf.errors import InputError

LABELS = ("PER", "LOC", "ORG", "MISC", "DATE")

_MARK = re.compile(r"\[([^\[\]|]+)\|([A-Z]+)\]")


def read_marked(path) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Sentences with their marked spans.

    Args:
        path: str or path. One sentence a line, spans as `[Vienna|LOC]`.

    Returns:
        list of `(sentence, spans)`; a span is `(start, limit, label)`, code
        points of the sentence without marks, the limit exclusive, in order.

    Raises:
        InputError: naming file and line, for an unknown label or a bracket
            that is no mark.
    """
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def _parse(line, where):
    sentence, spans, done = "", [], 0
    for match in _MARK.finditer(line):
        sentence += line[done : match.start()]
        done = match.end()
        text, label = match.groups()
        if label not in LABELS:
            raise InputError(
                f"{where}: label {label} is none of {', '.join(LABELS)}."
            )
        spans.append((len(sentence), len(sentence) + len(text), label))
        sentence += text
    sentence += line[done:]
    if any(mark in sentence for mark in "[]|"):
        raise InputError(
            f"{where}: a bracket or bar that belongs to no [text|LABEL]."
        )
    return sentence, spans
