"""An evaluation as one page: metrics, curves, groups, examples."""

import dataclasses
import json
import math
import re

from realm_tf.artifacts import html_page
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import charts
from realm_tf.text import answers as answer_rules

REPORT = "report.html"
# Of right answers, and as many of wrong ones.
NUM_EXAMPLES = 25
RECALL_TABLE_AT = (1, 2, 5, 10, 20, 50, 100)

_INTERVAL = "_interval"
_WEB = re.compile(r"https?://", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a report or a comparison, as report.html shows it.

    Args:
        heading: str.
        note: str. Below the heading. Defaults to none.
        confidence: dict. What `_confidence` gives. Defaults to none.
        chart: `charts.Chart`. Defaults to `None`.
        table: tuple of header (list of str), rows (lists of cells: str, or
            a bar as (share, interval)) and, if any, the columns of running
            text (tuple of int). Defaults to none.
        examples: list of dict. What `_example` gives. Defaults to none.
    """

    heading: str
    note: str = ""
    confidence: dict | None = None
    chart: charts.Chart | None = None
    table: tuple = ()
    examples: list[dict] = dataclasses.field(default_factory=list)


def write(
    path: str,
    *,
    title: str,
    metrics: dict,
    lines: list[dict],
    parameters: dict,
) -> None:
    """Writes the page of an evaluation, one HTML file that needs nothing else.

    Args:
        path: str. The file to write; one that is there is replaced.
        title: str.
        metrics: dict. What metrics.json holds: metric to mean, metric +
            `_interval` to `[low, high]`, and further numbers.
        lines: list of dict. Those of predictions.jsonl, one or more; without
            `exact_match` the page is of recall alone.
        parameters: dict. What the evaluation was given, JSON values.

    Raises:
        InputError: if the file cannot be written.
    """
    answered = "exact_match" in lines[0]
    html_page.write(
        path,
        "report.html",
        title=title,
        subtitle=f"{len(lines):,} questions. Intervals hold 95 %: of metrics by "
        "bootstrap, of groups by Wilson's score.",
        sections=[
            Section("Metrics", table=metrics_table(metrics)),
            *recall(breakdowns.recall_curves(lines)),
            *(_of_answers(lines) if answered else ()),
            _made_with(parameters),
        ],
    )


def _of_answers(lines):
    """The sections that need answers; without a reader there are none."""
    words = breakdowns.by_group(
        lines,
        lambda line: breakdowns.question_word(line["question"]),
        breakdowns.QUESTION_WORDS,
    )
    lengths = breakdowns.by_group(
        lines, breakdowns.answer_length, breakdowns.answer_lengths()
    )
    bins = breakdowns.reliability(lines)
    right, wrong = choose_examples(lines)
    return [
        Section("By question word", table=_groups("word", words)),
        Section(
            "By length of the answer",
            note="Words of the shortest accepted answer, normalised.",
            table=_groups("words", lengths),
        ),
        Section(
            "Confidence",
            confidence=_confidence(lines, bins),
            table=_groups(
                "confidence",
                {
                    f"{b['low']:.1f} to {b['high']:.1f}, "
                    f"mean {b['confidence']:.3f}": b
                    for b in bins
                },
            ),
        ),
        *(
            Section(
                f"{verdict}: {len(chosen)} examples",
                examples=list(map(_example, chosen)),
            )
            for verdict, chosen in (("Right", right), ("Wrong", wrong))
            if chosen
        ),
    ]


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


def choose_examples(lines: list[dict]) -> tuple[list[dict], list[dict]]:
    """Right and wrong answers, spread evenly over the file.

    Each kind is divided into `NUM_EXAMPLES` equal parts; the middle line of each
    is chosen, so that the same file shows the same examples.

    Args:
        lines: list of dict. With `exact_match`.

    Returns:
        (right, wrong), lists of lines in their order.
    """
    chosen = []
    for is_right in (True, False):
        kind = [line for line in lines if bool(line["exact_match"]) == is_right]
        count = min(NUM_EXAMPLES, len(kind))
        chosen.append(
            [
                kind[(2 * part + 1) * len(kind) // (2 * count)]
                for part in range(count)
            ]
        )
    return tuple(chosen)


def recall(curves: dict[str, list[float]]) -> list[Section]:
    """The section of recall curves, with a table of them.

    Args:
        curves: dict of label to the recall at k = 1, 2, ...

    Returns:
        list of one `Section`, or none without curves.
    """
    if not any(curves.values()):
        return []
    longest = max(map(len, curves.values()))
    shown = [k for k in RECALL_TABLE_AT if k <= longest]
    chart = charts.line_chart(
        {name: list(enumerate(curve, 1)) for name, curve in curves.items()},
        description="Share of questions with an answer among the first k "
        "blocks, for each retriever; the table below has its numbers.",
        x_label="k, blocks retrieved",
        y_label="answer recall@k",
        log_x=True,
    )
    rows = [
        [
            name,
            *(f"{curve[k - 1]:.3f}" if k <= len(curve) else "" for k in shown),
        ]
        for name, curve in curves.items()
    ]
    return [
        Section(
            "Recall",
            note="Share of questions with an accepted answer among the first "
            "k blocks.",
            chart=chart,
            table=(["retriever", *(f"@{k}" for k in shown)], rows),
        )
    ]


def metrics_table(metrics: dict) -> tuple[list, list]:
    """Header and rows of all metrics, those with an interval first.

    The last cell of a row is empty, or the mean and the interval as numbers,
    of which the page draws a bar.
    """
    rows = [
        [
            metric_label(name),
            f"{metrics[name]:.3f}",
            format_interval(metrics[f"{name}{_INTERVAL}"]),
            (metrics[name], metrics[f"{name}{_INTERVAL}"]),
        ]
        for name in metric_names(metrics)
    ]
    rows += [
        [metric_label(name), _format(value), "", ""]
        for name, value in metrics.items()
        if f"{name}{_INTERVAL}" not in metrics and not name.endswith(_INTERVAL)
    ]
    return ["metric", "mean", "95 %", ""], rows


def _format(value):
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _made_with(parameters):
    rows = [
        [metric_label(name), _format(each)] for name, each in parameters.items()
    ]
    return Section("Made with", table=(["", "value"], rows, (1,)))


def _groups(heading, groups):
    rows = [
        [
            name,
            f"{group['questions']:,}",
            f"{group['exact_match']:.3f}",
            format_interval(group["interval"]),
            (group["exact_match"], group["interval"]),
        ]
        for name, group in groups.items()
    ]
    return [heading, "questions", "exact match", "95 %", ""], rows


def _confidence(lines, bins):
    curve = breakdowns.risk_coverage(lines)
    return {
        "coverage_at": curve["coverage_at"],
        "area": curve["area"],
        "wrong": 1 - sum(line["exact_match"] for line in lines) / len(lines),
        "chart": charts.line_chart(
            {"risk": curve["points"]},
            description="Share of wrong answers among the questions of "
            "highest confidence, over the share that is answered.",
            x_label="coverage, share of questions answered",
            y_label="risk, share of them wrong",
        ),
        "reliability": charts.line_chart(
            {
                "exact match": [
                    (b["confidence"], b["exact_match"]) for b in bins
                ]
            },
            intervals=[b["interval"] for b in bins],
            description="Exact match over confidence, in bins; the table "
            "below has its numbers.",
            x_label="mean confidence",
            y_label="exact match",
        ),
    }


def _example(line):
    accepted = breakdowns.accepted_answers(line)
    answer_type = line.get("answer_type", "string")
    url = line.get("url") or ""
    return {
        **line,
        "answer_type": answer_type,
        "accepted": accepted,
        # A link may come from a corpus as well: nothing but a page is opened.
        "link": url if _WEB.match(url) else None,
        "ranks": _ranks(line),
        "candidates": [
            {
                **candidate,
                "probability": math.exp(candidate["log_prob"]),
                "is_right": answer_rules.is_correct(
                    candidate["answer"],
                    accepted,
                    answer_type,
                    line.get("language", answer_rules.ENGLISH),
                ),
            }
            for candidate in line["candidates"]
        ],
    }


def _ranks(line):
    # Nothing was looked for where nothing was asked.
    if not line.get("num_ranked"):
        return ""
    return ", ".join(
        f"{retriever} {'none' if rank is None else f'no. {rank}'}"
        for retriever, rank in line["answer_ranks"].items()
    )
