import io

import pytest
from rich.console import Console

from realm_tf import progress
from realm_tf.progress import Progress


@pytest.fixture(autouse=True)
def _every_line(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


@pytest.mark.parametrize(
    "total, estimate", [(4, " of 4 files, 1.0 a second, 0.0"), (None, " files")]
)
def test_lines_where_there_is_no_terminal(capsys, total, estimate):
    times = iter([10.0, 12.0, 13.0])
    with Progress("ask", "files", total, clock=lambda: next(times)) as shown:
        shown.add(2)
        shown(3)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"ask: 2{estimate}")
    assert second.startswith("ask: 3")


def test_a_bar_with_an_estimate_on_a_terminal(capsys, monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "Console", lambda stderr: terminal)
    with Progress("ask", "files", 4, before=1) as shown:
        shown.add(2)
    assert "ask: " in screen.getvalue()
    assert "3/4" in screen.getvalue()
    assert "files" in screen.getvalue()
    # The cursor is visible again.
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex(
        "ask"
    )
    assert not capsys.readouterr().err
