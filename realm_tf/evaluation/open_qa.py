"""Measures a model on a file of questions with answers.

  realm evaluate --model DIR --blocks DIR --index DIR --questions F --output DIR
  realm evaluate ... --retriever bm25       the same reader on BM25's blocks
  realm evaluate ... --compare bm25 hybrid  their recall beside the model's

Writes metrics.json (exact_match, f1, answer_recall@1, @5, @20, with 95 %
bootstrap intervals), predictions.jsonl and report.html. Where a question names
its evidence ("evidence": {"title": ..., "sentence": ...}, as the embedded ones
do), gold_recall@k tells how often that very block is among the first k.

Retrievers: realm (the model's own tower over the index), bm25, hybrid (both,
fused by reciprocal ranks), none (closed-book: the masked LM of a pre-trained
model answers without any block), oracle (the model's own, but blocks with an
answer first: what is left to the reader). reading_accuracy is exact_match
of the questions for which a block that was read holds an answer.

Confidences are calibrated with --calibration DIR, an evaluation of other
questions (those of dev), whose temperature and thresholds are then used here.
"""

import collections
import dataclasses
import json

import numpy as np

from realm_tf import stages
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.evaluation import bootstrap
from realm_tf.evaluation.oracle import Oracle
from realm_tf.retrieval import retrievers
from realm_tf.text import answers

CLOSED_BOOK = "none"
ORACLE = "oracle"
RETRIEVERS = (*retrievers.NAMES, CLOSED_BOOK, ORACLE)
RECALL_AT = (1, 5, 20)
# Blocks in which the first one with an answer is looked for.
NUM_RANKED = 100
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
        choices=RETRIEVERS,
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
        help="blocks read for a question (default: 5)",
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
        interval = metrics.get(f"{name}_interval")
        if interval is None:
            print(f"{name:<{width}}{metrics[name]}")
        else:
            low, high = interval
            print(
                f"{name:<{width}}{metrics[name]:.3f}   "
                f"95 % {low:.3f} to {high:.3f}"
            )
    print(stages.join(args.output, REPORT))


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
            `"oracle"`: see `evaluation.oracle`. Defaults to `"realm"`.
        compare: list of str. Further retrievers whose recall is measured.
        num_reader_blocks: int. Blocks read. Defaults to `5`.
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
    from realm_tf.evaluation import calibration as calibrations
    from realm_tf.evaluation.reports import report

    _check(retriever, compare, blocks, index)
    asked = data.read_questions(questions)
    known = calibrations.read(calibration) if calibration else None
    if known and known.aggregate_answers != aggregate_answers:
        raise InputError(
            f"{calibration} was made with aggregate_answers="
            f"{known.aggregate_answers}: use the same here."
        )
    parameters = {
        "retriever": retriever,
        "compare": list(compare),
        "num_reader_blocks": num_reader_blocks,
        "aggregate_answers": aggregate_answers,
        "temperature": known.temperature if known else 1.0,
    }
    answered = _answer(
        model,
        blocks,
        index,
        asked,
        retriever=retriever,
        compare=compare,
        num_reader_blocks=num_reader_blocks,
        progress=progress,
    )
    with stages.write(
        output,
        kind=schema.EVALUATION,
        parameters=parameters,
        parents={
            **answered.parents,
            "questions": stages.fingerprint(stages.read_bytes(questions)),
        },
    ) as stage:
        fitted = calibrations.fit(
            asked, answered.predictions, aggregate=aggregate_answers
        )
        predictions = [
            calibrations.choose(
                prediction,
                temperature=parameters["temperature"],
                aggregate=aggregate_answers,
            )
            for prediction in answered.predictions
        ]
        rows = score(asked, predictions, answered.records, answered.rankings)
        metrics = bootstrap.summarize([_metrics_of(row) for row in rows])
        if known:
            metrics.update(_at_thresholds(known, predictions, rows))
        lines = [
            _line(question, prediction, row, answered.records)
            for question, prediction, row in zip(
                asked, predictions, rows, strict=True
            )
        ]
        stages.write_text(
            stage.path("metrics.json"), json.dumps(metrics, indent=2)
        )
        stages.write_text(
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
        stage.metadata.update(
            metrics=metrics, calibration=dataclasses.asdict(fitted)
        )
    return metrics


def _check(retriever, compare, blocks, index):
    for name in (retriever, *compare):
        if name not in RETRIEVERS:
            raise InputError(
                f"`retriever` must be one of {RETRIEVERS}. Received: {name!r}"
            )
    if retriever == CLOSED_BOOK:
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


@dataclasses.dataclass
class _Answered:
    """Answers, and what every retriever found for each question."""

    predictions: list
    parents: dict
    records: object = None
    # Name to block ids of each question, best first.
    rankings: dict = dataclasses.field(default_factory=dict)


def _answer(
    model,
    blocks,
    index,
    asked,
    *,
    retriever,
    compare,
    num_reader_blocks,
    progress,
):
    texts = [question.question for question in asked]
    if retriever == CLOSED_BOOK:
        return _answer_closed_book(model, texts, progress)
    from realm_tf.evaluation.predict import Predictor
    from realm_tf.retrieval.corpus import Corpus

    corpus = Corpus.load(model, blocks, index)
    predictor = Predictor(
        corpus,
        num_candidates=NUM_RANKED,
        num_reader_blocks=num_reader_blocks,
    )

    search = None
    if retriever == ORACLE:
        dense = retrievers.Dense(corpus)
        search = Oracle(
            dense, corpus.records.texts, asked, depth=NUM_RANKED
        ).search
    elif retriever != "realm":
        search = retrievers.make(retriever, corpus).search
    predictions = predictor.predict(texts, search=search, progress=progress)
    rankings = {retriever: [p.retrieved for p in predictions]}
    for name in compare:
        if name not in rankings:
            found = retrievers.make(name, corpus).search(texts, NUM_RANKED)
            rankings[name] = found[1].tolist()
    return _Answered(
        predictions,
        {
            "model": corpus.loaded.metadata["fingerprint"],
            "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
        },
        corpus.records,
        rankings,
    )


def _answer_closed_book(model, asked, progress):
    from realm_tf.evaluation.closed_book import ClosedBook
    from realm_tf.models import model_directory

    loaded = model_directory.load(model)
    return _Answered(
        ClosedBook(loaded).predict(asked, progress),
        {"model": loaded.metadata["fingerprint"]},
    )


def score(questions, predictions, records, rankings) -> list[dict]:
    """Exact match, F1, and at which rank each retriever found an answer.

    A pattern has no words to share: its F1 is 1 or 0, as the match is.

    Args:
        questions: list of `Question`.
        predictions: list of `Prediction`.
        records: `BlockRecords`; `None` for closed-book answers.
        rankings: dict. Name of a retriever to the block ids that it found
            for each question, best first. The first one's blocks were read.

    Returns:
        list of dict: floats `exact_match`, `f1`, `answer_recall@k` (of the
        retriever whose blocks were read); for questions of which
        `gold_blocks` knows the block, `gold_recall@k`; where a block that was
        read holds an answer, `reading_accuracy`; `answer_ranks`, the
        rank of the first block with an answer by retriever, from 1, or
        `None`; `num_ranked`, how many blocks were looked at.
    """
    rows = []
    finder = answers.AnswerFinder(records.texts) if records else None
    gold = gold_blocks(questions, records) if records else []
    for number, (question, prediction) in enumerate(
        zip(questions, predictions, strict=True)
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
        ranks = {
            name: finder.first_rank(
                found[number], question.answers, question.answer_type
            )
            for name, found in rankings.items()
        }
        if ranks:
            retrieved = next(iter(rankings.values()))[number]
            rank = next(iter(ranks.values())) or np.inf
            for k in RECALL_AT:
                row[f"answer_recall@{k}"] = float(rank <= k)
            if rank <= len(prediction.candidates):
                row["reading_accuracy"] = row["exact_match"]
            if gold[number] is not None:
                for k in RECALL_AT:
                    row[f"gold_recall@{k}"] = float(
                        gold[number] in retrieved[:k]
                    )
            row["answer_ranks"] = ranks
            row["num_ranked"] = len(retrieved)
        rows.append(row)
    return rows


def _metrics_of(row):
    """What is averaged of a row of `score`."""
    own = {k: v for k, v in row.items() if isinstance(v, float)}
    # The first retriever's are `answer_recall@k`.
    for name, rank in list(row.get("answer_ranks", {}).items())[1:]:
        for k in RECALL_AT:
            own[f"{name}_answer_recall@{k}"] = float((rank or np.inf) <= k)
    return own


def _at_thresholds(known, predictions, rows):
    """What thresholds found elsewhere do here."""
    found = {"temperature": known.temperature}
    correct = np.array([row["exact_match"] for row in rows])
    shares = np.array([p.confidence for p in predictions])
    for risk, at in known.thresholds.items():
        given = shares >= at["threshold"]
        found[f"coverage@risk_{risk}"] = round(float(given.mean()), 4)
        found[f"wrong@risk_{risk}"] = (
            round(float(1 - correct[given].mean()), 4) if given.any() else 0.0
        )
    return found


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


def _line(question, prediction, row, records):
    found = records is not None and prediction.block_id >= 0
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
        "nbest": [
            {"answer": s.answer, "score": s.score, "block_id": s.block_id}
            for s in prediction.nbest[:NUM_SHOWN]
        ],
        **row,
    }
