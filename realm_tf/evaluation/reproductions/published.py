"""The published numbers, and the tables of the docs that are made of them.

docs/results/NAME.json is what a run of a measurement wrote: its `name`,
`commands`, `machine`, `version` and `tables` (title to row to column to the
numbers of that cell, in the unit of the table). A cell that no command gives is
a text, and is published as it is. In README.md and docs/*.md

    <!-- results: NAME -->
    <!-- /results -->

hold the tables of NAME between them.
"""

import json
import pathlib
import re

import realm_tf
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions.measurement import Measurement
from realm_tf.evaluation.reproductions.pipelines import PIPELINES
from realm_tf.evaluation.reproductions.pretraining import PRETRAINING
from realm_tf.evaluation.reproductions.serving import SERVING
from realm_tf.evaluation.reproductions.systems import SYSTEMS

MEASUREMENTS = {
    each.name: each for each in PIPELINES + PRETRAINING + SYSTEMS + SERVING
}
_RESULTS = "docs/results"
_MARKED = re.compile(
    r"^(?P<indent> *)<!-- results: (?P<name>[a-z0-9-]+) -->\n"
    r"(?P<tables>.*?)^ *<!-- /results -->\n",
    re.MULTILINE | re.DOTALL,
)
# A list of numbers, over several lines.
_NUMBERS = re.compile(r"\[\n\s+[-+\d.e]+(?:,\s+[-+\d.e]+)*\s+\]")


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


def read_results(root: pathlib.Path) -> dict[str, dict]:
    """The content of each docs/results/NAME.json, by name.

    Args:
        root: `pathlib.Path`. Of a repository.

    Raises:
        InputError: if one of them is damaged.
    """
    found = {}
    for path in sorted((root / _RESULTS).glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found[content["name"]] = content
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path} is no results of a measurement ({error!r}): copy the "
                "results.json that `realm reproduce` wrote."
            ) from error
    return found


def write_results(path: str, results: dict) -> None:
    """Writes a results file, the numbers of a cell on one line."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    text = _NUMBERS.sub(
        lambda match: f"[{' '.join(match[0][1:-1].split())}]", text
    )
    write_text(path, f"{text}\n")


def tables(results: dict, measurement: Measurement | None) -> str:
    """Tables of a measurement's numbers, in Markdown.

    Args:
        results: dict. The content of a results file.
        measurement: `Measurement`. How numbers are shown; `None` where all
            cells are texts.
    """
    forms = {
        (title, cell.row, cell.column): cell.form
        for title, cells in (measurement.tables if measurement else {}).items()
        for cell in cells
    }
    parts = []
    for title, rows in results["tables"].items():
        columns = list(
            dict.fromkeys(key for row in rows.values() for key in row)
        )
        lines = [[title, *columns], ["---"] * (1 + len(columns))]
        for row, cells in rows.items():
            shown = [
                _show(cells[key], forms.get((title, row, key)))
                if key in cells
                else ""
                for key in columns
            ]
            lines.append([row, *shown])
        parts.append("".join(f"| {' | '.join(line)} |\n" for line in lines))
    commands = (
        [f"realm reproduce {results['name']}"]
        if measurement
        else results["commands"]
    )
    where = (
        f"On {results['machine']}, version {results['version']}, by "
        f"{', '.join(f'`{each}`' for each in commands)}.\n"
    )
    return "\n".join([*parts, where])


def _show(value, form):
    return value if isinstance(value, str) else form.format(*value)


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
    results = read_results(root)
    changed, shown = [], set()
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")

        def replaced(match, path=path):
            name, indent = match["name"], match["indent"]
            if name not in results:
                raise InputError(
                    f"{path} shows results {name!r}; {_RESULTS} has "
                    f"{', '.join(results)}."
                )
            shown.add(name)
            made = tables(results[name], MEASUREMENTS.get(name))
            lines = [f"<!-- results: {name} -->\n", "\n"]
            lines += [*made.splitlines(keepends=True), "\n"]
            lines.append("<!-- /results -->\n")
            return "".join(
                f"{indent}{line}" if line.strip() else line for line in lines
            )

        made = _MARKED.sub(replaced, text)
        if made != text:
            changed.append(str(path.relative_to(root)))
            if not check:
                write_text(str(path), made)
    unseen = sorted(results.keys() - shown)
    if unseen:
        raise InputError(
            f"No page shows the results {', '.join(unseen)}: put `<!-- results: "
            f"{unseen[0]} -->` and `<!-- /results -->` where they belong."
        )
    return changed
