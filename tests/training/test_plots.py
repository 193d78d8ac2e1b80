import pytest

from realm_tf.artifacts import figures
from realm_tf.errors import InputError
from realm_tf.training import plots


def _log(slope, *, steps=range(10, 60, 10), **more):
    return [
        {"step": step, "steps": 10, "loss": 5 - slope * step, "entropy": None}
        | more
        for step in steps
    ]


def test_a_curve_of_each_value_and_run(monkeypatch):
    written = []
    monkeypatch.setattr(figures, "write_png", lambda f, path: written.append(f))
    logs = {"seed 0": _log(0.01), "seed 1": _log(0.02, steps=[30], index_age=1)}
    plots.plot_training(logs, "x.png")
    (figure,) = written
    loss, age = figure.axes
    assert (loss.get_title(), age.get_title()) == ("loss", "index_age")
    assert loss.get_xlabel() == "step"
    one, other = loss.get_lines()
    assert list(one.get_xdata()) == [10, 20, 30, 40, 50]
    assert one.get_ydata() == pytest.approx([4.9, 4.8, 4.7, 4.6, 4.5])
    assert list(other.get_xdata()) == [30]
    assert other.get_ydata() == pytest.approx([4.4])
    assert other.get_color() == age.get_lines()[1].get_color()
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["seed 0", "seed 1"]


def test_nothing_to_draw(tmp_path):
    for logs in ({}, {"a": []}, {"a": [{"step": 1, "loss": None}]}):
        with pytest.raises(InputError, match="No line to draw"):
            plots.plot_training(logs, str(tmp_path / "x.png"))
    with pytest.raises(InputError, match="cannot be written"):
        plots.plot_training({"a": _log(0)}, str(tmp_path / "no" / "x.png"))
    assert not list(tmp_path.iterdir())
