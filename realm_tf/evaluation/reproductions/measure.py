"""Runs a command of reproductions.yaml, and compares what it gave."""

import collections
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import threading
import time

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.evaluation.reproductions import entries as reproductions
from realm_tf.version import __version__

OK, OUTSIDE, NOT_JUDGED, MISSING = "ok", "OUTSIDE", "not judged", "MISSING"
_PRINTED = ".stdout"
BAD = {OUTSIDE, MISSING}
# Of each stream of a command that failed, shown once more at the end.
_NUM_LAST_LINES = 10


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A figure beside what was found.

    Args:
        figure: `reproductions.Figure`.
        got: float or `None`. In the unit of the published number; `None`
            if there is none.
        verdict: str. `OK`, `OUTSIDE`, `NOT_JUDGED` or `MISSING`.
        reason: str. Why it is missing; otherwise empty.
    """

    figure: reproductions.Figure
    got: float | None
    verdict: str
    reason: str = ""


class Command:
    """A command of an entry, which knows whether it has run already.

    Args:
        number: int. Its position in the entry.
        line: str. As it stands in the file.
        values: dict. What the placeholders stand for.
        directory: str. Of the entry.
    """

    def __init__(
        self, number: int, line: str, values: dict[str, str], directory: str
    ):
        self._words = reproductions.split_command(line, values)
        self.text = shlex.join(self._words)
        self._state = os.path.join(directory, f"command-{number}.json")
        # Of the command, to be read after a resumption, too.
        self.stdout = os.path.join(directory, f"command-{number}{_PRINTED}")

    def done_before(self) -> dict | None:
        """What was noted when it had ended well, if it is the same one."""
        if not os.path.exists(self._state):
            return None
        state = json.loads(Path(self._state).read_text())
        is_same = (
            state["words"] == self._words and state["version"] == __version__
        )
        return {**state, "done_before": True} if is_same else None

    def forget(self) -> None:
        """Makes it one that has not run."""
        remove(self._state)

    def run(self, root: str) -> tuple[dict | None, str]:
        """Runs it at `root`: what is noted, or why it failed."""
        programs = {
            "realm": [sys.executable, "-m", "realm_tf.cli"],
            "python": [sys.executable],
        }
        started = time.time()
        status, last_lines = _stream(
            [*programs[self._words[0]], *self._words[1:]], root, self.stdout
        )
        if status:
            return None, (
                f"`{self.text}` ended with the exit status {status}:\n"
                f"{''.join(last_lines).rstrip()}"
            )
        state = {
            "words": self._words,
            "version": __version__,
            "started": time.strftime("%FT%TZ", time.gmtime(started)),
            "seconds": round(time.time() - started, 1),
        }
        write_text(self._state, json.dumps(state, indent=2))
        return {**state, "done_before": False}, ""


def _stream(words, root, stdout_path):
    """Runs a process, showing and keeping what it prints."""
    printed, errors = (
        collections.deque(maxlen=_NUM_LAST_LINES) for _ in range(2)
    )

    def show(source, sink, last_lines, file=None):
        for line in source:
            sink.write(line)
            sink.flush()
            last_lines.append(line)
            if file is not None:
                file.write(line)

    with (
        open(stdout_path, "w", encoding="utf-8") as file,
        subprocess.Popen(
            words,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            # So that progress is seen when it is made.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        # Two pipes, as JSON on the one must not be torn by the other.
        thread = threading.Thread(
            target=show,
            args=(process.stderr, sys.stderr, errors),
            daemon=True,
        )
        thread.start()
        show(process.stdout, sys.stdout, printed, file)
        thread.join()
    return process.returncode, [*printed, *errors]


def compare(
    figure: reproductions.Figure, directory: str, *, stdout: str
) -> Comparison:
    """Compares a published number with what commands wrote.

    Args:
        figure: `Figure`.
        directory: str. Of the entry.
        stdout: str. File with what the last command printed.

    Returns:
        `Comparison`.
    """
    path = (
        stdout
        if figure.source == reproductions.STDOUT
        else os.path.join(directory, figure.source)
    )
    try:
        text = Path(path).read_text()
        content = _parse(text, path)
        got = _number(content, figure.path) / (
            _number(content, figure.divide_by)
            if isinstance(figure.divide_by, str)
            else figure.divide_by
        )
    except (OSError, ValueError, LookupError, ZeroDivisionError) as error:
        why = getattr(error, "strerror", None) or error
        reason = f"{figure.source}, {figure.path}: {why}"
        return Comparison(figure, None, MISSING, reason)
    if figure.tolerance is None:
        return Comparison(figure, got, NOT_JUDGED)
    return Comparison(figure, got, OK if figure.accepts(got) else OUTSIDE)


def _parse(text, path):
    if path.endswith(_PRINTED):
        return _last_json(text)
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def _last_json(text):
    """The last JSON object that begins a line, whatever stands before it."""
    start = f"\n{text}".rfind("\n{")
    if start < 0:
        raise ValueError("no JSON was printed")
    return json.JSONDecoder().raw_decode(text[start:])[0]


def _number(content, path):
    """The number at a path: keys and positions, joined by dots."""
    left = path.split(".")
    while left:
        key, left = _first_key(content, left)
        try:
            is_list = isinstance(content, list)
            content = content[int(key) if is_list else key]
        except (LookupError, TypeError, ValueError) as error:
            raise LookupError(f"there is no {key!r}") from error
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise ValueError(f"{content!r} is no number")
    return float(content)


def _first_key(content, names):
    """The first key, which may have dots of its own, and what follows it."""
    for width in range(1, len(names) + 1):
        key = ".".join(names[:width])
        if isinstance(content, dict) and key in content:
            return key, names[width:]
    return names[0], names[1:]
