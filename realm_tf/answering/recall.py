"""At which rank a retriever has the first block that holds an answer."""

import collections

import numpy as np

from realm_tf.text import answers

RECALL_AT = (1, 5, 20, 100)
# Blocks in which the first one with an answer is looked for.
NUM_RANKED = 100


def score(questions, ranking, records) -> list[dict]:
    """At which rank a retriever found an answer.

    Args:
        questions: list of `Question`.
        ranking: list of lists of int. The block ids that it found for each
            question, best first.
        records: `BlockRecords`.

    Returns:
        list of dict: floats `answer_recall@k` and, for questions whose block
        `gold_blocks` knows, `gold_recall@k`; `answer_rank`, the rank of the
        first block with an answer, from 1, or `None`; `num_ranked`, the
        number of blocks found.
    """
    finder = answers.AnswerFinder(records.texts)
    rows = []
    for question, found, gold in zip(
        questions, ranking, gold_blocks(questions, records), strict=True
    ):
        rank = finder.first_rank(found, *question.accepted)
        row = {
            f"answer_recall@{k}": float((rank or np.inf) <= k)
            for k in RECALL_AT
        }
        if gold is not None:
            row |= {
                f"gold_recall@{k}": float(gold in found[:k]) for k in RECALL_AT
            }
        rows.append({**row, "answer_rank": rank, "num_ranked": len(found)})
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
        holding = (
            block_id
            for block_id in blocks_of[evidence.get("title")]
            if sentence
            and sentence in " ".join(records.texts[block_id].split())
        )
        found.append(next(holding, None))
    return found
