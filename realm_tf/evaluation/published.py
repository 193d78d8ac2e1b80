"""The published numbers, and the tables of the docs that are made of them.

docs/results/NAME.json says what was run and what that gave, as `Results`. A
table has a `title` and `rows` (label to column to cell); a cell is what `Cell`
takes, and takes from the table what all its cells have in common. A cell that
no command gives is a text, and is published as it is. In README.md and
docs/*.md

    <!-- results: NAME -->
    <!-- /results -->

hold the tables of NAME between them; `<!-- results: NAME: TITLE -->`, one of them.

The tolerances are ours: half of the last digit where nothing but arithmetic
decides; two questions of 322 for a retrieval that no training touches; about
half of the 95 % interval where training does (the same machine repeats it
exactly, another one rounds otherwise); about two standard errors of the
sentences that pre-training is measured on; 15 % for ratios of times and for
memory, 20 % for those of a server. Seconds and rates depend on the machine;
what is judged is the ratio to the peer of the same run.
"""

import dataclasses
import json
import os
import pathlib
import re

import realm_tf
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

_RESULTS = "docs/results"
_MARKED = re.compile(
    r"^(?P<indent> *)<!-- results: (?P<name>[a-z0-9-]+)"
    r"(?:: (?P<title>.+?))? -->\n"
    r"(?P<tables>.*?)^ *<!-- /results -->\n",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell whose numbers commands give: one number or several.

    Args:
        title: str. Of its table.
        row: str. Label of its row.
        column: str. Label of its column.
        numbers: list of float. As published, in the unit of the table.
        source: str. Where they are, with spaces between them: keys and
            positions of a JSON document, joined by `/`. Behind `FILE:` they
            are those of a file (JSON, JSONL) below the directory of the
            measurement; otherwise of what the last command prints. `a / b` is
            the ratio of two.
        form: str. How the table shows the numbers, as `str.format`.
        within: str. How far a number of another run may be from the published
            one, in the unit of the table, or as a share such as `"15 %"`.
            Defaults to none: the number depends on the machine, is shown and
            not judged.
        scale: float. What the numbers in the JSON are multiplied by. Defaults
            to `1`.
    """

    title: str
    row: str
    column: str
    numbers: list[float]
    source: str
    form: str
    within: str = ""
    scale: float = 1.0

    def text(self, numbers: list[float]) -> str:
        """How the table shows numbers."""
        return self.form.format(*numbers)

    def accepts(self, numbers: list[float]) -> bool:
        """Whether numbers are near enough to the published ones."""
        size, _, unit = self.within.partition(" ")
        return all(
            # What float64 makes of decimals must not decide.
            abs(got - here)
            <= float(size) * (abs(here) / 100 if unit else 1)
            + 1e-9 * max(1.0, abs(here))
            for here, got in zip(self.numbers, numbers, strict=True)
        )

    def find(self, directory: str, stdout: str) -> list[float]:
        """The numbers that commands wrote.

        Args:
            directory: str. Of the measurement.
            stdout: str. Name of the file with what the last command printed.

        Raises:
            OSError, ValueError, LookupError, ZeroDivisionError: if they are
                not there.
        """
        file, _, paths = self.source.rpartition(":")
        content = _read(os.path.join(directory, file or stdout))
        if " / " in paths:
            above, below = (_number(content, p) for p in paths.split(" / "))
            found = [above / below]
        else:
            found = [_number(content, path) for path in paths.split(" ")]
        return [self.scale * number for number in found]


def _read(path):
    """The content of a JSON or JSONL file, or what a command printed as JSON.

    Of what was printed it is the object that begins a line, or a list of them
    if there are several.
    """
    text = Path(path).read_text()
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    if not path.endswith(".stdout"):
        return json.loads(text)
    found, decoder = [], json.JSONDecoder()
    for start in re.finditer(r"^\{", text, re.MULTILINE):
        try:
            found.append(decoder.raw_decode(text, start.start())[0])
        except json.JSONDecodeError:
            continue
    if not found:
        raise ValueError("no JSON was printed")
    return found[0] if len(found) == 1 else found


def _number(content, path):
    for key in path.split("/"):
        try:
            content = content[int(key) if isinstance(content, list) else key]
        except (LookupError, TypeError, ValueError) as error:
            raise LookupError(f"there is no {key!r}") from error
    return float(content)


@dataclasses.dataclass(frozen=True)
class Results:
    """What a measurement runs, and what that gave.

    Args:
        name: str. Of the measurement.
        commands: list of str. What was run, one after the other, at the root
            of the repository; each begins with `realm` or `python SCRIPT.py`.
            `{output}` is a directory of the measurement's own, `{data_dir}`
            and `{wheel}` are given by whoever runs them.
        machine: str. What it ran on.
        version: str. Of this package.
        tables: list of dict. As in the file.
        date: str. When it ran. Defaults to unknown.
        minutes: float. All commands together, on that machine. Defaults to
            unknown, for what is not run again.
        peers: list of str. Packages that are measured beside ours. Defaults
            to none.
    """

    name: str
    commands: list[str]
    machine: str
    version: str
    tables: list[dict]
    date: str = ""
    minutes: float = 0
    peers: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, path: pathlib.Path) -> "Results":
        """Reads a results file.

        Raises:
            InputError: if it is damaged.
        """
        try:
            results = cls(**json.loads(path.read_text(encoding="utf-8")))
            results.markdown()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise InputError(
                f"{path} is no results of a measurement ({error!r}): copy the "
                "results.json that `realm reproduce` wrote."
            ) from error
        return results

    def needs(self, placeholder: str) -> bool:
        """Whether a command has `{placeholder}`."""
        return any(f"{{{placeholder}}}" in each for each in self.commands)

    @property
    def titles(self) -> list[str]:
        """The titles of the tables."""
        return [table["title"] for table in self.tables]

    @property
    def cells(self) -> list[Cell]:
        """The cells whose numbers commands give."""
        return [
            _cell(table, row, column, content)
            for table in self.tables
            for row, cells in table["rows"].items()
            for column, content in cells.items()
            if isinstance(content, dict)
        ]

    def markdown(self, title: str | None = None) -> str:
        """The tables, and what they were measured on.

        Args:
            title: str. Of the only one to show. Defaults to all.
        """
        parts = [
            _markdown_table(table)
            for table in self.tables
            if title in (None, table["title"])
        ]
        commands = (
            [f"realm reproduce {self.name}"] if self.cells else self.commands
        )
        parts.append(
            f"On {self.machine}, version {self.version}, by "
            f"{', '.join(f'`{each}`' for each in commands)}.\n"
        )
        return "\n".join(parts)


def _cell(table, row, column, content):
    common = {key: value for key, value in table.items() if key != "rows"}
    return Cell(row=row, column=column, **{**common, **content})


def _markdown_table(table):
    columns = dict.fromkeys(
        key for row in table["rows"].values() for key in row
    )
    lines = [[table["title"], *columns], ["---"] * (1 + len(columns))]
    for row, cells in table["rows"].items():
        line = [row]
        for column in columns:
            content = cells.get(column, "")
            if isinstance(content, dict):
                cell = _cell(table, row, column, content)
                content = cell.text(cell.numbers)
            line.append(content)
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def locate() -> pathlib.Path:
    """The root of this repository.

    Raises:
        InputError: if the package is installed without its repository.
    """
    root = pathlib.Path(realm_tf.__file__).parents[1]
    if not (root / _RESULTS).is_dir():
        raise InputError(
            f"{root / _RESULTS} does not exist: published results are in the "
            "repository and no part of an installed wheel. Run `realm "
            "reproduce` from an editable installation of a clone."
        )
    return root


def read_all(root: pathlib.Path) -> dict[str, Results]:
    """Each docs/results/NAME.json of a repository, by name.

    Args:
        root: `pathlib.Path`. Of a repository.

    Raises:
        InputError: if one of them is damaged.
    """
    paths = sorted((root / _RESULTS).glob("*.json"))
    return {path.stem: Results.read(path) for path in paths}


def write_tables(root: pathlib.Path) -> list[str]:
    """Writes the tables of README.md and of the pages below docs.

    Args:
        root: `pathlib.Path`. Of a repository.

    Returns:
        list of str: the files that changed.

    Raises:
        InputError: if a file names results that are not there.
    """
    results = read_all(root)
    changed = []
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")

        def replaced(match, path=path):
            name, title, indent = match.group("name", "title", "indent")
            titles = results[name].titles if name in results else []
            if not titles or title not in (None, *titles):
                raise InputError(
                    f"{path} shows results {name!r}, table {title or 'any'!r}; "
                    f"{_RESULTS} has {', '.join(results)}, and of {name} "
                    f"{', '.join(titles) or 'none'}."
                )
            first, *_, last = match[0].splitlines()
            made = ["", *results[name].markdown(title).splitlines(), ""]
            lines = [f"{indent}{line}" if line else "" for line in made]
            return "\n".join([first, *lines, last, ""])

        made = _MARKED.sub(replaced, text)
        if made != text:
            changed.append(str(path.relative_to(root)))
            write_text(str(path), made)
    return changed
