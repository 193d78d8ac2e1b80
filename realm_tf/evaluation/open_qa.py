"""Measures a model on a file of questions with answers.

  realm evaluate --model DIR --blocks DIR --index DIR --questions F --output DIR
  realm evaluate ... --retriever bm25     the same reader on BM25's blocks

Writes metrics.json (exact_match, f1, answer_recall@1, @5, @20, with 95 %
bootstrap intervals) and predictions.jsonl. Where a question names its evidence
("evidence": {"title": ..., "sentence": ...}, as the embedded ones do),
gold_recall@k tells how often that very block is among the first k.
"""

import collections
import dataclasses
import json

import numpy as np

from realm_tf import stages
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.text import answers

RETRIEVERS = ("realm", "bm25")
RECALL_AT = (1, 5, 20)


def add_arguments(parser):
    """Arguments of `realm evaluate`."""
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--index", required=True, help="index directory")
    parser.add_argument(
        "--questions", required=True, help="JSONL with question and answer"
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--retriever",
        choices=RETRIEVERS,
        default="realm",
        help="whose blocks are read (default: realm)",
    )
    parser.add_argument(
        "--num-reader-blocks",
        type=int,
        default=5,
        help="blocks read for a question (default: 5)",
    )


def run(args, extra):
    """`realm evaluate`."""
    metrics = evaluate(
        args.model,
        args.blocks,
        args.index,
        args.questions,
        args.output,
        retriever=args.retriever,
        num_reader_blocks=args.num_reader_blocks,
    )
    for name, value in metrics.items():
        if name.endswith("_interval"):
            continue
        interval = metrics.get(f"{name}_interval")
        if interval is None:
            print(f"{name:<20}{value}")
        else:
            low, high = interval
            print(f"{name:<20}{value:.3f}   95 % {low:.3f} to {high:.3f}")


def evaluate(
    model: str,
    blocks: str,
    index: str,
    questions: str,
    output: str,
    *,
    retriever: str = "realm",
    num_reader_blocks: int = 5,
    progress=None,
) -> dict:
    """Evaluates and writes metrics.json and predictions.jsonl.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        index: str. Index directory.
        questions: str. JSONL file with answers.
        output: str. Directory to make.
        retriever: str. `"realm"` (the model's own) or `"bm25"`. Defaults to
            `"realm"`.
        num_reader_blocks: int. Blocks read. Defaults to `5`.
        progress: function called with the number of questions done.

    Returns:
        dict, the metrics; a name ending in `_interval` holds the 95 %
        interval `[low, high]` of the metric before it.

    Raises:
        InputError: if the inputs are missing or do not belong together.
    """
    if retriever not in RETRIEVERS:
        raise InputError(
            f"`retriever` must be one of {RETRIEVERS}. Received: {retriever!r}"
        )
    from realm_tf.evaluation.predict import Predictor
    from realm_tf.retrieval.corpus import Corpus

    asked = data.read_questions(questions)
    corpus = Corpus.load(model, blocks, index)
    with stages.write(
        output,
        kind=schema.EVALUATION,
        parameters={
            "retriever": retriever,
            "num_reader_blocks": num_reader_blocks,
        },
        parents={
            "model": corpus.loaded.metadata["fingerprint"],
            "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
            "questions": stages.fingerprint(stages.read_bytes(questions)),
        },
    ) as stage:
        search = None
        if retriever == "bm25":
            from realm_tf.retrieval.bm25 import Bm25

            search = Bm25(corpus.records.titles, corpus.records.texts).search
        predictor = Predictor(
            corpus,
            num_candidates=max(RECALL_AT),
            num_reader_blocks=num_reader_blocks,
        )
        predictions = predictor.predict(
            [q.question for q in asked], search=search, progress=progress
        )
        rows = score(asked, predictions, corpus.records)
        metrics = summarize(rows)
        stages.write_text(
            stage.path("metrics.json"), json.dumps(metrics, indent=2)
        )
        stages.write_text(
            stage.path("predictions.jsonl"),
            "".join(
                json.dumps(
                    _line(question, prediction, row, corpus.records),
                    ensure_ascii=False,
                )
                + "\n"
                for question, prediction, row in zip(
                    asked, predictions, rows, strict=True
                )
            ),
        )
        stage.metadata["metrics"] = metrics
    return metrics


def score(questions, predictions, records) -> list[dict]:
    """Exact match, F1 and recall of each question.

    A pattern has no words to share: its F1 is 1 or 0, as the match is.

    Args:
        questions: list of `Question`.
        predictions: list of `Prediction`.
        records: `BlockRecords`.

    Returns:
        list of dict of float; `gold_recall@k` is there for questions of
        which `gold_blocks` knows the block.
    """
    rows = []
    gold = gold_blocks(questions, records)
    for question, prediction, gold_block in zip(
        questions, predictions, gold, strict=True
    ):
        is_correct = answers.is_correct(
            prediction.answer, question.answers, question.answer_type
        )
        row = {
            "exact_match": float(is_correct),
            "f1": float(is_correct)
            if question.answer_type == "regex"
            else answers.f1_score(prediction.answer, question.answers),
        }
        retrieved = prediction.retrieved[: max(RECALL_AT)]
        found = [
            answers.contains_answer(
                records.texts[block_id], question.answers, question.answer_type
            )
            for block_id in retrieved
        ]
        for k in RECALL_AT:
            row[f"answer_recall@{k}"] = float(any(found[:k]))
        if gold_block is not None:
            for k in RECALL_AT:
                row[f"gold_recall@{k}"] = float(gold_block in retrieved[:k])
        rows.append(row)
    return rows


def gold_blocks(questions, records) -> list[int | None]:
    """The block that each question names as its evidence.

    Args:
        questions: list of `Question`. A line may hold `"evidence"`:
            `{"title": str, "sentence": str}`.
        records: `BlockRecords`.

    Returns:
        list: for each question the first block of an article of that title
        that holds the sentence (white space aside), `None` without one.
    """
    blocks_of = collections.defaultdict(list)
    for block_id, title in enumerate(records.titles):
        blocks_of[title].append(block_id)
    found = []
    for question in questions:
        evidence = question.line.get("evidence") or {}
        sentence = " ".join(evidence.get("sentence", "").split())
        found.append(
            next(
                (
                    block_id
                    for block_id in blocks_of[evidence.get("title")]
                    if sentence
                    and sentence in " ".join(records.texts[block_id].split())
                ),
                None,
            )
        )
    return found


def summarize(rows: list[dict], *, num_samples: int = 2000) -> dict:
    """Means of rows, with 95 % percentile-bootstrap intervals.

    Args:
        rows: list of dict of float. One a question; a metric is averaged
            over the rows that have it.
        num_samples: int. Bootstrap samples, drawn with a fixed seed.
            Defaults to `2000`.

    Returns:
        dict of metric to mean, metric + `_interval` to `[low, high]`, and
        `questions`.
    """
    metrics = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = np.array([row[name] for row in rows if name in row])
        # The same samples for all metrics of the same questions.
        random = np.random.default_rng(0)
        drawn = random.integers(0, len(values), (num_samples, len(values)))
        low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
        metrics[name] = round(float(values.mean()), 4)
        metrics[f"{name}_interval"] = [
            round(float(low), 4),
            round(float(high), 4),
        ]
    metrics["questions"] = len(rows)
    return metrics


def _line(question, prediction, row, records):
    found = prediction.block_id >= 0
    return {
        **question.line,
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
        **row,
    }
