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


def test_a_curve_of_each_value_and_run(monkeypatch):
    written = []
    monkeypatch.setattr(figures, "write_png", lambda f, path: written.append(f))
    logs = {"seed 0": _log(0.01), "seed 1": _log(0.02, steps=[30], speed=1)}
    plots.plot_training(logs, "x.png")
    (figure,) = written
    loss, utility = figure.axes
    assert (loss.get_title(), loss.get_ylabel()) == ("Loss", "nats")
    assert loss.get_xlabel() == "step"
    one, other = loss.get_lines()
    assert list(one.get_xdata()) == [10, 20, 30, 40, 50]
    assert one.get_ydata() == pytest.approx([4.9, 4.8, 4.7, 4.6, 4.5])
    assert list(other.get_xdata()) == [30]
    assert other.get_ydata() == pytest.approx([4.4])
    # A line at 0, in this panel alone.
    across = [e for e in utility.get_lines() if e.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in across] == [[0.0, 0.0]]
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["seed 0", "seed 1"]


@pytest.mark.slow
def test_it_writes_a_png(tmp_path):
    path = tmp_path / "runs.png"
    lines = [
        {name: 0.5 + 0.1 * s for name in plots.PANELS} | {"step": s}
        for s in range(5)
    ]
    plots.plot_training({"a": lines}, str(path))
    height, width, _ = image.imread(path).shape
    assert width == 1200 and height > 1200


def test_nothing_to_draw(tmp_path):
    for logs in ({}, {"a": []}, {"a": [{"step": 1, "loss": None}]}):
        with pytest.raises(InputError, match="No line to draw"):
            plots.plot_training(logs, str(tmp_path / "x.png"))
    with pytest.raises(InputError, match="cannot be written"):
        plots.plot_training({"a": _log(0)}, str(tmp_path / "no" / "x.png"))
    assert not list(tmp_path.iterdir())
