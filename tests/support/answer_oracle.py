"""What counts as an answer, written down once more for tests.

A line is one of predictions.jsonl; of several patterns the first one counts.
"""

import collections
import math
import re
import string


def _words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in text.split() if word not in ("a", "an", "the")]


def score(line):
    """Exact match and F1 of a prediction; a pattern has no words to share."""
    if line.get("answer_type") == "regex":
        found = re.match(line["answer"][0], line["prediction"], re.IGNORECASE)
        return float(bool(found)), float(bool(found))
    words = _words(line["prediction"])
    is_right = any(words == _words(answer) for answer in line["answer"])
    return float(is_right), max(_f1(words, _words(a)) for a in line["answer"])


def _f1(found, wanted):
    if not found or not wanted:
        return float(found == wanted)
    found, wanted = collections.Counter(found), collections.Counter(wanted)
    # 2 p r / (p + r), where p = shared / found and r = shared / wanted.
    return 2 * (found & wanted).total() / (found.total() + wanted.total())


def contains(text, line):
    """Whether a block's text holds an answer."""
    if line.get("answer_type") == "regex":
        pattern = line["answer"][0]
        return re.search(pattern, text, re.IGNORECASE) is not None
    padded = f" {' '.join(_words(text))} "
    return any(f" {' '.join(_words(a))} " in padded for a in line["answer"])


def rank(block_ids, texts, line):
    """At which rank a block holds an answer, from 1; infinite if at none."""
    for number, block_id in enumerate(block_ids, 1):
        if contains(texts[block_id], line):
            return number
    return math.inf
