"""The losses again, as loops over numbers in float64, a row at a time."""

import numpy as np


def logsumexp(values):
    """Of no values: minus infinity. Shifted, as float64 ends at exp(710)."""
    values = [float(value) for value in values]
    if not values:
        return -np.inf
    largest = max(values)
    return largest + np.log(sum(np.exp(v - largest) for v in values))


def log_softmax(scores):
    return np.array(scores, "float64") - logsumexp(scores)


def dot(one, two):
    return sum(float(a) * float(b) for a, b in zip(one, two, strict=True))


def span_loss(scores, correct, mask):
    """`losses.marginal_span_loss` of one row."""
    allowed = [s for s, m in zip(scores, mask, strict=True) if m]
    right = [
        s for s, m, c in zip(scores, mask, correct, strict=True) if m and c
    ]
    return logsumexp(allowed) - logsumexp(right) if right else 0.0


def none_loss(scores, correct, mask, none_is_right):
    """`losses.none_span_loss` of one row."""
    odds = sum(np.exp(float(s)) for s, m in zip(scores, mask, strict=True) if m)
    right = sum(
        np.exp(float(s))
        for s, m, c in zip(scores, mask, correct, strict=True)
        if m and c
    )
    right += none_is_right
    return np.log(1 + odds) - np.log(right) if right else 0.0


def teacher_loss(scores, teacher_scores, mask, temperature=1.0):
    """`losses.teacher_loss` of one row."""
    own, *others = (
        log_softmax(np.asarray(each)[mask] / temperature)
        for each in (scores, *teacher_scores)
    )
    wanted = np.mean([np.exp(each) for each in others], axis=0)
    return temperature**2 * sum(
        q * (np.log(q) - log_p)
        for q, log_p in zip(wanted, own, strict=True)
        if q
    )


def marginal(scores, log_probs, mask_weights, mask, form):
    """`losses.marginal_log_likelihood` of one row, from its f(x, z).

    Args:
        scores: `(num_candidates,)`.
        log_probs: `(num_candidates, num_masks)`.
        mask_weights: `(num_masks,)`.
        mask: `(num_candidates,)`.
        form: `"token"` or `"span"`.
    """
    candidates, masked = np.flatnonzero(mask), np.flatnonzero(mask_weights)
    groups = [[m] for m in masked] if form == "token" else [masked]
    found = np.zeros(len(mask_weights))
    for place, group in enumerate(groups):
        if len(group) and len(candidates):
            total = logsumexp(scores[k] for k in candidates)
            found[masked[place]] = logsumexp(
                scores[k] - total + sum(float(log_probs[k][m]) for m in group)
                for k in candidates
            )
    return found if form == "token" else found.sum()


def in_batch(queries, blocks, targets, mask):
    """`losses.in_batch_softmax`: losses, and ranks from 1.

    Args:
        mask: `(num_blocks,)` or `(num_queries, num_blocks)`.
    """
    mask = np.broadcast_to(mask, (len(queries), len(blocks)))
    losses, ranks = [], []
    for query, target, allowed in zip(queries, targets, mask, strict=True):
        scores = {j: dot(query, blocks[j]) for j in np.flatnonzero(allowed)}
        is_example = target in scores
        own = scores[target] if is_example else 0.0
        losses.append(logsumexp(scores.values()) - own if is_example else 0.0)
        ranks.append(
            1
            + sum(s > own or s == own and j < target for j, s in scores.items())
        )
    return np.array(losses), np.array(ranks)
