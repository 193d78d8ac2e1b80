"""Evaluations of the same questions beside each other."""

import json
import re

from realm_tf.answering import bootstrap
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation import report
from realm_tf.evaluation import text_table

_DIFFERENCE_COLUMNS = ("difference", "95 %", "sign flips")
# What would end a cell, or make more of it than text.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#$&])")


def compare(evaluations: dict[str, Evaluation]) -> dict:
    """The metrics of evaluations, and how far each is from the first.

    Args:
        evaluations: dict of name to `Evaluation`, of one questions file.

    Returns:
        dict, the content of comparison.json: `questions`; `systems`, dict of
        name to its `metrics` and `parameters`; `differences`, dict of each
        name but the first to a dict of metric to
        `bootstrap.paired_difference` from the first.

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
        "differences": {
            name: _differences(
                evaluations[first].metrics, lines[first], lines[name]
            )
            for name in others
        },
    }


def write(stage, compared: dict) -> None:
    """Writes comparison.json and comparison.md.

    Args:
        stage: `artifact.Stage`.
        compared: dict. What `compare` returns.
    """
    text = json.dumps(compared, indent=2, ensure_ascii=False)
    write_text(stage.path("comparison.json"), text)
    write_text(stage.path("comparison.md"), markdown(compared))


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
