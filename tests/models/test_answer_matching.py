"""Spans and answers on tensors, against loops over lists."""

import numpy as np
import pytest

from realm_tf.models import answer_matching


def test_allowed_spans_against_a_loop():
    positions = np.array([[-1, -1, 0, 1, 2, -1], [-1, 0, -1, -1, -1, -1]])
    allowed = np.asarray(answer_matching.allowed_spans(positions, 3))
    for row in range(2):
        for start in range(6):
            for width in range(1, 4):
                inside = start + width <= 6 and all(
                    positions[row, p] >= 0 for p in range(start, start + width)
                )
                assert allowed[row, start, width - 1] == inside


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


def test_match_answers_against_a_loop():
    random = np.random.default_rng(0)
    continuation = np.zeros(8, bool)
    continuation[[5, 6]] = True
    tokens = random.integers(0, 8, (20, 15))
    tokens[:, 12:] = -2
    answers = [
        [
            random.integers(0, 8, random.integers(0, 5)).tolist()
            for _ in range(3)
        ]
        for _ in range(20)
    ]
    padded = np.full((20, 3, 4), -1)
    for row, row_answers in enumerate(answers):
        for column, answer in enumerate(row_answers):
            padded[row, column, : len(answer)] = answer
    found = np.asarray(
        answer_matching.match_answers(
            tokens, padded, continuation, max_span_width=3
        )
    )
    assert found.any()
    for row in range(20):
        np.testing.assert_array_equal(
            found[row],
            _match_loop(tokens[row].tolist(), answers[row], continuation, 3),
        )


@pytest.mark.parametrize("whole_words", [True, False])
def test_contains_answer_against_match_answers_and_a_loop(whole_words):
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
