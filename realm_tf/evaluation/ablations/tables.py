"""The numbers of a comparison of systems as tables and as a plot."""

import json
import os
import statistics

import numpy as np

from realm_tf.artifacts import figures
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import ablations as configs
from realm_tf.configs.ablations import RANGE
from realm_tf.evaluation import text_table

_SPREADS = {
    RANGE: "mean (lowest to highest) over seeds",
    configs.INTERVAL: "mean over seeds (95 % bootstrap interval over "
    "questions)",
}
_NOISE = {
    RANGE: "Within noise: the ranges over the seeds overlap.",
    configs.INTERVAL: "Within noise: the 95 % interval of the difference, by a "
    "bootstrap that draws both systems' answers to a question together, "
    "holds 0.",
}
# Inches.
_WIDTH, _ROW_HEIGHT, _MARGIN = 4.2, 0.34, 1.1
# Okabe and Ito's blue and vermilion, which no colour blindness confuses.
_DOT, _MEAN = "#0072B2", "#D55E00"


def markdown(results: dict, suite: configs.Suite) -> str:
    """The tables, one a test, in percent as the paper's, with their notes."""
    seeds = ", ".join(map(str, results["seeds"]))
    lines = [
        f"# {suite.title}",
        "",
        f"In percent; {_SPREADS[suite.spread]}; seeds {seeds}.",
    ]
    for test in results["tests"]:
        lines += ["", f"## {test}", "", _table(results, suite, test).rstrip()]
    if suite.has_paper:
        lines += [
            "",
            "*paper*: Guu et al., 2020, table 2: NaturalQuestions (dev), over "
            "13 million blocks, and so not comparable.",
        ]
    else:
        lines += [
            "",
            "Training minutes: of warm-up, Inverse Cloze Task, pre-training, "
            "DPR's training and fine-tuning, the mean over seeds; what systems "
            "share counts in each.",
        ]
    noise = results["noise"] and [_NOISE[suite.spread], *results["noise"]]
    for title, texts in (("Noise", noise), ("Notes", results["notes"])):
        if texts:
            lines += ["", f"## {title}", "", *(f"- {text}" for text in texts)]
    return "\n".join(lines) + "\n"


def _table(results, suite, test):
    header = ["system", *suite.metrics.values()]
    if suite.has_paper:
        header += [f"*paper: {title}*" for title in suite.metrics.values()]
    else:
        header.append("training minutes")
    rows = []
    for system in suite.systems:
        found = results["summary"][test][system.name]
        row = [system.title, *(_cell(found[m]) for m in suite.metrics)]
        if suite.has_paper:
            row += [f"*{system.paper[m]:.1f}*" for m in suite.metrics]
        else:
            seeds = results["systems"][system.name]["seeds"].values()
            seconds = statistics.mean(one["training_seconds"] for one in seeds)
            row.append(f"{seconds / 60:.1f}")
        rows.append(row)
    return text_table.render(header, rows)


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
        handles, labels, loc="outside lower center", ncols=2, frameon=False
    )
    return drawn


def _draw(axes, results, suite, test, metric):
    places = range(len(suite.systems))
    dots = [
        (100 * seed["metrics"][test][metric], place)
        for place, system in enumerate(suite.systems)
        for seed in results["systems"][system.name]["seeds"].values()
    ]
    axes.scatter(
        *zip(*dots, strict=True), s=22, color=_DOT, zorder=3, label="seed"
    )
    found = [results["summary"][test][s.name][metric] for s in suite.systems]
    means, lows, highs = (
        100 * np.array([one[key] for one in found])
        for key in ("mean", "low", "high")
    )
    axes.errorbar(
        means,
        places,
        # Rounded, a mean may lie beside a range of nothing.
        xerr=np.abs([means - lows, highs - means]),
        fmt="|",
        color=_MEAN,
        markersize=13,
        markeredgewidth=2.2,
        ecolor="0.35",
        elinewidth=1.6,
        label=_SPREADS[suite.spread],
    )
    axes.set_yticks(places, [system.title for system in suite.systems])
    axes.set_ylim(len(suite.systems) - 0.5, -0.5)
    figures.finish_axes(
        axes,
        title=f"{suite.metrics[metric]}, {test}",
        x_label="percent",
        grid="x",
    )
