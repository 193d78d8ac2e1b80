"""An evaluation as one page: metrics, curves, groups, examples."""

import json
import math
import re

from realm_tf.errors import InputError
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import charts
from realm_tf.evaluation.reports import page
from realm_tf.text import answers as answer_rules

REPORT = "report.html"
# Of right answers, and as many of wrong ones.
NUM_EXAMPLES = 25
RECALL_TABLE_AT = (1, 2, 5, 10, 20, 50, 100)

_INTERVAL = "_interval"
_WEB = re.compile(r"https?://", re.IGNORECASE)


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
            `_interval` to `[low, high]`, further numbers, and dicts of them.
        lines: list of dict. Those of predictions.jsonl; without
            `exact_match` the page is of recall alone.
        parameters: dict. What the evaluation was given, JSON values.

    Raises:
        InputError: if there is no line, or the file cannot be written.
    """
    if not lines:
        raise InputError(
            f"{path} would report on no question: expected one line of "
            "predictions or more."
        )
    answered = "exact_match" in lines[0]
    page.write(
        path,
        title=title,
        subtitle=f"{len(lines):,} questions. Intervals hold 95 %: of metrics by "
        "bootstrap, of groups by Wilson's score.",
        sections=[
            ("Metrics", _metrics(metrics)),
            *(
                (metric_label(name).capitalize(), _values(value))
                for name, value in metrics.items()
                if isinstance(value, dict)
            ),
            ("Recall", recall(breakdowns.recall_curves(lines))),
            *(_of_answers(lines) if answered else ()),
            ("Made with", _values(parameters)),
        ],
    )


def _of_answers(lines):
    """The sections that need answers; without a reader there are none."""
    right, wrong = choose_examples(lines)
    return [
        ("By question word", _by_question_word(lines)),
        ("By length of the answer", _by_answer_length(lines)),
        ("Confidence", _confidence(lines)),
        (f"Right: {len(right)} examples", _examples(right)),
        (f"Wrong: {len(wrong)} examples", _examples(wrong)),
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


def choose_examples(
    lines: list[dict], *, number: int = NUM_EXAMPLES
) -> tuple[list[dict], list[dict]]:
    """Right and wrong answers, spread evenly over the file.

    Each kind is divided into `number` equal parts; the middle line of each
    is chosen, so that the same file shows the same examples.

    Args:
        lines: list of dict. With `exact_match`.
        number: int. Of each kind, at most. Defaults to `25`.

    Returns:
        (right, wrong), lists of lines in their order.
    """
    chosen = []
    for is_right in (True, False):
        kind = [line for line in lines if bool(line["exact_match"]) == is_right]
        count = min(number, len(kind))
        chosen.append(
            [
                kind[(2 * part + 1) * len(kind) // (2 * count)]
                for part in range(count)
            ]
        )
    return tuple(chosen)


def recall(curves: dict[str, list[float]]) -> page.Markup:
    """Recall curves and a table of them.

    Args:
        curves: dict of label to the recall at k = 1, 2, ...

    Returns:
        `page.Markup`, empty without curves.
    """
    if not any(curves.values()):
        return page.Markup()
    longest = max(map(len, curves.values()))
    shown = [k for k in RECALL_TABLE_AT if k <= longest]
    chart = charts.line_chart(
        [
            charts.Series(name, list(enumerate(curve, 1)))
            for name, curve in curves.items()
        ],
        description="Share of questions with an answer among the first k "
        "blocks, for each retriever; the table below has its numbers.",
        x_label="k, blocks retrieved",
        y_label="answer recall@k",
        log_x=True,
    )
    table = page.table(
        ["retriever", *(f"@{k}" for k in shown)],
        [
            [
                name,
                *(
                    f"{curve[k - 1]:.3f}" if k <= len(curve) else ""
                    for k in shown
                ),
            ]
            for name, curve in curves.items()
        ],
    )
    return page.join(
        [
            page.paragraph(
                "Share of questions with an accepted answer among the first k "
                "blocks.",
                soft=True,
            ),
            chart,
            table,
        ]
    )


def _metrics(metrics):
    rows = [
        [
            metric_label(name),
            f"{metrics[name]:.3f}",
            format_interval(metrics[f"{name}{_INTERVAL}"]),
            charts.bar(metrics[name], metrics[f"{name}{_INTERVAL}"]),
        ]
        for name in metric_names(metrics)
    ]
    rows += [
        [metric_label(name), _format(value), "", ""]
        for name, value in metrics.items()
        if f"{name}{_INTERVAL}" not in metrics
        and not name.endswith(_INTERVAL)
        and not isinstance(value, dict)
    ]
    return page.table(["metric", "mean", "95 %", ""], rows)


def _format(value):
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(
            f"{metric_label(name)} {_format(each)}"
            for name, each in value.items()
        )
    return value if isinstance(value, str) else json.dumps(value)


def _values(values):
    rows = [
        [metric_label(name), _format(each)] for name, each in values.items()
    ]
    if not rows:
        return page.Markup()
    return page.table(["", "value"], rows, text_columns=(1,))


def _groups(groups, heading):
    return page.table(
        [heading, "questions", "exact match", "95 %", ""],
        [
            [
                name,
                f"{group['questions']:,}",
                f"{group['exact_match']:.3f}",
                format_interval(group["interval"]),
                charts.bar(group["exact_match"], group["interval"]),
            ]
            for name, group in groups.items()
        ],
    )


def _by_question_word(lines):
    groups = breakdowns.by_group(
        lines,
        lambda line: breakdowns.question_word(line["question"]),
        breakdowns.QUESTION_WORDS,
    )
    return _groups(groups, "word")


def _by_answer_length(lines):
    groups = breakdowns.by_group(
        lines, breakdowns.answer_length, breakdowns.answer_lengths()
    )
    note = page.paragraph(
        "Words of the shortest accepted answer, normalised.", soft=True
    )
    return page.join([note, _groups(groups, "words")])


def _confidence(lines):
    curve = breakdowns.risk_coverage(lines)
    reached = "; ".join(
        f"{coverage:.1%} of the questions at a risk of {risk:.0%}"
        for risk, coverage in curve["coverage_at"].items()
    )
    wrong = 1 - sum(line["exact_match"] for line in lines) / len(lines)
    bins = breakdowns.reliability(lines)
    return page.join(
        [
            page.paragraph(
                "Answering only the questions of highest confidence "
                "(coverage) leaves this share of wrong answers (risk). "
                f"Answered are {reached}. Area under the curve: "
                f"{curve['area']:.3f}; {wrong:.3f} if confidence said nothing."
            ),
            charts.line_chart(
                [
                    charts.Series(
                        "risk",
                        [
                            (coverage, risk)
                            for _, coverage, risk in curve["points"]
                        ],
                    )
                ],
                description="Share of wrong answers among the questions of "
                "highest confidence, over the share that is answered.",
                x_label="coverage, share of questions answered",
                y_label="risk, share of them wrong",
            ),
            page.paragraph(
                "How often answers of some confidence are right; on the dashed "
                "line confidence is what it says."
            ),
            charts.line_chart(
                [
                    charts.Series(
                        "exact match",
                        [(b["confidence"], b["exact_match"]) for b in bins],
                        [b["interval"] for b in bins],
                    )
                ],
                description="Exact match over confidence, in bins; the table "
                "below has its numbers.",
                x_label="mean confidence",
                y_label="exact match",
                diagonal=True,
            ),
            _groups(
                {
                    f"{b['low']:.1f} to {b['high']:.1f}, "
                    f"mean {b['confidence']:.3f}": b
                    for b in bins
                },
                "confidence",
            ),
        ]
    )


def _examples(lines):
    return page.join(_example(line) for line in lines)


def _example(line):
    is_right = bool(line["exact_match"])
    verdict = page.Markup(
        f'<b class="{"right" if is_right else "wrong"}">'
        f"{'Right' if is_right else 'Wrong'}:</b> "
    )
    said = page.Markup(
        f"<bdi>{page.escape(line['prediction'] or '(no answer)')}</bdi>"
        f' <span class="soft">confidence {line["confidence"]:.3f}, '
        f"score {line['score']:.2f}</span>"
    )
    kind = " (patterns)" if line.get("answer_type") == "regex" else ""
    accepted = "; ".join(breakdowns.accepted_answers(line))
    return page.join(
        [
            page.Markup(
                f'<article><h3 dir="auto">{page.escape(line["question"])}</h3>\n'
            ),
            page.paragraph(page.join([verdict, said])),
            page.paragraph(f"Accepted{kind}: {accepted}", soft=True),
            _evidence(line),
            _ranks(line),
            _candidates(line),
            page.Markup("</article>\n"),
        ]
    )


def _evidence(line):
    if line["block_id"] < 0:
        return page.paragraph("Answered without a block.", soft=True)
    text, start, limit = line["text"], line["start"], line["limit"]
    title = page.escape(line["title"] or "(no title)")
    # A link may come from a corpus as well: nothing but a page is opened.
    if _WEB.match(line.get("url") or ""):
        title = page.Markup(
            f'<a href="{page.escape(line["url"])}" '
            f'rel="noopener noreferrer nofollow">{title}</a>'
        )
    return page.Markup(
        f'<blockquote><p dir="auto">{page.escape(text[:start])}'
        f"<mark>{page.escape(text[start:limit])}</mark>"
        f'{page.escape(text[limit:])}</p>\n<p class="soft"><bdi>{title}</bdi> '
        f"(block {page.escape(line['block_id'])})</p></blockquote>\n"
    )


def _ranks(line):
    # Nothing was looked for where nothing was asked.
    if not line.get("num_ranked"):
        return page.Markup()
    found = ", ".join(
        f"{retriever} {'none' if rank is None else f'no. {rank}'}"
        for retriever, rank in line["answer_ranks"].items()
    )
    return page.paragraph(
        f"First block with an accepted answer, of {line['num_ranked']}: "
        f"{found}.",
        soft=True,
    )


def _candidates(line):
    if not line["candidates"]:
        return page.Markup()
    accepted = breakdowns.accepted_answers(line)
    answer_type = line.get("answer_type", "string")
    rows = []
    for candidate in line["candidates"]:
        is_right = answer_rules.is_correct(
            candidate["answer"], accepted, answer_type
        )
        chosen = candidate["block_id"] == line["block_id"]
        rows.append(
            [
                f"{math.exp(candidate['log_prob']):.4f}",
                f"{candidate['block_id']}{' (above)' if chosen else ''}",
                candidate["answer"],
                page.Markup('<b class="right">right</b>') if is_right else "",
                f"{candidate['score']:.2f}",
            ]
        )
    return page.table(
        ["p(z|x)", "block read", "its own answer", "", "score"],
        rows,
        text_columns=(2,),
    )
