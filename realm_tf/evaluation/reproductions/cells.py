"""Cells of published tables: where their numbers come from, how near is near."""

import dataclasses
import json
import os

from realm_tf.artifacts.paths import Path


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

    @property
    def text(self) -> str:
        """What the table shows."""
        return self.form.format(*self.numbers)

    def accepts(self, numbers: list[float]) -> bool:
        """Whether numbers are near enough to the published ones."""
        return all(
            # What float64 makes of decimals must not decide.
            abs(got - here) <= self._allowed(here) + 1e-9 * max(1.0, abs(here))
            for here, got in zip(self.numbers, numbers, strict=True)
        )

    def _allowed(self, number):
        if self.within.endswith("%"):
            return abs(number) * float(self.within.rstrip(" %")) / 100
        return float(self.within)

    def measured(self, directory: str, stdout: str) -> "Cell":
        """The same cell with the numbers that commands wrote.

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
        return dataclasses.replace(
            self, numbers=[self.scale * number for number in found]
        )


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


def _number(content, path):
    for key in path.split("/"):
        try:
            content = content[int(key) if isinstance(content, list) else key]
        except (LookupError, TypeError, ValueError) as error:
            raise LookupError(f"there is no {key!r}") from error
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise ValueError(f"{content!r} is no number")
    return float(content)
