"""Evaluations of the same questions beside each other."""

import json
import re

from realm_tf.answering import bootstrap
from realm_tf.artifacts import html_page
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation import text_table
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import report

_DIFFERENCE_COLUMNS = ("difference", "95 %", "sign flips")
# What would end a cell, or make more of it than text.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#$&])")


def compare(evaluations: dict[str, Evaluation]) -> dict:
    """The metrics of evaluations, and how far each is from the first.

    Args:
        evaluations: dict of name to `Evaluation`, of one questions file.

    Returns:
        dict, the content of comparison.json: `questions`; `systems`, dict of
        name to its `metrics` and `parameters`; `recall_curves`, dict of
        label to the recall at k = 1, 2, ...; `differences`, dict of each name
        but the first to a dict of metric to `bootstrap.paired_difference`
        from the first.

    Raises:
        InputError: if an evaluation is damaged or of other questions than
            the first.
    """
    first, *others = evaluations
    _check_questions(evaluations[first], evaluations.values())
    lines = {name: each.predictions for name, each in evaluations.items()}
    return {
        "questions": len(lines[first]),
        "systems": {
            name: {"metrics": each.metrics, "parameters": each.parameters}
            for name, each in evaluations.items()
        },
        "recall_curves": _recall_curves(lines),
        "differences": {
            name: _differences(
                evaluations[first].metrics, lines[first], lines[name]
            )
            for name in others
        },
    }


def write(stage, compared: dict) -> None:
    """Writes comparison.json, comparison.md and comparison.html.

    Args:
        stage: `artifact.Stage`.
        compared: dict. What `compare` returns.
    """
    text = json.dumps(compared, indent=2, ensure_ascii=False)
    write_text(stage.path("comparison.json"), text)
    write_text(stage.path("comparison.md"), markdown(compared))
    _write_page(stage.path("comparison.html"), compared)


def markdown(compared: dict) -> str:
    """The tables of a comparison.

    Args:
        compared: dict. What `compare` returns.

    Returns:
        str: a table of metric x system, and one of differences for each
        system but the first.
    """
    header, rows = _metrics_table(compared)
    parts = [_markdown_table(header, rows)]
    for name, differences in compared["differences"].items():
        header, rows = _difference_table(differences)
        first = next(iter(compared["systems"]))
        parts.append(
            f"{_markdown_cell(name)} less {_markdown_cell(first)}, paired "
            f"bootstrap over the questions:\n\n{_markdown_table(header, rows)}"
        )
    return "\n".join(parts)


def _check_questions(first, evaluations):
    for each in evaluations:
        if each.parents["questions"] != first.parents["questions"]:
            raise InputError(
                f"{each} is of another questions file than {first}: compare "
                "evaluations of the same --questions."
            )


def _recall_curves(lines_of):
    """Curves of all systems' retrievers; those that are one are so named."""
    systems = {}
    for name, lines in lines_of.items():
        for retriever, curve in breakdowns.recall_curves(lines).items():
            systems.setdefault((retriever, tuple(curve)), []).append(name)
    return {
        retriever
        if len(names) == len(lines_of)
        else f"{', '.join(names)}: {retriever}": list(curve)
        for (retriever, curve), names in systems.items()
    }


def _differences(metrics, first, lines):
    differences = {}
    for name in report.metric_names(metrics):
        pairs = [
            (line[name], other[name])
            for line, other in zip(lines, first, strict=True)
            if name in line and name in other
        ]
        if pairs:
            values, of_first = zip(*pairs, strict=True)
            differences[name] = bootstrap.paired_difference(values, of_first)
    return differences


def _metrics_table(compared):
    systems = compared["systems"]
    measured = [each["metrics"] for each in systems.values()]
    names = dict.fromkeys(
        name for metrics in measured for name in report.metric_names(metrics)
    )
    rows = [
        [
            report.metric_label(name),
            *(
                f"{metrics[name]:.3f} "
                f"({report.format_interval(metrics[f'{name}_interval'])})"
                if name in metrics
                else ""
                for metrics in measured
            ),
        ]
        for name in names
    ]
    return [f"{compared['questions']} questions", *systems], rows


def _difference_table(differences):
    rows = []
    for name, found in differences.items():
        low, high = found["interval"]
        flips = found["sign_flips"]
        rows.append(
            [
                report.metric_label(name),
                f"{found['difference']:+.3f}",
                f"{low:+.3f} to {high:+.3f}",
                "" if flips is None else f"{flips:.1%}",
            ]
        )
    return ["", *_DIFFERENCE_COLUMNS], rows


def _markdown_table(header, rows):
    return text_table.render(
        [_markdown_cell(cell) for cell in header],
        [[_markdown_cell(cell) for cell in row] for row in rows],
    )


def _markdown_cell(text):
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _write_page(path, compared):
    names = list(compared["systems"])
    parameters = [
        [name, json.dumps(each["parameters"], ensure_ascii=False)]
        for name, each in compared["systems"].items()
    ]
    html_page.write(
        path,
        "report.html",
        title=" / ".join(names),
        subtitle=f"{compared['questions']:,} questions, with 95 % bootstrap "
        "intervals.",
        sections=[
            report.Section("Metrics", table=_metrics_table(compared)),
            *report.recall(compared["recall_curves"]),
            *(
                _difference_section(f"{name} less {names[0]}", differences)
                for name, differences in compared["differences"].items()
            ),
            report.Section(
                "Made with", table=(["", "parameters"], parameters, (1,))
            ),
        ],
    )


def _difference_section(heading, differences):
    if not differences:
        return report.Section(heading, note="No question has a metric of both.")
    return report.Section(
        heading,
        note="Both systems' answers to a question are drawn together. Sign "
        "flips: the share of samples in which nothing is left of the "
        "difference, or its opposite.",
        table=_difference_table(differences),
    )
