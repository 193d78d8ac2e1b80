"""Charts of a report, whose colours follow the page's light or dark."""

import dataclasses
import itertools

from markupsafe import Markup

from realm_tf.artifacts import figures

# Where the hues of a page do not suffice, dashes go on.
_NUM_COLORS = 6
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
# Inches.
_WIDTH, _HEIGHT, _ROW_HEIGHT = 4.4, 2.8, 0.3
# Points that are few are marked.
_MAX_MARKED = 12


@dataclasses.dataclass(frozen=True)
class Series:
    """One curve.

    Args:
        name: str. In the legend.
        points: list of (x, y), x rising.
        intervals: list of (low, high), of y. Defaults to none.
    """

    name: str
    points: list[tuple[float, float]]
    intervals: list[tuple[float, float]] | None = None


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
    series: list[Series],
    *,
    description: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    diagonal: bool = False,
) -> Chart:
    """Curves over one axis, with a legend.

    The vertical axis begins at 0 and ends at 1 or, where all values are
    small, before.

    Args:
        series: list of `Series`. All points have x from 0 to 1 or, with
            `log_x`, from 1.
        description: str. What is shown, for those who hear the page.
        x_label: str.
        y_label: str.
        log_x: bool. Defaults to `False`.
        diagonal: bool. Draw the line of y = x, with the vertical axis up to
            1. Defaults to `False`.

    Returns:
        `Chart`.
    """
    figure = figures.new_figure(_WIDTH, _HEIGHT)
    axes = figure.subplots()
    if diagonal:
        axes.axline((0, 0), slope=1, color=figures.COLORS["soft"], ls="--")
    for number, each in enumerate(series):
        _draw(axes, each, **_style(number))
    if log_x:
        right = max(x for each in series for x, _ in each.points)
        ticks = _log_ticks(right)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        # A corpus of one block has a single k.
        axes.set_xlim(1, max(right, 2))
    else:
        axes.set_xlim(0, 1)
    highest = max(y for each in series for _, y in each.points)
    axes.set_ylim(0, 1 if diagonal or not highest else min(1, 1.2 * highest))
    figures.finish_axes(axes, x_label=x_label, y_label=y_label)
    legend = [
        {"name": each.name, **_legend_style(number)}
        for number, each in enumerate(series)
    ]
    return Chart(
        Markup(figures.to_svg(figure)),
        description,
        legend if len(series) > 1 else [],
    )


def interval_chart(
    rows: list[tuple[str, float, float, float]], *, description: str
) -> Chart:
    """Values with their intervals, one below the other, and a line at 0.

    Args:
        rows: list of (label, value, low, high).
        description: str. What is shown, for those who hear the page.

    Returns:
        `Chart`.
    """
    figure = figures.new_figure(_WIDTH, 0.5 + _ROW_HEIGHT * len(rows))
    axes = figure.subplots()
    axes.axvline(0, color=figures.COLORS["soft"], linewidth=1)
    color = figures.COLORS["c0"]
    places = range(len(rows))
    labels, values, lows, highs = zip(*rows, strict=True)
    axes.hlines(places, lows, highs, color=color, linewidth=1.6)
    axes.scatter(values, places, s=26, color=color, zorder=3)
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    limit = 1.1 * max(map(abs, (*lows, *highs, 0.01)))
    axes.set_xlim(-limit, limit)
    figures.finish_axes(axes, x_label="", grid="x")
    return Chart(Markup(figures.to_svg(figure)), description, [])


def _log_ticks(right):
    """1, 2, 5, 10, ... up to the right end."""
    digits = (
        digit * 10**power for power in itertools.count() for digit in (1, 2, 5)
    )
    return list(itertools.takewhile(lambda tick: tick <= right, digits))


def _legend_style(number):
    return {
        "color": f"c{number % _NUM_COLORS}",
        "dashes": _DASHES[number % len(_DASHES)],
    }


def _style(number):
    style = _legend_style(number)
    dashes = style["dashes"]
    return {
        "color": figures.COLORS[style["color"]],
        "linestyle": "-"
        if dashes == "none"
        # In widths of the line.
        else (0, [int(length) / 1.6 for length in dashes.split()]),
    }


def _draw(axes, series, *, color, linestyle):
    xs, ys = zip(*series.points, strict=True)
    axes.plot(
        xs,
        ys,
        color=color,
        linestyle=linestyle,
        linewidth=1.6,
        marker="o" if len(xs) <= _MAX_MARKED else None,
        markersize=4,
        clip_on=False,
    )
    if series.intervals:
        axes.vlines(xs, *zip(*series.intervals, strict=True), color=color)
