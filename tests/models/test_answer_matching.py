"""Answers in blocks, against loops over lists; spans: see open_qa_oracle."""

import numpy as np
import pytest

from realm_tf.models import answer_matching


def _match_loop(tokens, answers, continuation, max_width):
    found = np.zeros((len(tokens), max_width), bool)
    for start in range(len(tokens)):
        for answer in answers:
            limit = start + len(answer)
            if (
                answer
                and len(answer) <= max_width
                and tokens[start:limit] == answer
                and not (
                    limit < len(tokens)
                    and tokens[limit] >= 0
                    and continuation[tokens[limit]]
                )
            ):
                found[start, len(answer) - 1] = True
    return found


@pytest.mark.parametrize("whole_words", [True, False])
def test_contains_answer_against_a_loop(whole_words):
    random = np.random.default_rng(3)
    continuation = np.zeros(8, bool)
    continuation[[5, 6]] = True
    flags = continuation if whole_words else np.zeros(8, bool)
    # (b, n, l); some blocks are shorter.
    tokens = random.integers(0, 8, (4, 30, 12))
    tokens[:, ::3, 9:] = -2
    answers = np.full((4, 5, 6), -1)
    for row in answers.reshape(-1, 6):
        length = random.integers(0, 5)
        row[:length] = random.integers(0, 8, length)
    found = np.asarray(
        answer_matching.contains_answer(
            tokens, answers, continuation if whole_words else None
        )
    )
    assert found.shape == (4, 30) and 0 < found.mean() < 1
    for row in range(4):
        lists = [[p for p in a if p >= 0] for a in answers[row].tolist()]
        for column in range(30):
            expected = _match_loop(
                tokens[row, column].tolist(), lists, flags, 6
            ).any()
            assert found[row, column] == expected
