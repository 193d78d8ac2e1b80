"""Charts of a report, whose colours follow the page's light or dark."""

import dataclasses

import numpy as np
from markupsafe import Markup
from matplotlib import ticker

from realm_tf.artifacts import figures

# Where the hues of a page do not suffice, dashes go on.
_NUM_COLORS = 6
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
# Inches.
_WIDTH, _HEIGHT = 4.4, 2.8
# Points that are few are marked.
_MAX_MARKED = 12


@dataclasses.dataclass(frozen=True)
class Chart:
    """A drawn chart, as the templates show it.

    Args:
        svg: `Markup`.
        description: str. What is shown, for those who hear the page.
        legend: list of dict with `name`, `color` and `dashes`. Empty for a
            single curve.
    """

    svg: Markup
    description: str
    legend: list[dict]


def line_chart(
    curves: dict[str, list[tuple[float, float]]],
    *,
    description: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    intervals: list[tuple[float, float]] | None = None,
) -> Chart:
    """Curves over one axis, with a legend.

    The vertical axis begins at 0 and ends at 1 or, where all values are
    small, before.

    Args:
        curves: dict of a name in the legend to a list of (x, y), x rising
            from 0 to 1 or, with `log_x`, from 1.
        description: str. What is shown, for those who hear the page.
        x_label: str.
        y_label: str.
        log_x: bool. Defaults to `False`.
        intervals: list of (low, high), of y of the one curve. They are drawn
            over the line of y = x, with the vertical axis up to 1. Defaults
            to `None`.

    Returns:
        `Chart`.
    """
    figure = figures.new_figure(_WIDTH, _HEIGHT)
    axes = figure.subplots()
    if intervals:
        axes.axline((0, 0), slope=1, color=figures.COLORS["soft"], ls="--")
        xs = [x for points in curves.values() for x, _ in points]
        color = figures.COLORS["c0"]
        axes.vlines(xs, *zip(*intervals, strict=True), color=color)
    legend = [
        {
            "name": name,
            "color": f"c{number % _NUM_COLORS}",
            "dashes": _DASHES[number % len(_DASHES)],
        }
        for number, name in enumerate(curves)
    ]
    for points, style in zip(curves.values(), legend, strict=True):
        _draw(axes, points, figures.COLORS[style["color"]], style["dashes"])
    last_x, highest = np.max(np.concatenate(list(curves.values())), axis=0)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        # A corpus of one block has a single k.
        axes.set_xlim(1, max(last_x, 2))
    else:
        axes.set_xlim(0, 1)
    axes.set_ylim(0, 1 if intervals or not highest else min(1, 1.2 * highest))
    figures.finish_axes(axes, x_label=x_label, y_label=y_label)
    return Chart(
        Markup(figures.to_svg(figure)),
        description,
        legend if len(curves) > 1 else [],
    )


def _draw(axes, points, color, dashes):
    xs, ys = zip(*points, strict=True)
    axes.plot(
        xs,
        ys,
        color=color,
        linestyle="-"
        if dashes == "none"
        # In widths of the line.
        else (0, [int(length) / 1.6 for length in dashes.split()]),
        linewidth=1.6,
        marker="o" if len(xs) <= _MAX_MARKED else None,
        markersize=4,
        clip_on=False,
    )
