"""Curves of training runs, drawn from their logs."""

import math

from realm_tf.artifacts import figures
from realm_tf.errors import InputError

_COLUMNS = 2
# Inches.
_WIDTH, _ROW_HEIGHT, _LEGEND_ROW = 10.0, 2.5, 0.28
# Of which the vertical axis begins at 0.
_FROM_ZERO = ("share", "steps / s")
# Name of a value in a log to its title and unit, in the order of the panels;
# what `realm pretrain` logs, the masked-LM warm-up and `realm finetune`.
PANELS = {
    "loss": ("Loss", "nats"),
    "mlm_accuracy": ("Masked-LM accuracy", "share"),
    "retrieval_utility": ("Retrieval utility", "nats per masked wordpiece"),
    "null_probability": ("p(null block | x)", "share"),
    "entropy": ("Entropy of p(z | x)", "nats"),
    "article_recall": ("Own article among the candidates", "share"),
    "answer_recall": ("The masked span among the candidates", "share"),
    "accuracy_own_block": ("Right with the sentence's own block", "share"),
    "accuracy_answer_block": ("Right beside a block that has it", "share"),
    "accuracy_other_block": ("Right beside any other block", "share"),
    "accuracy_null_block": ("Right without a block", "share"),
    "retriever_loss": ("Retriever's loss", "nats a question"),
    "reader_loss": ("Reader's loss", "nats a question"),
    "candidates_recall": ("An answer among the candidates", "share"),
    "top_block_recall": ("An answer in the best block", "share"),
    "span_accuracy": ("Best span right, where one can be", "share"),
    "index_age": ("Age of the index", "steps"),
    "steps_per_second": ("Speed", "steps / s"),
}


def plot_training(logs: dict[str, list[dict]], path: str) -> None:
    """Draws the curves of one or several runs into a PNG.

    Values that no run has get no panel.

    Args:
        logs: dict. Name of a run to its lines, as `training_log.read_log`
            returns them.
        path: str. The file to write; one that is there is replaced.

    Raises:
        InputError: if no run has a value to draw, or the file cannot be
            written.
    """
    curves = {
        name: {run: _values(lines, name) for run, lines in logs.items()}
        for name in PANELS
    }
    names = [name for name in PANELS if any(curves[name].values())]
    if not names:
        raise InputError(
            f"No line to draw in the logs of {', '.join(logs) or 'no run'}: "
            "train for longer."
        )
    num_rows = math.ceil(len(names) / _COLUMNS)
    figure = figures.new_figure(
        _WIDTH, _ROW_HEIGHT * num_rows + _LEGEND_ROW * len(logs)
    )
    grid = figure.subplots(num_rows, _COLUMNS, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        _draw(axes, name, curves[name])
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=1, frameon=False
    )
    figures.write_png(figure, path)


def _values(lines, name):
    """Step to value; what is null is left out."""
    return {
        line["step"]: line[name] for line in lines if line.get(name) is not None
    }


def _draw(axes, name, curves):
    title, unit = PANELS[name]
    if name == "retrieval_utility":
        axes.axhline(0.0, color="0.4", linewidth=0.8, linestyle="--")
    for run, curve in curves.items():
        # One value alone is no line.
        marker = "o" if len(curve) == 1 else None
        axes.plot(
            list(curve),
            list(curve.values()),
            marker=marker,
            markersize=3,
            linewidth=1.4,
            label=run,
        )
    figures.finish_axes(axes, title=title, x_label="step", y_label=unit)
    if unit in _FROM_ZERO:
        axes.set_ylim(bottom=0)
