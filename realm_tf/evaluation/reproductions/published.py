"""The published numbers, and the tables of the docs that are made of them.

docs/results/NAME.json is what a run of a measurement wrote: its `name`,
`commands`, `machine`, `version` and `tables`. A table has a `title` and `rows`
(label to column to cell); a cell is what `Cell` takes, and takes from the table
what all its cells have in common. A cell that no command gives is a text, and
is published as it is. In README.md and docs/*.md

    <!-- results: NAME -->
    <!-- /results -->

hold the tables of NAME between them; `<!-- results: NAME: TITLE -->`, one of them.
"""

import dataclasses
import json
import pathlib
import re

import realm_tf
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions.cells import Cell

_RESULTS = "docs/results"
_MARKED = re.compile(
    r"^(?P<indent> *)<!-- results: (?P<name>[a-z0-9-]+)"
    r"(?:: (?P<title>.+?))? -->\n"
    r"(?P<tables>.*?)^ *<!-- /results -->\n",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Results:
    """What a measurement gave.

    Args:
        name: str. Of the measurement.
        commands: list of str. What was run; `{output}`, `{data_dir}` and
            `{wheel}` are given by whoever runs them.
        machine: str. What it ran on.
        version: str. Of this package.
        tables: list of dict. As in the file.
        date: str. When it ran. Defaults to unknown.
    """

    name: str
    commands: list[str]
    machine: str
    version: str
    tables: list[dict]
    date: str = ""

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

    def write(self, path: str) -> None:
        """Writes a results file, each cell on a line."""
        lines = []

        def placed(cell):
            lines.append(json.dumps(cell, ensure_ascii=False))
            return f"\0{len(lines) - 1}"

        content = dataclasses.asdict(self)
        content["tables"] = [
            {**table, "rows": _each(table["rows"], placed)}
            for table in self.tables
        ]
        text = re.sub(
            r'"\\u0000(\d+)"',
            lambda match: lines[int(match[1])],
            json.dumps(content, indent=1, ensure_ascii=False),
        )
        write_text(path, f"{text}\n")

    @property
    def titles(self) -> list[str]:
        """The titles of the tables."""
        return [table["title"] for table in self.tables]

    @property
    def cells(self) -> list[Cell]:
        """The cells whose numbers commands give."""
        found = []
        for table in self.tables:
            common = {k: v for k, v in table.items() if k != "rows"}
            for row, cells in table["rows"].items():
                found += [
                    Cell(row=row, column=column, **{**common, **cell})
                    for column, cell in cells.items()
                    if isinstance(cell, dict)
                ]
        return found

    def measured(self, cells: list[Cell], **changes) -> "Results":
        """The results of another run: its numbers, and no texts."""
        numbers = {(c.title, c.row, c.column): c.numbers for c in cells}
        tables = []
        for table in self.tables:
            rows = {
                row: {
                    column: {
                        **cell,
                        "numbers": numbers[table["title"], row, column],
                    }
                    for column, cell in cells.items()
                    if isinstance(cell, dict)
                }
                for row, cells in table["rows"].items()
            }
            rows = {row: cells for row, cells in rows.items() if cells}
            if rows:
                tables.append({**table, "rows": rows})
        return dataclasses.replace(self, tables=tables, **changes)

    def markdown(self, title: str | None = None) -> str:
        """The tables, and what they were measured on.

        Args:
            title: str. Of the only one to show. Defaults to all.
        """
        shown = {(c.title, c.row, c.column): c.text for c in self.cells}
        parts = []
        for table in self.tables:
            if title not in (None, table["title"]):
                continue
            rows = table["rows"]
            columns = list(
                dict.fromkeys(key for cells in rows.values() for key in cells)
            )
            lines = [[table["title"], *columns], ["---"] * (1 + len(columns))]
            for row, cells in rows.items():
                lines.append(
                    [
                        row,
                        *(
                            shown.get(
                                (table["title"], row, key), cells.get(key, "")
                            )
                            for key in columns
                        ),
                    ]
                )
            parts.append("".join(f"| {' | '.join(line)} |\n" for line in lines))
        commands = (
            [f"realm reproduce {self.name}"] if self.cells else self.commands
        )
        parts.append(
            f"On {self.machine}, version {self.version}, by "
            f"{', '.join(f'`{each}`' for each in commands)}.\n"
        )
        return "\n".join(parts)


def _each(rows, change):
    return {
        row: {column: change(cell) for column, cell in cells.items()}
        for row, cells in rows.items()
    }


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


def write_tables(root: pathlib.Path, *, check: bool = False) -> list[str]:
    """Writes the tables of README.md and docs/*.md.

    Args:
        root: `pathlib.Path`. Of a repository.
        check: bool. Whether to write nothing. Defaults to `False`.

    Returns:
        list of str: the files that changed, or would change.

    Raises:
        InputError: if a file names results that are not there, or no file
            has the tables of a results file.
    """
    results = read_all(root)
    changed, shown = [], set()
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")

        def replaced(match, path=path):
            name, title, indent = match.group("name", "title", "indent")
            if name not in results:
                raise InputError(
                    f"{path} shows results {name!r}; {_RESULTS} has "
                    f"{', '.join(results)}."
                )
            titles = results[name].titles
            if title and title not in titles:
                raise InputError(
                    f"{path} shows the table {title!r} of {name}, which has "
                    f"{', '.join(titles)}."
                )
            which = f"{name}: {title}" if title else name
            shown.update(
                f"{name}: {each}" for each in ([title] if title else titles)
            )
            made = (
                f"<!-- results: {which} -->\n\n"
                f"{results[name].markdown(title)}\n<!-- /results -->\n"
            )
            return "".join(
                f"{indent}{line}" if line.strip() else line
                for line in made.splitlines(keepends=True)
            )

        made = _MARKED.sub(replaced, text)
        if made != text:
            changed.append(str(path.relative_to(root)))
            if not check:
                write_text(str(path), made)
    unseen = [
        f"{name}: {title}"
        for name, each in results.items()
        for title in each.titles
        if f"{name}: {title}" not in shown
    ]
    if unseen:
        raise InputError(
            f"No page shows the results {', '.join(unseen)}: put `<!-- results: "
            f"{unseen[0]} -->` and `<!-- /results -->` into one."
        )
    return changed
