"""Where retrievers have the first block that holds an answer."""

import collections

import numpy as np

from realm_tf.text import answers

RECALL_AT = (1, 5, 20, 100)
# Blocks in which the first one with an answer is looked for.
NUM_RANKED = 100


def score(questions, rankings, records) -> list[dict]:
    """At which rank each retriever found an answer.

    Args:
        questions: list of `Question`.
        rankings: dict. Name of a retriever to the block ids that it found
            for each question, best first. Recall is that of the first one.
        records: `BlockRecords`.

    Returns:
        list of dict: floats `answer_recall@k`; for questions of which
        `gold_blocks` knows the block, `gold_recall@k`; `answer_ranks`, the
        rank of the first block with an answer by retriever, from 1, or
        `None`; `num_ranked`, how many blocks were looked at.
    """
    finder = answers.AnswerFinder(records.texts)
    gold = gold_blocks(questions, records)
    first = next(iter(rankings.values()))
    rows = []
    for number, question in enumerate(questions):
        ranks = {
            name: finder.first_rank(
                found[number],
                question.answers,
                question.answer_type,
                question.language,
            )
            for name, found in rankings.items()
        }
        row = at_ranks(next(iter(ranks.values())), "answer_recall")
        if gold[number] is not None:
            row.update(
                {
                    f"gold_recall@{k}": float(gold[number] in first[number][:k])
                    for k in RECALL_AT
                }
            )
        row["answer_ranks"] = ranks
        row["num_ranked"] = len(first[number])
        rows.append(row)
    return rows


def at_ranks(rank: int | None, name: str) -> dict[str, float]:
    """Whether a rank is among the first k, for each k of `RECALL_AT`.

    Args:
        rank: int. From 1; `None` where nothing was found.
        name: str. Of the metric, before its `@k`.

    Returns:
        dict of `NAME@k` to 1.0 or 0.0.
    """
    return {f"{name}@{k}": float((rank or np.inf) <= k) for k in RECALL_AT}


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
        holding = (
            block_id
            for block_id in blocks_of[evidence.get("title")]
            if sentence
            and sentence in " ".join(records.texts[block_id].split())
        )
        found.append(next(holding, None))
    return found
