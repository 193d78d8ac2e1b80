"""The numbers of a comparison of systems: collected, as a table, as a plot."""

import json
import os
import statistics

from realm_tf.answering import bootstrap
from realm_tf.answering import recall
from realm_tf.artifacts import figures
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import ablations as configs
from realm_tf.evaluation.ablations.systems import TRAINING

RANGE, INTERVAL = "range", "interval"
_SPREADS = {
    RANGE: "mean (lowest to highest) over seeds",
    INTERVAL: "mean over seeds (95 % bootstrap interval over questions)",
}
_NOISE = {
    RANGE: "Within noise: the ranges over the seeds overlap.",
    INTERVAL: "Within noise: the 95 % interval of the difference, by a "
    "bootstrap that draws both systems' answers to a question together, "
    "holds 0.",
}
# What predictions.jsonl has of each question.
_OF_QUESTIONS = (
    configs.EXACT_MATCH,
    *(f"answer_recall@{k}" for k in recall.RECALL_AT),
)
# Inches.
_WIDTH, _ROW_HEIGHT, _MARGIN = 4.2, 0.34, 1.1
# Okabe and Ito's blue and vermilion, which no colour blindness confuses.
_DOT, _MEAN = "#0072B2", "#D55E00"


def collect(name, suite, graph, cells, recipes, *, notes=()) -> dict:
    """Reads what the stages measured.

    Args:
        name: str. Of the suite.
        suite: `configs.ablations.Suite`.
        graph: `StageGraph`, all of whose stages are done.
        cells: list of `Cell`.
        recipes: `Recipes`.
        notes: list of str. What a reader of the table must know.

    Returns:
        dict: `systems` holds, by name, each seed's `training_seconds` and by
        test all its metrics (`metrics`); `summary` by test, system and metric
        of the table its `mean`, `low` and `high`, as `suite.spread` says;
        `differences`, if these are intervals over questions, by test, system
        and metric how far the system is from the reference, as
        `bootstrap.paired_difference`. Shares are between 0 and 1.
    """
    systems = {
        system.name: {"title": system.title, "paper": system.paper, "seeds": {}}
        for system in suite.systems
    }
    for cell in cells:
        systems[cell.system.name]["seeds"][str(cell.seed)] = {
            "training_seconds": round(
                sum(
                    graph.seconds(stage.name)
                    for stage in graph.ancestors(cell.model)
                    if stage.kind in TRAINING
                ),
                1,
            ),
            "metrics": {
                test: _metrics(graph, cell, test) for test in cell.evaluations
            },
        }
    tests = list(cells[0].evaluations)
    results = {
        "suite": name,
        "spread": suite.spread,
        "seeds": sorted({cell.seed for cell in cells}),
        "tests": tests,
        "recipes": {
            key: recipe.flat() if recipe else None
            for key, recipe in (
                ("ict", recipes.ict),
                ("pretrain", recipes.pretrain),
                ("dpr", recipes.dpr),
                ("finetune", recipes.finetune),
            )
        },
        "notes": list(notes),
        "systems": systems,
        "summary": {
            test: {
                system.name: _summary(suite, graph, cells, system, test)
                for system in suite.systems
            }
            for test in tests
        },
    }
    if suite.spread == INTERVAL:
        results["differences"] = {
            test: _differences(suite, graph, cells, test) for test in tests
        }
    results["noise"] = [
        line for test in tests for line in noise(results, suite, test)
    ]
    return results


def _metrics(graph, cell, test):
    """All metrics of a cell on a test, those before fine-tuning prefixed."""
    found = _read(graph, cell.evaluations[test])
    if cell.zero_shot:
        before = _read(graph, cell.zero_shot[test])
        before.pop("questions")
        found.update(
            {configs.ZERO_SHOT + key: value for key, value in before.items()}
        )
    return found


def _read(graph, name):
    path = os.path.join(graph.path(name), "metrics.json")
    return json.loads(Path(path).read_text())


def _summary(suite, graph, cells, system, test):
    mine = [cell for cell in cells if cell.system.name == system.name]
    if suite.spread == INTERVAL:
        found = _interval_over_questions(graph, mine, test)
        return {metric: found[metric] for metric in suite.metrics}
    found = [_metrics(graph, cell, test) for cell in mine]
    return {
        metric: {
            "mean": round(statistics.mean(values), bootstrap.DIGITS),
            "low": min(values),
            "high": max(values),
        }
        for metric in suite.metrics
        for values in [[one[metric] for one in found]]
    }


def _interval_over_questions(graph, cells, test):
    """Each question's mean over seeds, then the bootstrap over questions."""
    metrics = bootstrap.summarize(_means_over_seeds(graph, cells, test))
    return {
        name: {
            "mean": metrics[name],
            "low": metrics[f"{name}_interval"][0],
            "high": metrics[f"{name}_interval"][1],
        }
        for name in _OF_QUESTIONS
    }


def _differences(suite, graph, cells, test):
    """How far each system but the reference is from it, question by question."""
    of_questions = {
        system.name: _means_over_seeds(
            graph, [c for c in cells if c.system.name == system.name], test
        )
        for system in suite.systems
    }
    reference = of_questions.pop(suite.reference)
    return {
        name: {
            metric: bootstrap.paired_difference(
                [row[metric] for row in rows],
                [row[metric] for row in reference],
            )
            for metric in suite.metrics
        }
        for name, rows in of_questions.items()
    }


def _means_over_seeds(graph, cells, test):
    """A dict of metrics for each question."""
    lines = []
    for cell in cells:
        path = os.path.join(
            graph.path(cell.evaluations[test]), "predictions.jsonl"
        )
        lines.append(
            [json.loads(line) for line in Path(path).read_text().splitlines()]
        )
    return [
        {
            name: statistics.mean(line[name] for line in of_question)
            for name in _OF_QUESTIONS
        }
        for of_question in zip(*lines, strict=True)
    ]


def noise(results: dict, suite: configs.Suite, test: str) -> list[str]:
    """Which differences from the reference are noise, by `_NOISE`: a line a metric."""
    titles = {system.name: system.title for system in suite.systems}
    reference = titles.pop(suite.reference)
    if not titles:
        return []
    if suite.spread == RANGE and len(results["seeds"]) == 1:
        return [
            f"{test}: with one seed there is no range, so no difference can "
            "be told from noise."
        ]
    return [
        f"{test}, {title}, compared with {reference}: "
        f"{_sorted_by_noise(results, suite, test, metric, titles)}."
        for metric, title in suite.metrics.items()
    ]


def _sorted_by_noise(results, suite, test, metric, titles):
    summary = results["summary"][test]
    mine = summary[suite.reference][metric]
    within, beyond = [], []
    for name, title in titles.items():
        if suite.spread == RANGE:
            other = summary[name][metric]
            is_noise = (
                other["low"] <= mine["high"] and mine["low"] <= other["high"]
            )
        else:
            found = results["differences"][test][name][metric]
            low, high = found["interval"]
            is_noise = low <= 0 <= high
            title += f" {100 * found['difference']:+.1f} "
            title += f"({100 * low:+.1f} to {100 * high:+.1f})"
        (within if is_noise else beyond).append(title)
    return "; ".join(
        f"{where} noise: {', '.join(found)}"
        for where, found in (("beyond", beyond), ("within", within))
        if found
    )


def markdown(results: dict, suite: configs.Suite) -> str:
    """The tables, one a test, in percent as the paper's, with their notes."""
    seeds = ", ".join(map(str, results["seeds"]))
    lines = [
        f"# {suite.title}",
        "",
        f"In percent; {_SPREADS[suite.spread]}; seeds {seeds}.",
    ]
    has_paper = any(system.paper for system in suite.systems)
    for test in results["tests"]:
        lines += ["", f"## {test}", "", *_table(results, suite, test)]
    if has_paper:
        lines += [
            "",
            "*paper*: Guu et al., 2020, table 2: NaturalQuestions (dev), over "
            "13 million blocks, and so not comparable.",
        ]
    if suite.training_minutes:
        lines += [
            "",
            "Training minutes: of warm-up, Inverse Cloze Task, pre-training, "
            "DPR's training and fine-tuning, the mean over seeds; what systems "
            "share counts in each.",
        ]
    for title, texts in (
        (
            "Noise",
            results["noise"] and [_NOISE[suite.spread], *results["noise"]],
        ),
        ("Notes", results["notes"]),
    ):
        if texts:
            lines += ["", f"## {title}", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def _table(results, suite, test):
    has_paper = any(system.paper for system in suite.systems)
    header = ["system", *suite.metrics.values()]
    if has_paper:
        header += [f"*paper: {title}*" for title in suite.metrics.values()]
    if suite.training_minutes:
        header.append("training minutes")
    rows = [header, ["---"] * len(header)]
    for system in suite.systems:
        found = results["summary"][test][system.name]
        row = [system.title, *(_cell(found[m]) for m in suite.metrics)]
        if has_paper:
            row += [f"*{system.paper[m]:.1f}*" for m in suite.metrics]
        if suite.training_minutes:
            seeds = results["systems"][system.name]["seeds"].values()
            seconds = statistics.mean(one["training_seconds"] for one in seeds)
            row.append(f"{seconds / 60:.1f}")
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def _cell(found):
    mean, low, high = (100 * found[key] for key in ("mean", "low", "high"))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"


def write(results: dict, suite: configs.Suite, output: str) -> None:
    """Writes results.json, results.md and results.png; replaces old ones.

    Args:
        results: dict. Of `collect`.
        suite: `configs.ablations.Suite`.
        output: str. A local directory.
    """
    write_text(
        os.path.join(output, "results.json"), json.dumps(results, indent=1)
    )
    write_text(os.path.join(output, "results.md"), markdown(results, suite))
    figures.write_png(
        figure(results, suite), os.path.join(output, "results.png")
    )


def figure(results: dict, suite: configs.Suite):
    """A panel for each test and metric: dots of seeds, mean and spread.

    Args:
        results: dict. Of `collect`.
        suite: `configs.ablations.Suite`.

    Returns:
        `matplotlib.figure.Figure`.
    """
    tests, metrics = results["tests"], list(suite.metrics)
    height = _ROW_HEIGHT * len(suite.systems) + _MARGIN
    drawn = figures.new_figure(
        _WIDTH * len(metrics) + 1.5, height * len(tests) + 0.4
    )
    grid = drawn.subplots(
        len(tests), len(metrics), squeeze=False, sharey=True, sharex="col"
    )
    for row, test in zip(grid, tests, strict=True):
        for axes, metric in zip(row, metrics, strict=True):
            _draw(axes, results, suite, test, metric)
    handles, labels = grid[0][0].get_legend_handles_labels()
    drawn.legend(
        handles, labels, loc="outside lower center", ncols=3, frameon=False
    )
    return drawn


def _draw(axes, results, suite, test, metric):
    places = range(len(suite.systems))
    found = [results["summary"][test][s.name][metric] for s in suite.systems]
    axes.hlines(
        places,
        [100 * one["low"] for one in found],
        [100 * one["high"] for one in found],
        color="0.35",
        linewidth=1.6,
        label="range over seeds"
        if suite.spread == RANGE
        else "95 % interval over questions",
    )
    dots = [
        (100 * seed["metrics"][test][metric], place)
        for place, system in enumerate(suite.systems)
        for seed in results["systems"][system.name]["seeds"].values()
    ]
    axes.scatter(
        *zip(*dots, strict=True), s=22, color=_DOT, zorder=3, label="seed"
    )
    axes.scatter(
        [100 * one["mean"] for one in found],
        places,
        s=170,
        color=_MEAN,
        marker="|",
        linewidths=2.2,
        zorder=4,
        label="mean",
    )
    axes.set_yticks(places, [system.title for system in suite.systems])
    axes.set_ylim(len(suite.systems) - 0.5, -0.5)
    figures.finish_axes(
        axes,
        title=f"{suite.metrics[metric]}, {test}",
        x_label="percent",
        grid="x",
    )
