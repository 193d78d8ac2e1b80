"""An evaluation as one page: metrics, recall, question words, examples."""

import collections
import json
import math
import re

import numpy as np
from markupsafe import Markup
from scipy import stats

from realm_tf.artifacts import figures
from realm_tf.artifacts import html_page
from realm_tf.text import answers as answer_rules

REPORT = "report.html"
QUESTION_WORDS = (
    *("who", "what", "when", "where", "which"),
    *("how many", "how", "other"),
)
# At most, of right answers and of wrong ones.
NUM_EXAMPLES = 25

_INTERVAL = "_interval"
_WEB = re.compile(r"https?://", re.IGNORECASE)
_QUESTION_WORD = re.compile(
    r"\b(?:(how)\W+(many)|(who)(?:m|se)?|(what|when|where|which|how))\b"
)


def write(
    path: str,
    asked: list,
    lines: list[dict],
    *,
    title: str,
    metrics: dict,
    parameters: dict,
) -> None:
    """Writes the page of an evaluation, one HTML file that needs nothing else.

    Args:
        path: str. The file to write; an existing file is replaced.
        asked: list of `Question`.
        lines: list of dict. The line of predictions.jsonl of each question;
            without `exact_match` the page shows recall alone.
        title: str.
        metrics: dict. As in metrics.json: metric to mean, metric +
            `_interval` to `[low, high]`, and further numbers.
        parameters: dict. Those of the evaluation, JSON values.

    Raises:
        InputError: if the file cannot be written.
    """
    is_answered = "exact_match" in lines[0]
    html_page.write(
        path,
        "report.html",
        title=title,
        subtitle=f"{len(lines):,} questions. Intervals hold 95 %: of metrics by "
        "bootstrap, of question words by Wilson's score.",
        metrics=metrics_table(metrics),
        recall=_recall_chart(recall_curve(lines)),
        words=by_question_word(lines) if is_answered else {},
        examples=[
            _example(asked[row], lines[row])
            for row in (choose_examples(lines) if is_answered else ())
        ],
        parameters={
            metric_label(name): _format(each)
            for name, each in parameters.items()
        },
    )


def metric_label(name: str) -> str:
    """A metric's name as people write it."""
    return name.replace("_", " ").replace("f1", "F1")


def metric_names(metrics: dict) -> list[str]:
    """The metrics that have an interval, in their order."""
    return [name for name in metrics if f"{name}{_INTERVAL}" in metrics]


def format_interval(interval) -> str:
    """`low to high`, three digits each."""
    low, high = interval
    return f"{low:.3f} to {high:.3f}"


def metrics_table(metrics: dict) -> tuple[list, list]:
    """Header and rows of all metrics, those with an interval first."""
    measured = metric_names(metrics)
    rows = [
        [
            metric_label(name),
            f"{metrics[name]:.3f}",
            format_interval(metrics[f"{name}{_INTERVAL}"]),
        ]
        for name in measured
    ]
    rows += [
        [metric_label(name), _format(value), ""]
        for name, value in metrics.items()
        if name not in measured and not name.endswith(_INTERVAL)
    ]
    return ["metric", "mean", "95 %"], rows


def recall_curve(lines: list[dict]) -> list[float]:
    """Share of questions with an answer among the first k blocks.

    Args:
        lines: list of dict. With `answer_rank`, the 1-based rank of the first
            block that holds an answer (`None` without one), and `num_ranked`,
            the number of ranked blocks; lines without are left out.

    Returns:
        list of float, for k = 1 to the greatest `num_ranked`.
    """
    ranked = [line for line in lines if "num_ranked" in line]
    longest = max((line["num_ranked"] for line in ranked), default=0)
    ranks = [line["answer_rank"] or math.inf for line in ranked]
    found = np.less_equal.outer(ranks, np.arange(1, longest + 1))
    return found.mean(axis=0).tolist() if longest else []


def by_question_word(lines: list[dict]) -> dict[str, dict]:
    """Exact match by question word.

    Args:
        lines: list of dict. With `exact_match`.

    Returns:
        dict of each of `QUESTION_WORDS` that occurs to dict with `questions`
        (int), `exact_match` (float) and `interval`, the 95 % score interval
        (list of two floats). A bootstrap would state that 5 right answers out
        of 5 leave no doubt.

    References:
        [Wilson, 1927](https://doi.org/10.1080/01621459.1927.10502953).
    """
    members = collections.defaultdict(list)
    for line in lines:
        word = question_word(line["question"])
        members[word].append(line["exact_match"])
    found = {}
    for word in filter(members.get, QUESTION_WORDS):
        num_right, num = int(sum(members[word])), len(members[word])
        test = stats.binomtest(num_right, num)
        interval = test.proportion_ci(method="wilson")
        found[word] = {
            "questions": num,
            "exact_match": num_right / num,
            "interval": [float(interval.low), float(interval.high)],
        }
    return found


def question_word(question: str) -> str:
    """The first question word of a question, one of `QUESTION_WORDS`.

    "Whom" and "whose" are "who"; "how much" and the like are "how".
    """
    found = _QUESTION_WORD.search(question.lower())
    return " ".join(filter(None, found.groups())) if found else "other"


def choose_examples(lines: list[dict]) -> list[int]:
    """Right and then wrong answers, spread evenly over the file.

    Args:
        lines: list of dict. With `exact_match`.

    Returns:
        list of int, numbers of lines.
    """
    chosen = []
    for is_right in (True, False):
        kind = [
            row
            for row, line in enumerate(lines)
            if bool(line["exact_match"]) == is_right
        ]
        chosen += kind[:: -(-len(kind) // NUM_EXAMPLES) or 1]
    return chosen


def _recall_chart(curve):
    """The curve as SVG; `None` where nothing was retrieved."""
    if not curve:
        return None
    figure = figures.new_figure(4.4, 2.8)
    axes = figure.subplots()
    ks = range(1, len(curve) + 1)
    axes.plot(ks, curve, color=figures.COLORS["c0"], marker=".")
    axes.set_ylim(0, 1.05)
    figures.finish_axes(
        axes, x_label="k, blocks retrieved", y_label="answer recall@k"
    )
    return Markup(figures.to_svg(figure))


def _format(value):
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _example(question, line):
    url = line["url"]
    return {
        **line,
        "accepted": question.answers,
        "is_pattern": question.answer_type == "regex",
        # A link may come from a corpus as well: only pages are opened.
        "link": url if _WEB.match(url) else None,
        "candidates": [
            {
                **candidate,
                "probability": math.exp(candidate["log_prob"]),
                "is_right": answer_rules.is_correct(
                    candidate["answer"], *question.accepted
                ),
            }
            for candidate in line["candidates"]
        ],
    }
