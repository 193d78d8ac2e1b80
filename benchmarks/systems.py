"""Trains and measures the systems of a comparison of the paper.

    python benchmarks/systems.py --suite table2 --model DIR ...

systems.toml lists them. `table1` compares REALM with BM25, the initial model,
ORQA, DPR and hybrids; `table2` compares REALM with its ablations.
"""

import dataclasses
import functools
import json
import os
import pathlib
import statistics
import tomllib
from typing import Literal

import runs
import tyro

import realm_tf as realm
from realm_tf.answering import bootstrap
from realm_tf.answering.recall import RECALL_AT
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.operations.operation import Operation

SUITES = tomllib.loads(
    pathlib.Path(__file__).with_name("systems.toml").read_text()
)
RECIPES = {
    "pretrain": pretrain.RECIPES["wiki-small"].replace(refresh="sync"),
    "ict": ict.RECIPES["wiki-small"],
    "dpr": dpr.RECIPES["dpr_laptop"],
    "finetune": finetune.RECIPES["quickstart"],
}
_NAMES = tuple(
    system["name"]
    for suite in ("table1", "table2")
    for system in SUITES[suite]["systems"]
)
_START, _WARM_UP, _ICT, _DPR = "start", "warm_up", "ict", "dpr"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Combine(Operation):
    """Makes a model of the towers of one and the reader of another.

    An index of the first fits it.
    """

    makes = realm.Model

    towers: realm.Model
    """model that gives query and block tower, with their score scale"""
    reader: realm.Model
    """model that gives the reader and its masked-LM head"""
    output: str
    """the directory to make"""

    def run(self) -> realm.Model:
        from realm_tf.models import model_directory
        from realm_tf.models.open_qa import OpenQa

        first, second = map(model_directory.load, (self.towers, self.reader))
        combined = OpenQa(
            first.model.query_embedder,
            first.model.block_embedder,
            second.model.reader,
            knowledge_augmented_encoder=second.model.knowledge_augmented_encoder,
            score_scale=first.model.score_scale,
        )
        with self.write() as stage:
            model_directory.write_files(
                dataclasses.replace(
                    first, model=combined, calibration=second.calibration
                ),
                stage,
            )
        return self.result


@dataclasses.dataclass(frozen=True)
class Cell:
    """A system with a seed, and the objects that hold its numbers.

    Args:
        system: dict. Of systems.toml.
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
    """Trains and measures systems, and writes results.json after each seed.

    Systems share their steps: the masked-LM warm-up and the Inverse Cloze Task are
    trained once, the rest with each seed. Each step leaves its directory in OUTPUT,
    and a stopped run continues. Pre-training is exact (refresh=sync).

    results.json has the metrics of each system and seed. By test it has a `summary`
    (table1: mean over seeds with a bootstrap interval over questions; table2: mean,
    lowest and highest of the seeds), and for table1 the `differences` from REALM.
    """

    suite: Literal["table1", "table2"]
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
    cells: tuple[Literal[*_NAMES], ...] = ()
    """systems (if not given: all of the suite)"""
    set_pretrain: tuple[str, ...] = ()
    """NAME=VALUE of the recipe"""
    set_ict: tuple[str, ...] = ()
    set_dpr: tuple[str, ...] = ()
    set_finetune: tuple[str, ...] = ()

    def run(self) -> dict:
        """Runs all steps; returns the results."""
        for path in (*self.train, self.dev, *self.test):
            # An error in a later step's file appears at once.
            realm.Questions(path).questions  # noqa: B018
        cells = []
        for seed in self.seeds:
            cells += self.add(seed)
            self.steps.graph.run()
            results = collect(self, cells)
            path = pathlib.Path(self.output, "results.json")
            path.write_text(json.dumps(results, indent=1))
        return results

    @functools.cached_property
    def recipes(self) -> dict:
        """Name of a training to its recipe."""
        return {
            name: recipe.parse(getattr(self, f"set_{name}"))
            for name, recipe in RECIPES.items()
        }

    @property
    def chosen(self) -> list[dict]:
        """The systems of `cells`, in the order of the suite."""
        systems = SUITES[self.suite]["systems"]
        return [s for s in systems if s["name"] in (self.cells or _NAMES)]

    @functools.cached_property
    def steps(self) -> runs.Runs:
        """The steps that `add` has added."""
        return runs.Runs(self.output)

    def add(self, seed: int) -> list[Cell]:
        """Adds the steps of all systems with a seed."""
        return [self._cell(system, seed) for system in self.chosen]

    def _cell(self, system, seed):
        towers = self._source(system["towers"], seed)
        index = self._index(towers)
        found = {"blocks": self.blocks, "index": index}
        zero_shot = {}
        if SUITES[self.suite]["zero_shot"]:
            zero_shot = self._tests(
                f"zero-shot-{self._label(towers)}",
                model=towers,
                num_reader_blocks=0,
                **found,
            )
        model = self._combined(system["towers"], system["reader"], seed)
        recipe = self.recipes["finetune"].replace(
            seed=seed, **system.get("finetune", {})
        )
        evaluation = name = system["name"]
        if recipe.learns or system["towers"] not in (_START, _ICT):
            evaluation += f"-{seed}"
        if recipe.learns:
            model = self.steps.add(
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
        found["calibration"] = self.steps.add(
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
        if name == _WARM_UP:
            recipe = recipe.replace(num_steps=0)
            return self._pretrain("warm-up", self.model, recipe)
        if name == _ICT:
            return self.steps.add(
                realm.InverseClozeTask,
                _ICT,
                recipe=self.recipes[_ICT],
                model=self.model,
                blocks=self.blocks,
            )
        if name == _DPR:
            return self.steps.add(
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
            self._source(_WARM_UP, seed),
            recipe.replace(masked_lm_steps=0, seed=seed, **changes),
            index=self._index(realm.Model(self.model)),
        )

    def _pretrain(self, name, model, recipe, index=None):
        return self.steps.add(
            realm.Pretrain,
            name,
            recipe=recipe,
            model=model,
            blocks=self.blocks,
            corpus=self.corpus,
            index=index,
        )

    def _index(self, towers):
        name = f"index-{self._label(towers)}"
        return self.steps.index(towers, self.blocks, name)

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
        return self.steps.add(
            Combine,
            f"combined-{self._label(of_towers)}+{self._label(of_reader)}",
            towers=of_towers,
            reader=of_reader,
        )

    def _tests(self, name, **options):
        """Name of each test to its `Evaluation`."""
        return {
            test: self.steps.add(
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
                str(cell.seed): {
                    test: _metrics(cell, test) for test in given.tests
                }
                for cell in found
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


def _metrics(cell, test):
    """All metrics of a test; those before fine-tuning begin with zero_shot_."""
    found = dict(cell.evaluations[test].metrics)
    if cell.zero_shot:
        before = cell.zero_shot[test].metrics
        found |= {f"zero_shot_{name}": v for name, v in before.items()}
    return found


def _ranges(seeds, suite):
    found = {}
    for metric in suite["metrics"]:
        values = [seed[metric] for seed in seeds]
        mean = round(statistics.mean(values), bootstrap.DIGITS)
        low, high = min(values), max(values)
        found[metric] = {"mean": mean, "low": low, "high": high}
    return found


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
    summary, found = bootstrap.summarize(rows), {}
    for metric in suite["metrics"]:
        low, high = summary[f"{metric}_interval"]
        found[metric] = {"mean": summary[metric], "low": low, "high": high}
    return found


if __name__ == "__main__":
    print(json.dumps(tyro.cli(Systems).run()["summary"], indent=1))
