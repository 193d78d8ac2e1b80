"""What a model's towers find before any question was learned from.

No block is read: only the query tower and the index are asked.
"""

import json

from realm_tf import stages
from realm_tf.data import open_qa as data
from realm_tf.data import schema
from realm_tf.evaluation import bootstrap
from realm_tf.evaluation import open_qa as evaluation
from realm_tf.text import answers

_RETRIEVER = "zero_shot"


def zero_shot(
    model: str, blocks: str, index: str, questions: str, output: str
) -> dict:
    """Measures the recall of a model's towers.

    Writes metrics.json (answer_recall@1, @5, @20 and, where questions name
    their evidence, gold_recall@k, with 95 % bootstrap intervals) and
    retrieved.jsonl: each line of `questions` with the block ids found.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        index: str. Index directory, made with this model's block tower.
        questions: str. JSONL file with answers.
        output: str. Directory to make.

    Returns:
        dict, the metrics, as `evaluation.bootstrap.summarize`.

    Raises:
        InputError: if the inputs are missing or do not belong together.
    """
    from realm_tf.retrieval.corpus import Corpus
    from realm_tf.retrieval.retrievers import Dense

    asked = data.read_questions(questions)
    corpus = Corpus.load(model, blocks, index)
    with stages.write(
        output,
        kind=schema.EVALUATION,
        parameters={"retriever": _RETRIEVER},
        parents={
            "model": corpus.loaded.metadata["fingerprint"],
            "index": stages.read(index, kind=schema.INDEX)["fingerprint"],
            "questions": stages.fingerprint(stages.read_bytes(questions)),
        },
    ) as stage:
        _, block_ids = Dense(corpus).search(
            [question.question for question in asked],
            max(evaluation.RECALL_AT),
        )
        retrieved = [
            # As evaluation has it: where nothing is asked, nothing is found.
            found.tolist() if question.question.strip() else []
            for question, found in zip(asked, block_ids, strict=True)
        ]
        rows = _recall(asked, retrieved, corpus.records)
        metrics = bootstrap.summarize(rows)
        stages.write_text(
            stage.path("metrics.json"), json.dumps(metrics, indent=2)
        )
        lines = (
            json.dumps(
                {**question.line, "retrieved": found, **row},
                ensure_ascii=False,
            )
            for question, found, row in zip(asked, retrieved, rows, strict=True)
        )
        stages.write_text(
            stage.path("retrieved.jsonl"),
            "".join(f"{line}\n" for line in lines),
        )
        stage.metadata["metrics"] = metrics
    return metrics


def _recall(asked, retrieved, records):
    """The recall of each question, as a dict of float."""
    finder = answers.AnswerFinder(records.texts)
    gold = evaluation.gold_blocks(asked, records)
    rows = []
    for question, found, gold_block in zip(asked, retrieved, gold, strict=True):
        rank = finder.first_rank(
            found, question.answers, question.answer_type
        ) or float("inf")
        row = {
            f"answer_recall@{k}": float(rank <= k) for k in evaluation.RECALL_AT
        }
        if gold_block is not None:
            for k in evaluation.RECALL_AT:
                row[f"gold_recall@{k}"] = float(gold_block in found[:k])
        rows.append(row)
    return rows
