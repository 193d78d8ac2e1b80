"""Means, and differences of means, with percentile-bootstrap intervals."""

import numpy as np
from scipy import stats

NUM_SAMPLES = 2000
# Of written numbers: more than pages show, so that no number is rounded twice.
DIGITS = 6
# Sums of scores in another order differ by less, scores that differ by more.
_ROUNDING = 1e-12


def summarize(rows: list[dict]) -> dict:
    """Means of rows, with 95 % percentile-bootstrap intervals.

    Args:
        rows: list of dict of float. One a question; a metric is averaged
            over the rows that have it.

    Returns:
        dict of metric to mean, metric + `_interval` to `[low, high]`, and
        `questions`.
    """
    metrics = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        metrics[name] = round(float(np.mean(values)), DIGITS)
        metrics[f"{name}_interval"], _ = _bootstrap(values)
    metrics["questions"] = len(rows)
    return metrics


def _bootstrap(values):
    """A 95 % percentile interval, and the means of the samples."""
    found = stats.bootstrap(
        # SciPy wants two values or more.
        (np.resize(values, max(2, len(values))),),
        np.mean,
        n_resamples=NUM_SAMPLES,
        method="percentile",
        # All metrics of the same questions have the same samples.
        rng=np.random.default_rng(0),
    )
    interval = [round(float(end), DIGITS) for end in found.confidence_interval]
    return interval, found.bootstrap_distribution


def paired_difference(values: list[float], first: list[float]) -> dict:
    """How far a system is from the first, on the same questions.

    Args:
        values: list of float. A metric of each question.
        first: list of float. That of the first system, in the same order.

    Returns:
        dict of `difference`, the mean of `values` less that of `first`;
        `interval`, its 95 % percentile-bootstrap interval; `sign_flips`, the
        share of bootstrap samples in which it is 0 or has the other sign
        (`None` if it is 0 itself); `questions`. The samples are those of
        `summarize`: both systems' questions are drawn together.
    """
    differences = np.subtract(values, first)
    interval, samples = _bootstrap(differences)
    mean = float(differences.mean())
    is_none = abs(mean) < _ROUNDING
    keeps_sign = samples * np.sign(mean) > _ROUNDING
    return {
        "difference": round(mean, DIGITS),
        "interval": interval,
        "sign_flips": None if is_none else float(1 - keeps_sign.mean()),
        "questions": len(differences),
    }
