"""Figures drawn by matplotlib, without pyplot: how they look, their files."""

import io
import re

from matplotlib.figure import Figure

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

_DOTS_PER_INCH = 120
# As a page draws them on white; where it is dark, its own take their place.
COLORS = {
    "line": "#d8d8dd",
    "soft": "#5c5c64",
    # The hues of Okabe and Ito (https://jfly.uni-koeln.de/color), which
    # colour-blind people tell apart, dark enough for white.
    "c0": "#0072b2",
    "c1": "#c44e00",
    "c2": "#00805c",
    "c3": "#b0558a",
    "c4": "#8a6500",
    "c5": "#2f8fc4",
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure.

    Args:
        width: float. In inches.
        height: float. In inches.
    """
    return Figure(
        figsize=(width, height), dpi=_DOTS_PER_INCH, layout="constrained"
    )


def finish_axes(
    axes, *, x_label: str, y_label: str = "", title: str = ""
) -> None:
    """Labels of axes, a pale grid and no frame.

    Args:
        axes: `matplotlib.axes.Axes`.
        x_label: str.
        y_label: str. Defaults to none.
        title: str. Defaults to none.
    """
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x_label, fontsize=8)
    axes.set_ylabel(y_label, fontsize=8)
    axes.tick_params(labelsize=8, color=COLORS["soft"])
    axes.grid(color=COLORS["line"], linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLORS["soft"])


def write_png(figure: Figure, path: str) -> None:
    """Writes a figure; a file that is there is replaced.

    Raises:
        InputError: if the file cannot be written.
    """
    image = io.BytesIO()
    figure.savefig(image, format="png")
    try:
        Path(str(path)).write_bytes(image.getvalue())
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}."
        ) from error


def to_svg(figure: Figure) -> str:
    """A figure as an element of a page, in the colours of the page.

    `COLORS` become the page's custom properties of the same names, and texts
    stay texts. The same figure is the same string each time.

    Returns:
        str. Texts in it are escaped.
    """
    from matplotlib import rc_context

    image = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "realm"}):
        figure.savefig(
            image,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    svg = image.getvalue()
    # Without the prologue of a file and names that each figure has.
    svg = re.sub(r'<g id="[\w.]+">', "<g>", svg[svg.index("<svg") :])
    for name, color in COLORS.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg
