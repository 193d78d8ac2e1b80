"""Charts as inline SVG, whose colours follow the page's light or dark."""

import dataclasses
import math

from realm_tf.evaluation.reports.page import Markup
from realm_tf.evaluation.reports.page import escape

# The page's --c0, ...: the hues of Okabe and Ito
# (https://jfly.uni-koeln.de/color), which colour-blind people tell apart,
# darker or lighter where the background asks for it. Where they do not
# suffice, dashes go on.
_NUM_COLORS = 6
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
# User units; the page scales the whole.
_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 18, 10, 42
_ROW_HEIGHT, _LABEL_WIDTH = 26, 130
# Tops of an axis that begins at 0, with the distance of its ticks.
_TOPS = ((0.05, 0.01), (0.1, 0.02), (0.2, 0.05), (0.5, 0.1), (1.0, 0.2))
# More points than these cannot be seen.
_MAX_POINTS = 240
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


def line_chart(
    series: list[Series],
    *,
    description: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    diagonal: bool = False,
) -> Markup:
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
        `Markup`, a figure.
    """
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    right = max(xs) if log_x else 1.0
    top, step = (
        _TOPS[-1]
        if diagonal
        else next(pair for pair in _TOPS if max(ys) <= pair[0] or pair[0] == 1)
    )

    def place(x, y):
        # A corpus of one block has a single k.
        along = math.log(x) / (math.log(right) or 1) if log_x else x / right
        return (
            _LEFT + along * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    ticks = _log_ticks(right) if log_x else [n / 5 for n in range(6)]
    parts = [_grid(place, ticks, right, top, step, log_x)]
    if diagonal:
        parts.append(_path([place(0, 0), place(1, 1)], 'class="reference"'))
    for number, each in enumerate(series):
        parts.append(_curve(place, each, number))
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    parts.append(
        f'<text x="{(_WIDTH + _LEFT - _RIGHT) / 2:.1f}" y="{_HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x_label)}</text>'
        f'<text transform="translate(12 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>'
    )
    return _figure(parts, _HEIGHT, description, _legend(series))


def interval_chart(
    rows: list[tuple[str, float, float, float]], *, description: str
) -> Markup:
    """Values with their intervals, one below the other, and a line at 0.

    Args:
        rows: list of (label, value, low, high), values from -1 to 1.
        description: str. What is shown, for those who hear the page.

    Returns:
        `Markup`, a figure.
    """
    largest = max(max(abs(low), abs(high)) for _, _, low, high in rows)
    limit, step = next(pair for pair in _TOPS if largest <= pair[0])
    bottom = _TOP + _ROW_HEIGHT * len(rows)
    scale = (_WIDTH - _LABEL_WIDTH - 2 * _RIGHT) / (2 * limit)

    def place(value):
        return _LABEL_WIDTH + _RIGHT + (value + limit) * scale

    parts = []
    for number in range(-round(limit / step), round(limit / step) + 1):
        x = place(number * step)
        kind = "grid" if number else "axis"
        # Every second one, or they touch.
        label = f"{number * step:+.2f}" if number else "0"
        parts.append(_line(x, _TOP, x, bottom, f'class="{kind}"'))
        if number % 2 == 0:
            parts.append(
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">'
                f"{label}</text>"
            )
    for number, (label, value, low, high) in enumerate(rows):
        y = _TOP + _ROW_HEIGHT * (number + 0.5)
        parts.append(
            f'<text x="0" y="{y + 4:.1f}">{escape(label)}</text>'
            + _line(place(low), y, place(high), y, 'style="stroke: var(--c0)"')
            + _dot(place(value), y, "--c0", 4)
        )
    return _figure(parts, bottom + 24, description, "")


def bar(share: float, interval=None) -> Markup:
    """A small bar of 0 to 1, with its interval as a line."""
    line = ""
    if interval:
        low, high = (100 * end for end in interval)
        line = _line(low, 5, high, 5, 'class="interval"')
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" '
        'aria-hidden="true"><rect class="all" width="100" height="10"/>'
        f'<rect class="share" width="{100 * share:.2f}" height="10" '
        f'opacity=".55"/>{line}</svg>'
    )


def _log_ticks(right):
    ticks = [
        digit * 10**power
        for power in range(math.ceil(math.log10(right)) + 1)
        for digit in (1, 2, 5)
    ]
    return [tick for tick in ticks if tick <= right]


def _grid(place, ticks, right, top, step, log_x):
    left = ticks[0]
    parts = []
    for tick in ticks:
        x, y = place(tick, 0)
        parts.append(_line(x, y, x, place(tick, top)[1], 'class="grid"'))
        parts.append(
            f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">'
            f"{tick:g}</text>"
        )
    for number in range(round(top / step) + 1):
        x, y = place(left, number * step)
        kind = "grid" if number else "axis"
        parts.append(_line(x, y, place(right, 0)[0], y, f'class="{kind}"'))
        parts.append(
            f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">'
            f"{number * step:g}</text>"
        )
    return "".join(parts)


def _curve(place, series, number):
    color = f"--c{number % _NUM_COLORS}"
    places = [place(*point) for point in _thinned(series.points)]
    style = f'class="curve" style="{_stroke(number)}"'
    parts = [_path(places, style) if len(places) > 1 else ""]
    if len(series.points) <= _MAX_MARKED:
        parts += [_dot(x, y, color, 3.2) for x, y in places]
        for (x, _), ends in zip(
            series.points, series.intervals or (), strict=False
        ):
            (left, low), (_, high) = (place(x, end) for end in ends)
            parts.append(
                _line(left, low, left, high, f'style="stroke: var({color})"')
            )
    return "".join(parts)


def _thinned(points):
    if len(points) <= _MAX_POINTS:
        return points
    last = len(points) - 1
    return [
        points[number * last // (_MAX_POINTS - 1)]
        for number in range(_MAX_POINTS)
    ]


def _stroke(number):
    dashes = _DASHES[number % len(_DASHES)]
    return f"stroke: var(--c{number % _NUM_COLORS}); stroke-dasharray: {dashes}"


def _line(x1, y1, x2, y2, attributes):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f"{attributes}/>"
    )


def _dot(x, y, color, radius):
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" '
        f'style="fill: var({color})"/>'
    )


def _path(places, attributes):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" {attributes}/>'


def _legend(series):
    if len(series) < 2:
        return ""
    entries = "".join(
        f'<span dir="auto"><svg viewBox="0 0 36 10" aria-hidden="true">'
        f'<line x1="0" y1="5" x2="36" y2="5" class="curve" '
        f'style="{_stroke(number)}"/></svg> {escape(each.name)}</span>'
        for number, each in enumerate(series)
    )
    return f'<figcaption class="legend">{entries}</figcaption>'


def _figure(parts, height, description, caption):
    return Markup(
        f'<figure><svg class="chart" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{escape(description)}">\n'
        + "\n".join(parts)
        + f"\n</svg>{caption}</figure>\n"
    )
