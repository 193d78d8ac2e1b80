"""Curves of training runs, drawn from their logs."""

import math

from realm_tf.artifacts import figures
from realm_tf.errors import InputError
from realm_tf.training.training_log import COUNTERS

_COLUMNS = 2
# Inches.
_WIDTH, _ROW_HEIGHT, _LEGEND_ROW = 10.0, 2.5, 0.28


def plot_training(logs: dict[str, list[dict]], path: str) -> None:
    """Draws the curves of one or several runs into a PNG.

    Each value of the logs has a panel; what is null is left out.

    Args:
        logs: dict. Name of a run to its lines, as `training_log.read_log`
            returns them.
        path: str. The file to write; one that is there is replaced.

    Raises:
        InputError: if no run has a value to draw, or the file cannot be
            written.
    """
    # name -> run -> step -> value
    curves = {}
    for run, lines in logs.items():
        for line in lines:
            for name, value in line.items():
                if name not in COUNTERS and value is not None:
                    of_run = curves.setdefault(name, {}).setdefault(run, {})
                    of_run[line["step"]] = value
    if not curves:
        raise InputError(
            f"No line to draw in the logs of {', '.join(logs) or 'no run'}: "
            "train for longer."
        )
    num_rows = math.ceil(len(curves) / _COLUMNS)
    figure = figures.new_figure(
        _WIDTH, _ROW_HEIGHT * num_rows + _LEGEND_ROW * len(logs)
    )
    handles = {}
    for number, (name, of_runs) in enumerate(curves.items(), 1):
        axes = figure.add_subplot(num_rows, _COLUMNS, number)
        for place, run in enumerate(logs):
            curve = of_runs.get(run, {})
            # One value alone is no line.
            (handles[run],) = axes.plot(
                list(curve),
                list(curve.values()),
                color=f"C{place}",
                marker="o" if len(curve) == 1 else None,
                markersize=3,
                linewidth=1.4,
            )
        figures.finish_axes(axes, title=name, x_label="step")
    figure.legend(
        handles.values(), handles, loc="outside lower center", frameon=False
    )
    figures.write_png(figure, path)
