"""Compares evaluations of the same questions.

  realm compare EVALUATION_DIR [EVALUATION_DIR ...] --output DIR

Prints the metrics of all of them, side by side, and how far each is from the
first: differences with 95 % paired-bootstrap intervals. Writes
comparison.json, comparison.md and comparison.html (with recall curves).
"""

import json
import os
import re

from realm_tf.answering import bootstrap
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import html_page
from realm_tf.artifacts import question_files as data
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import charts
from realm_tf.evaluation.reports import report

_DIFFERENCE_COLUMNS = ("difference", "95 %", "sign flips")
# What would end a cell, or make more of it than text.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#$&])")


def add_arguments(parser):
    """Arguments of `realm compare`."""
    parser.add_argument(
        "evaluations",
        nargs="+",
        metavar="EVALUATION_DIR",
        help="what `realm evaluate` wrote, all on one questions file; the "
        "others are compared with the first",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--names",
        nargs="+",
        metavar="NAME",
        help="what to call them (default: their directories' names)",
    )


def run(args, extra):
    """`realm compare`."""
    compared = compare(args.evaluations, args.output, names=args.names)
    print(markdown(compared), end="")


def compare(
    evaluations: list[str], output: str, *, names: list[str] | None = None
) -> dict:
    """Compares and writes comparison.json, comparison.md, comparison.html.

    Args:
        evaluations: list of str. Evaluation directories of one questions
            file.
        output: str. Directory to make.
        names: list of str. What to call them. Defaults to the directories'
            names, or whole paths where these are the same.

    Returns:
        dict, the content of comparison.json: `questions`; `systems`, dict of
        name to its `metrics` and `parameters`; `recall_curves`, dict of
        label to the recall at k = 1, 2, ...; `differences`, dict of each name
        but the first to a dict of metric to `bootstrap.paired_difference`
        from the first.

    Raises:
        InputError: if a directory is no evaluation, is damaged or is of
            other questions than the first, or if names are missing or the
            same.
    """
    names = _names(evaluations, names)
    metadata = [
        artifact.read(each, kind=schema.EVALUATION) for each in evaluations
    ]
    _check_questions(evaluations, metadata)
    metrics = [_read_metrics(each) for each in evaluations]
    lines = [_read_lines(each) for each in evaluations]
    for directory, each in zip(evaluations, lines, strict=True):
        if [q["question"] for q in each] != [q["question"] for q in lines[0]]:
            raise InputError(
                f"{directory}/predictions.jsonl holds other questions than "
                f"that of {evaluations[0]}, though both are said to be of one "
                "file: evaluate again."
            )
    compared = {
        "questions": len(lines[0]),
        "systems": {
            name: {"metrics": each, "parameters": made["parameters"]}
            for name, each, made in zip(names, metrics, metadata, strict=True)
        },
        "recall_curves": _recall_curves(dict(zip(names, lines, strict=True))),
        "differences": {
            name: _differences(metrics[0], lines[0], each)
            for name, each in zip(names[1:], lines[1:], strict=True)
        },
    }
    with artifact.write(
        output,
        kind=schema.COMPARISON,
        parameters={"names": names},
        parents={
            "questions": metadata[0]["parents"]["questions"],
            "evaluations": [
                fingerprints.fingerprint(
                    Path(os.path.join(each, "predictions.jsonl")).read_bytes()
                )
                for each in evaluations
            ],
        },
    ) as stage:
        write_text(
            stage.path("comparison.json"),
            json.dumps(compared, indent=2, ensure_ascii=False),
        )
        write_text(stage.path("comparison.md"), markdown(compared))
        _write_page(stage.path("comparison.html"), compared)
    return compared


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


def _names(evaluations, names):
    if names is None:
        names = [os.path.basename(each.rstrip("/")) for each in evaluations]
        if len(set(names)) < len(names):
            names = evaluations
    if len(names) != len(evaluations):
        raise InputError(
            f"--names: expected {len(evaluations)}, one for each evaluation. "
            f"Received {len(names)}: {' '.join(names)}"
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"{twice[0]!r} stands for two evaluations: give each directory "
            "once and each of --names a value of its own."
        )
    return names


def _check_questions(evaluations, metadata):
    wanted = metadata[0]["parents"]["questions"]
    for directory, each in zip(evaluations, metadata, strict=True):
        if each["parents"]["questions"] != wanted:
            raise InputError(
                f"{directory} is of another questions file than "
                f"{evaluations[0]}: compare evaluations of the same --questions."
            )


def _read_metrics(directory):
    path = os.path.join(directory, "metrics.json")
    try:
        metrics = json.loads(Path(path).read_text())
        if not isinstance(metrics, dict):
            raise ValueError("not an object")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is missing or damaged ({error}): evaluate again."
        ) from error
    return metrics


def _read_lines(directory):
    path = os.path.join(directory, "predictions.jsonl")
    return [question.line for question in data.read_questions(path)]


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
    rows = [[_markdown_cell(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * max(width, 3) for width in widths])
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        + " |\n"
        for row in rows
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
    chart = charts.interval_chart(
        [
            (report.metric_label(name), found["difference"], *found["interval"])
            for name, found in differences.items()
        ],
        description="Differences with their intervals; the table below has "
        "the numbers.",
    )
    return report.Section(
        heading,
        note="Both systems' answers to a question are drawn together. Sign "
        "flips: the share of samples in which nothing is left of the "
        "difference, or its opposite.",
        chart=chart,
        table=_difference_table(differences),
    )
