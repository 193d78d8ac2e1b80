"""What answers are worth: metrics, and the files of an evaluation."""

import dataclasses
import json

import numpy as np

from realm_tf.answering import bootstrap
from realm_tf.answering import calibration
from realm_tf.answering import recall
from realm_tf.answering.predict import evidence
from realm_tf.artifacts.paths import write_text
from realm_tf.evaluation import report
from realm_tf.text import answers

# Of the n-best list, in predictions.jsonl.
NUM_SHOWN = 5


def write(stage, asked, answered, *, title, calibrate, known) -> None:
    """Writes metrics.json, predictions.jsonl and report.html.

    Args:
        stage: `artifact.Stage`; its metadata get `metrics` and, to
            `calibrate`, `calibration`.
        asked: list of `Question`.
        answered: `Answered`.
        title: str. Of the report.
        calibrate: bool. Whether to fit a `Calibration` to these questions.
        known: `Calibration` of other questions, or `None`; what is fitted
            begins with it.
    """
    rows, own = [{} for _ in asked], {}
    if answered.records is not None:
        rows = recall.score(asked, answered.ranking, answered.records)
        lines = [{"retrieved": block_ids} for block_ids in answered.ranking]
    if answered.predictions:
        if calibrate:
            fitted = calibration.fit(
                asked,
                answered.predictions,
                answered.unanswerable,
                start=known,
                lexical_weight=answered.lexical_weight,
                relevance_weight=answered.relevance_weight,
            )
            stage.metadata["calibration"] = dataclasses.asdict(fitted)
        predictions = [
            calibration.choose(prediction, fitted=known)
            for prediction in answered.predictions
        ]
        rows = score(asked, predictions, rows)
        lines = [_line(each, answered.records) for each in predictions]
        own = _of_answered(predictions, rows) if known else {}
    metrics = bootstrap.summarize(
        [
            {name: v for name, v in row.items() if isinstance(v, float)}
            for row in rows
        ]
    )
    metrics.update(own)
    lines = [
        # BEIR's queries name it otherwise.
        {**question.line, "question": question.question, **line, **row}
        for question, line, row in zip(asked, lines, rows, strict=True)
    ]
    write_text(stage.path("metrics.json"), json.dumps(metrics, indent=2))
    write_text(
        stage.path("predictions.jsonl"),
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
    )
    report.write(
        stage.path(report.REPORT),
        asked,
        lines,
        title=title,
        metrics=metrics,
        parameters=stage.parameters,
    )
    stage.metadata["metrics"] = metrics


def score(questions, predictions, found) -> list[dict]:
    """Exact match and F1, beside what was found.

    A pattern has no words to share: its F1 is 1 or 0, as the match is.

    Args:
        questions: list of `Question`.
        predictions: list of `Prediction`.
        found: list of dict. The rows of `recall.score`; empty ones for
            closed-book answers.

    Returns:
        list of dict: floats `exact_match` and `f1`; what `found` has; where
        a block that was read holds an answer, `reading_accuracy`, the exact
        match once more.
    """
    rows = []
    for question, prediction, row in zip(
        questions, predictions, found, strict=True
    ):
        is_correct = float(
            answers.is_correct(prediction.answer, *question.accepted)
        )
        rank = row.get("answer_rank")
        was_read = rank is not None and rank <= len(prediction.candidates)
        rows.append(
            {
                "exact_match": is_correct,
                "f1": is_correct
                if question.answer_type == "regex"
                else answers.f1_score(
                    prediction.answer, question.answers, question.language
                ),
                **row,
                **({"reading_accuracy": is_correct} if was_read else {}),
            }
        )
    return rows


def _of_answered(predictions, rows):
    """How many questions are answered, and how many of these wrongly."""
    given = np.array([p.answered for p in predictions])
    correct = np.array([row["exact_match"] for row in rows])
    wrong = 1 - correct[given].mean() if given.any() else 0.0
    return {
        "answered": round(float(given.mean()), bootstrap.DIGITS),
        "answered_wrong": round(float(wrong), bootstrap.DIGITS),
    }


def _line(prediction, records):
    """What predictions.jsonl has of an answer."""
    return {
        "prediction": prediction.answer,
        "score": prediction.score,
        "reader_score": prediction.reader_score,
        "confidence": prediction.confidence,
        "answered": prediction.answered,
        "block_id": prediction.block_id,
        **evidence(records, prediction.block_id),
        "start": prediction.start,
        "limit": prediction.limit,
        "retrieved": prediction.retrieved,
        "candidates": [dataclasses.asdict(c) for c in prediction.candidates],
        "nbest": [
            {"answer": s.answer, "score": s.score, "block_id": s.block_id}
            for s in prediction.nbest[:NUM_SHOWN]
        ],
    }
