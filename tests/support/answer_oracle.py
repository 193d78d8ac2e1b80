"""What counts as an answer, written down once more for tests.

A line is one of predictions.jsonl; of several patterns the first one counts.
"""

import collections
import re
import string


def _words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in text.split() if word not in ("a", "an", "the")]


def f1(prediction, answer):
    """F1 of shared words."""
    found, wanted = _words(prediction), _words(answer)
    shared = sum(
        (collections.Counter(found) & collections.Counter(wanted)).values()
    )
    if not found or not wanted:
        return float(found == wanted)
    if not shared:
        return 0.0
    precision, recall = shared / len(found), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def matches(line):
    """Whether a prediction is right; of a pattern, what `re` found."""
    if line.get("answer_type") == "regex":
        # The second pattern is none.
        return re.match(line["answer"][0], line["prediction"], re.IGNORECASE)
    return any(
        _words(line["prediction"]) == _words(answer)
        for answer in line["answer"]
    )


def contains(text, line):
    """Whether a block's text holds an answer."""
    if line.get("answer_type") == "regex":
        pattern = line["answer"][0]
        return re.search(pattern, text, re.IGNORECASE) is not None
    padded = f" {' '.join(_words(text))} "
    return any(f" {' '.join(_words(a))} " in padded for a in line["answer"])
