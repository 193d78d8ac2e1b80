"""What the Python code answers, for `realm verify` to compare with."""

from realm_tf.answering import calibration
from realm_tf.answering.predict import NUM_RETRIEVED
from realm_tf.answering.predict import Predictor

FILE = "assets.extra/expected.json"


def compute(
    corpus,
    questions: list[str],
    *,
    num_reader_blocks: int,
    fitted=None,
    lexical_weight: float | None = None,
) -> list[dict]:
    """Answers questions in Python.

    Args:
        corpus: `Corpus`.
        questions: list of str.
        num_reader_blocks: int. Blocks read for a question.
        fitted: `Calibration`. See `RealmModule`. Defaults to `None`.
        lexical_weight: float. See `RealmModule`. Defaults to `None`.

    Returns:
        list of dict, JSON values: for each question the answer that the export
        must give, and `block_ids`, which it must find.
    """
    predictor = Predictor(
        corpus,
        num_reader_blocks=num_reader_blocks,
        num_candidates=max(NUM_RETRIEVED, num_reader_blocks),
        lexical_weight=lexical_weight,
        relevance_weight=calibration.relevance_weight_of(fitted),
    )
    return [
        {
            "question": question,
            **_row(calibration.choose(prediction, fitted=fitted)),
            "block_ids": prediction.retrieved,
        }
        for question, prediction in zip(
            questions, predictor.predict(questions), strict=True
        )
    ]


def _row(prediction) -> dict:
    names = ("answer", "score", "confidence", "block_id", "start", "limit")
    names += ("answer_sentence", "is_sentence")
    row = {name: getattr(prediction, name) for name in names}
    for name in ("block_id", "log_prob", "answer"):
        row[f"candidate_{name}"] = [
            getattr(each, name) for each in prediction.candidates
        ]
    return row
