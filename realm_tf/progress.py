"""Progress of a long command on stderr: a bar on a terminal, else lines."""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar
from rich.progress import TextColumn
from rich.progress import TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Reports how many items are done and the time that the rest takes.

    `with Progress(...) as progress` draws a bar if stderr is a terminal.
    Elsewhere, and without `with`, it prints a line every ten seconds.

    Args:
        command: str. Before each line, such as `"embed"`.
        what: str. The items, such as `"blocks"`.
        total: int or None. Number of items. `None`: unknown, no estimate.
        before: int. Items done by an earlier run. Defaults to `0`.
        clock: callable. Returns the time in seconds. Defaults to `None`:
            `time.monotonic`.
    """

    def __init__(
        self,
        command: str,
        what: str,
        total: int | None = None,
        *,
        before: int = 0,
        clock: Callable[[], float] | None = None,
    ):
        self._command = command
        self._what = what
        self._total = total
        self._before = self._done = before
        self._clock = clock or time.monotonic
        self._started = self._last = self._clock()
        self._bar = None

    def __enter__(self):
        console = Console(stderr=True)
        if console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}:"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self._what),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._bar.add_task(
                self._command, total=self._total, completed=self._before
            )
            self._bar.start()
        return self

    def __exit__(self, *error):
        if self._bar:
            self._bar.stop()

    def __call__(self, done: int, *more: str) -> None:
        """Sets the number of items done; a line ends with `more`."""
        self._done = done
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done)
        elif self.is_due():
            self.show(done, *more)

    def add(self, number: int) -> None:
        """Adds to the number of items done."""
        self(self._done + number)

    def is_due(self) -> bool:
        """Whether it is time for a line; restarts the ten seconds if so."""
        now = self._clock()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last = now
        return True

    def show(self, done: int, *more: str) -> None:
        """Prints a line: items done, rate, estimate and more."""
        self._done = done
        seconds = max(1e-3, self._last - self._started)
        rate = (self._done - self._before) / seconds
        of_total = "" if self._total is None else f" of {self._total:,}"
        text = f"{self._done:,}{of_total} {self._what}, {rate:,.1f} a second"
        if self._total is not None and rate:
            minutes = max(0, self._total - self._done) / rate / 60
            text += f", {minutes:,.1f} minutes left"
        self.print(", ".join([text, *more]))

    def print(self, text: str) -> None:
        """Prints a line."""
        print(f"{self._command}: {text}", file=sys.stderr, flush=True)
