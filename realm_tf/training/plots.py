"""Curves of training runs, drawn from their logs."""

import dataclasses
import math

from realm_tf.artifacts import figures
from realm_tf.errors import InputError

_COLUMNS = 2
# Inches.
_WIDTH, _ROW_HEIGHT, _LEGEND_ROW = 10.0, 2.5, 0.28


@dataclasses.dataclass(frozen=True)
class Panel:
    """One value over the steps.

    Args:
        name: str. Of the value in the log.
        title: str.
        unit: str. Of the vertical axis.
        line_at: float. Where a line is drawn across. Defaults to `None`.
        from_zero: bool. Whether the vertical axis begins at 0. Defaults to
            `False`: as the values are.
    """

    name: str
    title: str
    unit: str
    line_at: float | None = None
    from_zero: bool = False


# What `realm pretrain` logs.
PANELS = (
    Panel("loss", "Masked-LM loss", "nats per masked wordpiece"),
    Panel("mlm_accuracy", "Masked-LM accuracy", "share", from_zero=True),
    Panel(
        "retrieval_utility",
        "Retrieval utility",
        "nats per masked wordpiece",
        line_at=0.0,
    ),
    Panel(
        "null_probability", "p(null block | x)", "probability", from_zero=True
    ),
    Panel("entropy", "Entropy of p(z | x)", "nats"),
    Panel(
        "article_recall",
        "Own article among the candidates",
        "share of sentences",
        from_zero=True,
    ),
    Panel(
        "answer_recall",
        "What is masked among the candidates",
        "share of sentences",
        from_zero=True,
    ),
    Panel("index_age", "Age of the index", "steps"),
    Panel("examples_per_second", "Speed", "examples / s", from_zero=True),
)

# What `realm pretrain` logs of the masked-LM warm-up.
MASKED_LM_PANELS = (
    Panel("loss", "Masked-LM loss", "nats per wordpiece to predict"),
    *(
        Panel(
            f"accuracy_{kind}_block",
            f"Hidden wordpieces right, {beside}",
            "share",
            from_zero=True,
        )
        for kind, beside in (
            ("own", "the sentence's own block in view"),
            ("answer", "beside a block with what is masked"),
            ("other", "beside any other block"),
            ("null", "without a block"),
        )
    ),
    Panel("examples_per_second", "Speed", "examples / s", from_zero=True),
)

# What `realm finetune` logs.
FINETUNING_PANELS = (
    Panel("loss", "Loss of retriever and reader", "nats a question"),
    Panel("retriever_loss", "Retriever's loss", "nats a question"),
    Panel("reader_loss", "Reader's loss", "nats a question"),
    Panel(
        "candidates_recall",
        "An answer among the candidates",
        "share of questions",
        from_zero=True,
    ),
    Panel(
        "top_block_recall",
        "An answer in the best block",
        "share of questions",
        from_zero=True,
    ),
    Panel(
        "span_accuracy",
        "Best span right, where one can be",
        "share of questions",
        from_zero=True,
    ),
    Panel("index_age", "Age of the index", "steps"),
    Panel("examples_per_second", "Speed", "examples / s", from_zero=True),
)

_PANELS = {
    "pre-training": PANELS,
    "masked-LM warm-up": MASKED_LM_PANELS,
    "fine-tuning": FINETUNING_PANELS,
}
_MARKS = {
    "masked-LM warm-up": "accuracy_own_block",
    "fine-tuning": "retriever_loss",
}


def plot_training(
    logs: dict[str, list[dict]],
    path: str,
    *,
    groups: dict[str, str] | None = None,
    panels: tuple[Panel, ...] | None = None,
) -> None:
    """Draws the curves of one or several runs into a PNG.

    Values that no run has get no panel. Runs of a group share a colour; their
    mean is drawn bold, over the steps that all of them have, and the runs
    themselves thin.

    Args:
        logs: dict. Name of a run to its lines, as `training_log.read_log`
            returns them.
        path: str. The file to write; one that is there is replaced.
        groups: dict. Name of a run to that of its group; a run that is not
            in it is a group of its own. Defaults to `None`.
        panels: tuple of `Panel`. Defaults to `None`: those of what the runs
            are, pre-training, its warm-up or fine-tuning.

    Raises:
        InputError: if no run has a value to draw, runs of different kinds
            are mixed, or the file cannot be written.
    """
    panels = panels or _panels_of(logs)
    panels = [panel for panel in panels if _has_values(logs, panel.name)]
    if not panels:
        raise InputError(
            f"No line to draw in the logs of {', '.join(logs) or 'no run'}: "
            "train for longer."
        )
    members = {}
    for run in logs:
        members.setdefault((groups or {}).get(run, run), []).append(run)
    num_rows = math.ceil(len(panels) / _COLUMNS)
    figure = figures.new_figure(
        _WIDTH, _ROW_HEIGHT * num_rows + _LEGEND_ROW * len(members)
    )
    grid = figure.subplots(num_rows, _COLUMNS, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel, logs, members)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=1, frameon=False
    )
    figures.write_png(figure, path)


def _panels_of(logs):
    """Those of what the runs are; their losses have one name."""
    kinds = {run: _kind(lines) for run, lines in logs.items()}
    first = next(iter(kinds), None)
    for run, kind in kinds.items():
        if kind != kinds[first]:
            raise InputError(
                f"{first} is a run of {kinds[first]}, {run} of {kind}: their "
                "losses cannot be drawn together. Plot them one by one."
            )
    return _PANELS[kinds[first]] if kinds else PANELS


def _kind(lines):
    """What a run is, by a value that only its kind has."""
    names = {name for line in lines for name in line}
    for kind, name in _MARKS.items():
        if name in names:
            return kind
    return "pre-training"


def _has_values(logs, name):
    return any(
        line.get(name) is not None for lines in logs.values() for line in lines
    )


def _draw(axes, panel, logs, members):
    if panel.line_at is not None:
        axes.axhline(panel.line_at, color="0.4", linewidth=0.8, linestyle="--")
    for number, (group, runs) in enumerate(members.items()):
        color = f"C{number % 10}"
        curves = [_values(logs[run], panel.name) for run in runs]
        if len(runs) == 1:
            _plot(axes, curves[0], color=color, linewidth=1.4, label=group)
            continue
        for curve in curves:
            _plot(axes, curve, color=color, linewidth=0.7, alpha=0.45)
        _plot(
            axes,
            mean_curve(curves),
            color=color,
            linewidth=2.4,
            label=f"{group} (mean of {len(runs)})",
        )
    figures.finish_axes(
        axes, title=panel.title, x_label="step", y_label=panel.unit
    )
    if panel.from_zero:
        axes.set_ylim(bottom=0)


def _values(lines, name):
    """Step to value; what is null is left out."""
    return {
        line["step"]: line[name] for line in lines if line.get(name) is not None
    }


def mean_curve(curves: list[dict[int, float]]) -> dict[int, float]:
    """The mean of curves (step to value), at the steps that all have."""
    steps = sorted(set.intersection(*map(set, curves)))
    return {step: sum(c[step] for c in curves) / len(curves) for step in steps}


def _plot(axes, curve, **style):
    # One value alone is no line.
    marker = "o" if len(curve) == 1 else None
    axes.plot(
        list(curve), list(curve.values()), marker=marker, markersize=3, **style
    )
