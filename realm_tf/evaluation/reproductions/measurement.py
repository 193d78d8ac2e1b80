"""What a published measurement is: commands, and how their numbers are read.

The published numbers are in docs/results/NAME.json, the tables of docs/ are
generated from these files, and `realm reproduce` measures again.
"""

import dataclasses
import json
import os

from realm_tf.artifacts.paths import Path

# What commands may hold, in braces.
PLACEHOLDERS = ("output", "data_dir", "wheel")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a published table: one number or several.

    Args:
        row: str. Label of its row.
        column: str. Label of its column.
        paths: str. Where its numbers are, with spaces between them: keys and
            positions of a JSON document, joined by `/`. Behind `FILE:` they
            are those of a file (JSON, JSONL) below the directory of the
            measurement; otherwise of what the last command prints. `a / b` is
            the ratio of two.
        form: str. How the table shows the numbers. Defaults to a whole
            number.
        tolerance: str. How far a number of another run may be from the
            published one, in the unit of the table, or as a share such as
            `"15 %"`. Defaults to none: the number depends on the machine, is
            shown and not judged.
        scale: float. What the numbers in the JSON are multiplied by. Defaults
            to `1`.
    """

    row: str
    column: str
    paths: str
    form: str = "{:,.0f}"
    tolerance: str = ""
    scale: float = 1.0

    def accepts(self, expected: float, got: float) -> bool:
        """Whether a number is near enough to the published one."""
        allowed = (
            abs(expected) * float(self.tolerance.rstrip(" %")) / 100
            if self.tolerance.endswith("%")
            else float(self.tolerance)
        )
        # What float64 makes of decimals must not decide.
        return abs(got - expected) <= allowed + 1e-9 * max(1.0, abs(expected))

    def read(self, directory: str, stdout: str) -> list[float]:
        """The numbers that commands wrote, in the unit of the table.

        Args:
            directory: str. Of the measurement.
            stdout: str. Name of the file with what the last command printed.

        Raises:
            OSError, ValueError, LookupError, ZeroDivisionError: if they are
                not there.
        """
        file, _, paths = self.paths.rpartition(":")
        content = read_json(os.path.join(directory, file or stdout))
        if " / " in paths:
            above, below = (number_at(content, p) for p in paths.split(" / "))
            return [self.scale * above / below]
        return [self.scale * number_at(content, p) for p in paths.split(" ")]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Numbers that the same commands produce.

    Args:
        name: str. Small letters, digits and hyphens.
        commands: tuple of str. One after the other, without a shell, at the
            root of the repository; they begin with `realm` or `python
            SCRIPT.py`. `{output}` is a directory of the measurement's own,
            `{data_dir}` and `{wheel}` are given by whoever reproduces.
        minutes: float. All commands together, on `machine`.
        machine: str. What the published numbers were measured on.
        tables: dict. Title of a table, as its first column is headed, to its
            cells (tuple of `Cell`).
        peers: tuple of str. Packages that are measured beside ours.
    """

    name: str
    commands: tuple[str, ...]
    minutes: float
    machine: str
    tables: dict[str, tuple[Cell, ...]]
    peers: tuple[str, ...] = ()

    def needs(self, placeholder: str) -> bool:
        """Whether a command has `{placeholder}`."""
        return any(f"{{{placeholder}}}" in each for each in self.commands)


def grid(rows: dict[str, str], *columns: tuple) -> tuple[Cell, ...]:
    """Cells of a table whose numbers are found by row.

    Args:
        rows: dict. Label to what `{row}` stands for in paths.
        *columns: tuple. The label, and what else a `Cell` has.
    """
    return tuple(
        Cell(row, column, paths.format(row=key), *others)
        for row, key in rows.items()
        for column, paths, *others in columns
    )


def listed(*rows: tuple) -> tuple[Cell, ...]:
    """Cells of a table of one column: its row and what else a `Cell` has."""
    return tuple(Cell(row, "measured", *others) for row, *others in rows)


def read_json(path: str):
    """The content of a JSON or JSONL file, or what a command printed as JSON.

    Of what was printed it is the object that begins a line, or a list of them
    if there are several.
    """
    text = Path(path).read_text()
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    if not path.endswith(".stdout"):
        return json.loads(text)
    found, text = [], f"\n{text}"
    while "\n{" in text:
        text = text[text.index("\n{") + 1 :]
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError:
            continue
        found.append(value)
        text = text[end:]
    if not found:
        raise ValueError("no JSON was printed")
    return found[0] if len(found) == 1 else found


def number_at(content, path: str) -> float:
    """The number at a path: keys and positions, joined by `/`."""
    for key in path.split("/"):
        try:
            content = content[int(key) if isinstance(content, list) else key]
        except (LookupError, TypeError, ValueError) as error:
            raise LookupError(f"there is no {key!r}") from error
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise ValueError(f"{content!r} is no number")
    return float(content)
