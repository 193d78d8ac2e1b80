import pytest
from matplotlib import image

from realm_tf.artifacts import figures
from realm_tf.errors import InputError
from realm_tf.training import plots


def _log(slope, *, steps=range(10, 60, 10), **more):
    return [
        {
            "step": step,
            "loss": 5 - slope * step,
            "retrieval_utility": slope * step - 0.2,
            "entropy": None,
            **more,
        }
        for step in steps
    ]


def _figure(monkeypatch, *args, **kwargs):
    """What would be written."""
    written = []
    monkeypatch.setattr(figures, "write_png", lambda f, path: written.append(f))
    plots.plot_training(*args, **kwargs)
    return written[0]


def _curves(axes):
    """(x, y, width, colour) of what is drawn but for the line across."""
    return [
        (
            list(line.get_xdata()),
            list(line.get_ydata()),
            line.get_linewidth(),
            line.get_color(),
        )
        for line in axes.get_lines()
        if line.get_linestyle() == "-"
    ]


def test_a_curve_of_each_value_and_run(monkeypatch):
    logs = {"seed 0": _log(0.01), "seed 1": _log(0.02, steps=[30], speed=1)}
    figure = _figure(monkeypatch, logs, "x.png")
    loss, utility = figure.axes
    assert loss.get_title() == "Masked-LM loss"
    assert loss.get_ylabel() == "nats per masked wordpiece"
    assert loss.get_xlabel() == "step"
    (x, y, *_), (other_x, other_y, *_) = _curves(loss)
    assert x == [10, 20, 30, 40, 50]
    assert y == pytest.approx([4.9, 4.8, 4.7, 4.6, 4.5])
    assert other_x == [30] and other_y == pytest.approx([4.4])
    # A line at 0, in this panel alone.
    across = [e for e in utility.get_lines() if e.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in across] == [[0.0, 0.0]]
    assert len(loss.get_lines()) == 2
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["seed 0", "seed 1"]


def test_runs_of_a_group_and_their_mean(monkeypatch):
    logs = {
        "fresh 0": _log(0.01),
        "stale 0": _log(0.03),
        "fresh 1": _log(0.02, steps=[10, 30, 60]),
    }
    groups = {"fresh 0": "fresh", "fresh 1": "fresh"}
    figure = _figure(monkeypatch, logs, "x.png", groups=groups)
    one, two, mean, stale = _curves(figure.axes[0])
    assert len({one[3], two[3], mean[3]}) == 1 and stale[3] != mean[3]
    assert mean[0] == [10, 30]
    assert mean[1] == pytest.approx([4.85, 4.55])
    assert mean[2] > stale[2] > one[2] == two[2]
    (legend,) = figure.legends
    labels = [t.get_text() for t in legend.get_texts()]
    assert labels == ["fresh (mean of 2)", "stale 0"]


def test_it_writes_a_png(tmp_path):
    path = tmp_path / "runs.png"
    lines = [
        {p.name: 0.5 + 0.1 * s for p in plots.PANELS} | {"step": s}
        for s in range(5)
    ]
    plots.plot_training({"a": lines}, str(path))
    height, width, _ = image.imread(path).shape
    assert width == 1200 and height > 1200
    # Nothing else, and nothing of pyplot.
    assert [p.name for p in tmp_path.iterdir()] == ["runs.png"]


def test_nothing_to_draw(tmp_path):
    for logs in ({}, {"a": []}, {"a": [{"step": 1, "loss": None}]}):
        with pytest.raises(InputError, match="No line to draw"):
            plots.plot_training(logs, str(tmp_path / "x.png"))
    with pytest.raises(InputError, match="cannot be written"):
        plots.plot_training({"a": _log(0)}, str(tmp_path / "no" / "x.png"))
    assert not list(tmp_path.iterdir())


def test_a_warm_up_has_its_own_panels(monkeypatch, tmp_path):
    lines = [
        {"step": s, "loss": 3.0, "accuracy_own_block": 0.1 * s} for s in (1, 2)
    ]
    figure = _figure(monkeypatch, {"warm": lines}, "x.png")
    titles = [axes.get_title() for axes in figure.axes if axes.axison]
    assert titles == [
        "Masked-LM loss",
        "Hidden wordpieces right, the sentence's own block in view",
    ]
    with pytest.raises(InputError, match="a is a run of pre-training, warm of"):
        plots.plot_training(
            {"a": _log(0), "warm": lines}, str(tmp_path / "x.png")
        )


def test_a_fine_tuned_run_is_called_what_it_is(monkeypatch, tmp_path):
    lines = [
        {"step": s, "loss": 3.0, "retriever_loss": 1.0, "reader_loss": 2.0}
        for s in (10, 20)
    ]
    figure = _figure(monkeypatch, {"tuned": lines}, "x.png")
    titles = [axes.get_title() for axes in figure.axes if axes.axison]
    assert titles == [
        "Loss of retriever and reader",
        "Retriever's loss",
        "Reader's loss",
    ]
    assert figure.axes[0].get_ylabel() == "nats a question"
    with pytest.raises(
        InputError, match="tuned is a run of fine-tuning, a of pre-training"
    ):
        plots.plot_training(
            {"tuned": lines, "a": _log(0)}, str(tmp_path / "x.png")
        )
