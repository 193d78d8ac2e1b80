"""How much retrieval counts beside the reader, by known answers."""

import numpy as np

from realm_tf.text import answers

# What the reader learns with, and what is kept where little is known.
AS_LEARNED = 1.0
# Questions that say something, below which nothing is fitted (our choice).
_NUM_NEEDED = 20
# Of the pull towards `AS_LEARNED`, a question (our choice).
_PENALTY = 1e-3
# A weight of 0 would leave the choice to the reader, an infinite one to the
# retriever.
_LOWEST, _HIGHEST = 0.0, 16.0


def fit(questions, predictions) -> float:
    """The weight with which the best span of a right block is likeliest.

        p(z) = exp(u g(z) + v f(x,z)) / sum_z' exp(u g(z') + v f(x,z'))

    g is the reader's score of the best span of a block, f(x,z) its relevance; u
    and v are those of the highest likelihood that the block chosen has a right
    span, v / u is the weight. A reader that has learned from one block at a time
    gives scores that cannot be compared from block to block: then the weight is
    above 1.

    Args:
        questions: list of `Question`, with answers.
        predictions: list of `Prediction`, with a weight of `AS_LEARNED`.

    Returns:
        float; `AS_LEARNED` if fewer than 20 questions have right and wrong
        spans.
    """
    rows = [
        row
        for question, prediction in zip(questions, predictions, strict=True)
        if (row := _row(question, prediction)) is not None
    ]
    if len(rows) < _NUM_NEEDED:
        return AS_LEARNED

    def loss(parameters):
        total = 0.0
        for features, is_right in rows:
            scores = features @ parameters
            total += np.logaddexp.reduce(scores)
            total -= np.logaddexp.reduce(scores[is_right])
        pull = _PENALTY * (parameters[1] - AS_LEARNED * parameters[0]) ** 2
        return total / len(rows) + pull

    # Whoever only reads a weight need not wait for it.
    import scipy.optimize

    bounds = [(1e-3, None), (0, None)]
    of_reader, of_retriever = scipy.optimize.minimize(
        loss, np.ones(2), bounds=bounds
    ).x
    found = np.clip(of_retriever / of_reader, _LOWEST, _HIGHEST)
    # Beyond that it is the order in which sums are made.
    return round(float(found), 3)


def _row(question, prediction):
    """`(features, is_right)` of the blocks; `None` if these say nothing."""
    read = [each for each in prediction.candidates if each.answer]
    is_right = np.array(
        [answers.is_correct(each.answer, *question.accepted) for each in read],
        bool,
    )
    if is_right.all() or not is_right.any():
        return None
    # Up to a number that all blocks of a question have in common.
    relevance = np.array([each.log_prob for each in read])
    scores = np.array([each.score for each in read])
    return np.stack([scores - relevance, relevance], axis=1), is_right
