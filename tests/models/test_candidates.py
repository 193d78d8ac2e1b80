"""Against slow recomputations with Python lists."""

import numpy as np

from realm_tf.models import realm

NGRAM = 8


def _contains(body, piece):
    width = len(piece)
    return any(
        body[place : place + width] == piece
        for place in range(len(body) - width + 1)
    )


def _shares(sentence, body):
    if not sentence:
        return False
    if len(sentence) < NGRAM:
        return _contains(body, sentence)
    grams = [
        sentence[place : place + NGRAM]
        for place in range(len(sentence) - NGRAM + 1)
    ]
    return sum(_contains(body, gram) for gram in grams) >= len(grams) / 2


def _padded(rows, length, value):
    return np.array([row + [value] * (length - len(row)) for row in rows])


def _example(random):
    """A sentence, and blocks that hold all, a part or nothing of it."""
    sentence = random.integers(5, 9, random.integers(0, 21)).tolist()
    blocks = []
    for _ in range(5):
        body = random.integers(5, 9, random.integers(0, 31)).tolist()
        if random.random() < 0.7:
            start, limit = np.sort(random.integers(0, len(sentence) + 1, 2))
            place = random.integers(0, len(body) + 1)
            body[place:place] = sentence[start:limit]
        if random.random() < 0.3:
            body = body + sentence
        blocks.append(body[:40])
    return sentence, blocks


def test_shares_text():
    random = np.random.default_rng(0)
    found = []
    for _ in range(30):
        examples = [_example(random) for _ in range(4)]
        shared = realm.shares_text(
            _padded([s for s, _ in examples], 22, -1).astype("int32"),
            np.stack([_padded(b, 40, 0) for _, b in examples]).astype("int32"),
        )
        expected = [[_shares(s, body) for body in b] for s, b in examples]
        np.testing.assert_array_equal(np.asarray(shared), expected)
        found += sum(expected, [])
    # Neither answer is rare.
    assert 150 < sum(found) < 450


def test_repeats():
    bodies = np.array([[[5, 6, 0], [5, 6, 7], [5, 6, 0], [5, 6, 9], [5, 6, 7]]])
    # Only the first two wordpieces of the fourth count.
    lengths = np.array([[2, 3, 2, 2, 3]])
    found = realm.repeats(bodies.astype("int32"), lengths.astype("int32"))
    assert np.asarray(found).tolist() == [[False, False, True, True, True]]
