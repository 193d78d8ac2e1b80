"""How far a long command is: a line on stderr now and then."""

import sys
import time
from collections.abc import Callable

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Says how many of something are done and how long the rest will take.

    Args:
        command: str. Before each line, such as `"embed"`.
        what: str. What is counted, such as `"blocks"`.
        total: int or None. Of all; `None`: unknown, no estimate.
        before: int. Of these, done by an earlier run. Defaults to `0`.
        clock: callable. Gives the time in seconds. Defaults to `None`:
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

    def __call__(self, done: int) -> None:
        """Prints a line if `done` is news and the last line is long ago."""
        self._done = done
        if self.is_due():
            self.show(done)

    def add(self, number: int) -> None:
        """As calling it, with so many more done than before."""
        self(self._done + number)

    def is_due(self) -> bool:
        """Whether the last line is long ago; the next is due from now on."""
        now = self._clock()
        if now - self._last < SECONDS_BETWEEN_LINES:
            return False
        self._last = now
        return True

    def show(self, done: int, *more: str) -> None:
        """Prints how far it is, and more."""
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
