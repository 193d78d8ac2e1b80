"""How much BM25 counts beside a model's own retriever, by known answers."""

import numpy as np

from realm_tf.text import answers

# Tried when one is fitted: 0, and 2 ** (-6 .. 2), two to a doubling.
WEIGHTS = (0.0, *(2.0 ** (step / 2) for step in range(-12, 5)))


def fit(questions, hybrid, texts, *, num_read: int, depth: int) -> float:
    """The weight that brings blocks with an answer among those that are read.

        1/n sum_i min(1, num_read / rank_i)

    rank_i is that of the first block that holds an answer, infinite without
    one among the first `depth`. The order of the blocks read is the reader's
    to choose; just below them counts nearly as much, so that a few hundred
    questions do (our choice). Equal sums: the smaller weight.

    Args:
        questions: list of `Question`, with answers.
        hybrid: `retrievers.Hybrid`. Its own weight does not matter.
        texts: sequence of str. Of the blocks, by id.
        num_read: int. Blocks that are read, at least 1.
        depth: int. Blocks of each ranking.

    Returns:
        float, one of `WEIGHTS`.
    """
    finder = answers.AnswerFinder(texts)
    found = hybrid.candidates([each.question for each in questions], depth)
    totals = np.zeros(len(WEIGHTS))
    for row, question in enumerate(questions):
        block_ids, dense, lexical = (
            found[name][row][~found["is_repeated"][row]]
            for name in ("block_ids", "dense", "lexical")
        )
        holds = np.array(
            [
                finder.contains(each, *question.accepted)
                for each in block_ids.tolist()
            ]
        )
        for place, weight in enumerate(WEIGHTS):
            order = np.argsort(-(dense + weight * lexical), kind="stable")
            (ranks,) = np.nonzero(holds[order[:depth]])
            if len(ranks):
                totals[place] += min(1, num_read / (1 + ranks[0]))
    return WEIGHTS[int(np.argmax(totals))]
