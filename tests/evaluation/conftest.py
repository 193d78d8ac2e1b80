"""Lines of predictions.jsonl, made up."""

import math
import random

import pytest

_WORDS = ("Who", "What", "When", "Where", "Which", "How many", "How", "Name")


@pytest.fixture
def make_lines():
    """A function that makes so many lines as `realm evaluate` writes them."""
    return _make_lines


def _make_lines(number):
    rng = random.Random(0)
    lines = []
    for row in range(number):
        # Of two decimals: some confidences are the same.
        confidence = round(rng.random(), 2)
        is_right = rng.random() < 0.2 + 0.6 * confidence
        answer = " ".join(["word"] * rng.randrange(1, 8))
        text = f"🚢 Before {answer} after {row}."
        start = text.index(answer)
        lines.append(
            {
                "question": f"{rng.choice(_WORDS)} is number {row}?",
                "answer": [answer] if is_right else ["other"],
                "prediction": answer,
                "score": 1.5,
                "confidence": confidence,
                "block_id": row,
                "title": f"Title {row}",
                "text": text,
                "url": f"https://example.org/{row}",
                "start": start,
                "limit": start + len(answer),
                "retrieved": [row, row + 1],
                "candidates": [
                    {
                        "block_id": row + away,
                        "log_prob": math.log(share),
                        "answer": said,
                        "score": 1.0 - away,
                    }
                    for away, share, said in (
                        (0, 0.75, answer),
                        (1, 0.25, "other"),
                    )
                ],
                "exact_match": float(is_right),
                "f1": float(is_right),
                "answer_recall@1": 0.0,
                "answer_rank": rng.choice([None, *range(1, 31)]),
                "num_ranked": 30,
            }
        )
    return lines
