"""Rules of questions against loops over words."""

import numpy as np
import pytest

from realm_tf.models.question_rules import PENALTY
from realm_tf.models.question_rules import QuestionRules

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] who wrote is was or how can tell me the "
    "paris ##ian london tool force - , ? it . x"
)
VOCABULARY = WORDS.split()
WIDTH = 4
COMMON = {"the", "tool"}


def _ids(text):
    return [VOCABULARY.index(piece) for piece in text.split()]


def _batch(questions, blocks):
    """Packed questions, and each with each block as the reader sees it."""
    packed = [[2, *_ids(question), 3] for question in questions]
    rows = [[[*q, *_ids(block), 3] for block in blocks] for q in packed]
    longest = max(len(row) for read in rows for row in read)
    joint = np.zeros((len(questions), len(blocks), longest), "int32")
    for b, read in enumerate(rows):
        for r, row in enumerate(read):
            joint[b, r, : len(row)] = row
    ids = np.zeros((len(packed), max(map(len, packed))), "int32")
    for b, row in enumerate(packed):
        ids[b, : len(row)] = row
    return ids, joint


QUESTIONS = {
    "who wrote paris ?": False,
    "is paris or london x ?": False,
    "is paris x ?": True,
    "was it the tool": True,
    "can me tell how": False,
    "it is x": False,
    "how force it ?": False,
}
BLOCKS = [
    "paris , the tool . london x .",
    "tool - force it . paris ##ian is it",
]


def test_what_says_nothing_new_scores_less():
    ids, joint = _batch(QUESTIONS, BLOCKS)
    random = np.random.default_rng(0)
    scores = random.normal(size=(*joint.shape, WIDTH)).astype("float32")
    is_common = np.array([piece in COMMON for piece in VOCABULARY])
    outputs = {"span_scores": scores, "joint_ids": joint, "other": 1}
    rules = QuestionRules(VOCABULARY)
    found = rules(outputs, ids, is_common)
    assert found.keys() == outputs.keys() and found["other"] == 1
    assert outputs["span_scores"] is scores
    expected = scores.copy()
    num_less = 0
    for b, (question, asks_whether) in enumerate(QUESTIONS.items()):
        asked = question.split()
        for r, block in enumerate(BLOCKS):
            words = block.split()
            first = len(asked) + 2
            for start in range(len(words)):
                for width in range(min(WIDTH, len(words) - start)):
                    span = words[start : start + width + 1]
                    says_nothing = all(
                        word in asked or word in COMMON or word in ",.?"
                        for word in span
                    )
                    if says_nothing and not asks_whether and "or" not in asked:
                        expected[b, r, first + start, width] -= PENALTY
                        num_less += 1
            # Beyond the body's end no span is allowed.
            for width in range(WIDTH):
                inside = slice(first, first + len(words) - width)
                np.testing.assert_allclose(
                    np.asarray(found["span_scores"])[b, r, inside, width],
                    expected[b, r, inside, width],
                    rtol=1e-6,
                    err_msg=f"{question} {block}",
                )
    assert num_less > 30


def test_which_questions_ask_whether_something_is_so():
    ids, _ = _batch(QUESTIONS, BLOCKS)
    found = QuestionRules(VOCABULARY).asks_whether(ids)
    assert np.asarray(found).tolist() == list(QUESTIONS.values())
    # Words that a vocabulary lacks are in no question.
    few = QuestionRules(VOCABULARY[:5])
    assert not np.any(few.asks_whether(ids))


@pytest.mark.parametrize("question", ["", "is"])
def test_short_questions(question):
    ids, joint = _batch([question], BLOCKS)
    scores = np.zeros((*joint.shape, WIDTH), "float32")
    rules = QuestionRules(VOCABULARY)
    found = rules(
        {"span_scores": scores, "joint_ids": joint},
        ids,
        np.zeros(len(VOCABULARY), bool),
    )
    assert np.asarray(found["span_scores"]).shape == scores.shape
    assert np.asarray(rules.asks_whether(ids)).tolist() == [question == "is"]
