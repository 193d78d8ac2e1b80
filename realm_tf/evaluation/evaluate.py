"""Measures a model on a file of questions with answers.

  realm evaluate --model DIR --blocks DIR --index DIR --questions F --output DIR
  realm evaluate ... --retriever bm25       the same reader on BM25's blocks
  realm evaluate ... --compare bm25 hybrid  their recall beside the model's
  realm evaluate ... --num-reader-blocks 0  recall alone

Writes metrics.json (exact_match, f1, answer_recall@1, @5, @20, with 95 %
bootstrap intervals), predictions.jsonl and report.html. Where a question names
its evidence ("evidence": {"title": ..., "sentence": ...}, as the embedded ones
do), gold_recall@k tells how often that very block is among the first k.

--num-reader-blocks 0 measures recall alone, of any retriever: no block is read,
so a model will do that no question has taught to read yet, such as one that
`realm ict` or `realm pretrain` made.

Retrievers: realm (the model's own tower over the index), bm25, hybrid (both,
fused by reciprocal ranks), none (closed-book: the masked LM of a pre-trained
model answers without any block), oracle (the model's own, but blocks with an
answer first: what is left to the reader). reading_accuracy is exact_match
of the questions for which a block that was read holds an answer.

Confidences are calibrated with --calibration DIR, an evaluation of other
questions (those of dev), whose temperature and thresholds are then used here.
"""

import dataclasses
import json
import os

import numpy as np

from realm_tf.answering import bootstrap
from realm_tf.answering import recall
from realm_tf.answering import retrieve_and_answer
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import question_files as data
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.retrieval import retrievers
from realm_tf.text import answers

# Of the n-best list, in predictions.jsonl.
NUM_SHOWN = 5


def add_arguments(parser):
    """Arguments of `realm evaluate`."""
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", help="blocks directory")
    parser.add_argument("--index", help="index directory")
    parser.add_argument(
        "--questions", required=True, help="JSONL with question and answer"
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--retriever",
        choices=retrieve_and_answer.RETRIEVERS,
        default="realm",
        help="whose blocks are read (default: realm)",
    )
    parser.add_argument(
        "--compare",
        nargs="*",
        default=[],
        choices=retrievers.NAMES,
        help="further retrievers whose recall is measured",
    )
    parser.add_argument(
        "--num-reader-blocks",
        type=int,
        default=5,
        help="blocks read for a question; 0 measures recall alone (default: 5)",
    )
    parser.add_argument(
        "--aggregate-answers",
        action="store_true",
        help="add up the probabilities of equal strings over blocks (default: "
        "the single best span)",
    )
    parser.add_argument(
        "--calibration",
        metavar="DIR",
        help="evaluation of other questions, whose temperature is used "
        "(default: 1)",
    )


def run(args, extra):
    """`realm evaluate`."""
    from realm_tf.evaluation.reports.report import REPORT

    metrics = evaluate(
        args.model,
        args.blocks,
        args.index,
        args.questions,
        args.output,
        retriever=args.retriever,
        compare=args.compare,
        num_reader_blocks=args.num_reader_blocks,
        aggregate_answers=args.aggregate_answers,
        calibration=args.calibration,
    )
    names = [name for name in metrics if not name.endswith("_interval")]
    width = max(map(len, names)) + 4
    for name in names:
        value = metrics[name]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        if f"{name}_interval" in metrics:
            low, high = metrics[f"{name}_interval"]
            shown += f"   95 % {low:.3f} to {high:.3f}"
        print(f"{name:<{width}}{shown}")
    print(os.path.join(args.output, REPORT))


def evaluate(
    model: str,
    blocks: str | None,
    index: str | None,
    questions: str,
    output: str,
    *,
    retriever: str = "realm",
    compare: list[str] = (),
    num_reader_blocks: int = 5,
    aggregate_answers: bool = False,
    calibration: str | None = None,
    progress=None,
) -> dict:
    """Evaluates; writes metrics.json, predictions.jsonl and report.html.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory; `None` with `retriever="none"`.
        index: str. Index directory; `None` with `retriever="none"`.
        questions: str. JSONL file with answers.
        output: str. Directory to make.
        retriever: str. Whose blocks are read: `"realm"` (the model's own),
            `"bm25"`, `"hybrid"`, `"none"`: the masked LM answers alone, or
            `"oracle"`: see `answering.oracle`. Defaults to `"realm"`.
        compare: list of str. Further retrievers whose recall is measured.
        num_reader_blocks: int. Blocks read; with 0 nothing is answered and
            the metrics are those of `recall.score`. Defaults to `5`.
        aggregate_answers: bool. See `calibration.choose`. Defaults to
            `False`.
        calibration: str. Evaluation directory of other questions, whose
            temperature is used. Defaults to `None`: 1.
        progress: function called with the number of questions done.

    Returns:
        dict, the metrics; a name ending in `_interval` holds the 95 %
        interval `[low, high]` of the metric before it. Those of the answers
        are of all questions; with `calibration`, `coverage@risk_R` and
        `wrong@risk_R` say which share of them its threshold for risk R lets
        through, and which share of these is wrong.

    Raises:
        InputError: if the inputs are missing or do not belong together.
    """
    from realm_tf.answering import calibration as calibrations
    from realm_tf.evaluation.reports import report

    parameters = {
        "retriever": retriever,
        "compare": list(compare),
        "num_reader_blocks": num_reader_blocks,
        "aggregate_answers": aggregate_answers,
    }
    _check(blocks, index, calibration, **parameters)
    asked = data.read_questions(questions)
    known = calibrations.read(calibration) if calibration else None
    if known and known.aggregate_answers != aggregate_answers:
        raise InputError(
            f"{calibration} was made with aggregate_answers="
            f"{known.aggregate_answers}: use the same here."
        )
    parameters["temperature"] = known.temperature if known else 1.0
    answered = retrieve_and_answer.answer(
        model,
        blocks,
        index,
        asked,
        retriever=retriever,
        compare=compare,
        num_reader_blocks=num_reader_blocks,
        progress=progress,
    )
    with artifact.write(
        output,
        kind=schema.EVALUATION,
        parameters=parameters,
        parents={
            **answered.parents,
            "questions": fingerprints.fingerprint(Path(questions).read_bytes()),
        },
    ) as stage:
        rows = answered.recall(asked)
        lines = answered.retrieved_lines()
        own = {}
        if num_reader_blocks:
            fitted = calibrations.fit(
                asked, answered.predictions, aggregate=aggregate_answers
            )
            stage.metadata["calibration"] = dataclasses.asdict(fitted)
            predictions = [
                calibrations.choose(
                    prediction,
                    temperature=parameters["temperature"],
                    aggregate=aggregate_answers,
                )
                for prediction in answered.predictions
            ]
            rows = score(asked, predictions, rows)
            lines = [_line(each, answered.records) for each in predictions]
            own = _at_thresholds(known, predictions, rows) if known else {}
        metrics = bootstrap.summarize([_metrics_of(row) for row in rows])
        metrics.update(own)
        lines = [
            {**question.line, **line, **row}
            for question, line, row in zip(asked, lines, rows, strict=True)
        ]
        write_text(stage.path("metrics.json"), json.dumps(metrics, indent=2))
        write_text(
            stage.path("predictions.jsonl"),
            "".join(
                json.dumps(line, ensure_ascii=False) + "\n" for line in lines
            ),
        )
        report.write(
            stage.path(report.REPORT),
            title=f"{output}: {questions}",
            metrics=metrics,
            lines=lines,
            parameters=parameters,
        )
        stage.metadata["metrics"] = metrics
    return metrics


def _check(
    blocks,
    index,
    calibration,
    *,
    retriever,
    compare,
    num_reader_blocks,
    aggregate_answers,
):
    for name in (retriever, *compare):
        if name not in retrieve_and_answer.RETRIEVERS:
            raise InputError(
                f"`retriever` must be one of {retrieve_and_answer.RETRIEVERS}. "
                f"Received: {name!r}"
            )
    if num_reader_blocks < 0:
        raise InputError(
            "--num-reader-blocks must be at least 0, which measures recall "
            f"alone. Received: {num_reader_blocks}"
        )
    if retriever == retrieve_and_answer.CLOSED_BOOK:
        if blocks or index or compare:
            raise InputError(
                "Without retriever there is nothing to search: leave --blocks, "
                "--index and --compare out, or choose another --retriever."
            )
    elif not (blocks and index):
        raise InputError(
            "--blocks and --index are needed: only --retriever none answers "
            "without them."
        )
    if num_reader_blocks == 0 and (
        calibration
        or aggregate_answers
        or retriever == retrieve_and_answer.CLOSED_BOOK
    ):
        raise InputError(
            "With --num-reader-blocks 0 nothing is answered: leave "
            "--calibration and --aggregate-answers out, and choose a "
            "--retriever that searches."
        )


def score(questions, predictions, found) -> list[dict]:
    """Exact match and F1, beside what was found.

    A pattern has no words to share: its F1 is 1 or 0, as the match is.

    Args:
        questions: list of `Question`.
        predictions: list of `Prediction`.
        found: list of dict. The rows of `recall.score` for the retriever
            whose blocks were read; empty ones for closed-book answers.

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
            answers.is_correct(
                prediction.answer, question.answers, question.answer_type
            )
        )
        rank = next(iter(row.get("answer_ranks", {}).values()), None)
        was_read = rank is not None and rank <= len(prediction.candidates)
        rows.append(
            {
                "exact_match": is_correct,
                "f1": is_correct
                if question.answer_type == "regex"
                else answers.f1_score(prediction.answer, question.answers),
                **row,
                **({"reading_accuracy": is_correct} if was_read else {}),
            }
        )
    return rows


def _metrics_of(row):
    """What is averaged of a row of `score`."""
    own = {k: v for k, v in row.items() if isinstance(v, float)}
    # The first retriever's are `answer_recall@k`.
    for name, rank in list(row.get("answer_ranks", {}).items())[1:]:
        own.update(recall.at_ranks(rank, f"{name}_answer_recall"))
    return own


def _at_thresholds(known, predictions, rows):
    """What thresholds found elsewhere do here."""
    found = {"temperature": known.temperature}
    correct = np.array([row["exact_match"] for row in rows])
    shares = np.array([p.confidence for p in predictions])
    for risk, at in known.thresholds.items():
        given = shares >= at["threshold"]
        found[f"coverage@risk_{risk}"] = round(
            float(given.mean()), bootstrap.DIGITS
        )
        found[f"wrong@risk_{risk}"] = (
            round(float(1 - correct[given].mean()), bootstrap.DIGITS)
            if given.any()
            else 0.0
        )
    return found


def _line(prediction, records):
    """What predictions.jsonl has of an answer."""
    found = records is not None and prediction.block_id >= 0
    return {
        "prediction": prediction.answer,
        "score": prediction.score,
        "confidence": prediction.confidence,
        "block_id": prediction.block_id,
        "title": records.titles[prediction.block_id] if found else "",
        "text": records.texts[prediction.block_id] if found else "",
        "url": records.urls[prediction.block_id] if found else "",
        "start": prediction.start,
        "limit": prediction.limit,
        "retrieved": prediction.retrieved,
        "candidates": [dataclasses.asdict(c) for c in prediction.candidates],
        "nbest": [
            {"answer": s.answer, "score": s.score, "block_id": s.block_id}
            for s in prediction.nbest[:NUM_SHOWN]
        ],
    }
