"""Does pre-training work, and does a fresh index beat a stale one?

    python benchmarks/pretraining.py --output DIR [--wheel FILE]

Over the embedded corpus of the quick start, in DIR, where a run that was
stopped goes on: from MiniLM's weights, the reader's masked-LM warm-up, then
pre-training with several seeds, and with each of them these `--kinds`: with an
index that is refreshed every so many steps, with one that never is (`stale`), and
with uniformly drawn wordpieces masked instead of salient spans (`uniform`).

Each model is measured on masks that it has not seen, of salient spans and of
uniformly drawn wordpieces. Writes curves (PNG) and results.json, with how far
recalls are from those before (paired by batches of masked sentences). `--measure
MODEL ...` trains nothing and measures models that are there, such as those of
`published.py systems` over the same blocks, and compares them with the first.
"""

import dataclasses
import json
import os
from typing import Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pretraining_measurement as measurement
import tyro

from realm_tf import quickstart
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import pretrain as configs
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.graph import Graph
from realm_tf.operations.init import Init
from realm_tf.operations.operation import Repeated
from realm_tf.operations.pretrain import Pretrain
from realm_tf.training import plots
from realm_tf.training.training_log import read_log

# As the recipe reads them.
_MAX_BLOCK_LENGTH = 64
_START = "start"
_KINDS = {
    "refreshed": {},
    "stale": {"refresh_every": 0},
    "uniform": {"mode": "uniform"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    output: str
    """directory of all models and results; one that is there goes on"""
    wheel: str | None = None
    """as `realm init --from minilm --wheel`"""
    seeds: int = 3
    """of each kind"""
    kinds: tuple[Literal[*_KINDS], ...] = ("refreshed", "stale")
    """what is compared"""
    recipe: Literal[*configs.RECIPES] = "wiki-small"
    """of `realm pretrain`"""
    set: Repeated = ()
    """NAME=VALUE: change a number of that recipe"""
    num_batches: int = 40
    """of masked sentences, for a measurement"""
    measure: tuple[str, ...] = ()
    """models to measure, instead of training any"""
    plan: bool = False
    """only say which steps there are and which are done"""


def main(args: Arguments):
    """Trains and measures, or only one of these."""
    experiments = _Experiments(args)
    if args.plan:
        experiments.graph.print_plan()
    elif args.measure:
        _measure(experiments, args.measure)
    else:
        _run(experiments)


def _measure(experiments, models):
    """Prints numbers of models that are there."""
    # The corpus.
    experiments.graph.run()
    measured = {}
    for model in models:
        measured[model] = experiments.measure(Model(model))
        shown = measurement.without_batches(measured[model])
        print(model, json.dumps(shown), flush=True)
    print("differences", json.dumps(measurement.differences(measured)))


def _run(experiments):
    """Trains all models, measures them, and writes results.json."""
    experiments.graph.run()
    measured = {
        run: experiments.measure(model)
        for run, model in experiments.compared.items()
    }
    results = {
        "recipe": experiments.recipe.flat(),
        "runs": {
            run: measurement.without_batches(found)
            for run, found in measured.items()
        },
        "means": measurement.means(measured),
        "differences": measurement.differences(measured),
        "findable": experiments.measurement.findable(experiments.recipe),
    }
    runs = {k: v for k, v in experiments.compared.items() if k != _START}
    plots.plot_training(_mean_logs(runs), experiments.path("minilm.png"))
    write_text(experiments.path("results.json"), json.dumps(results, indent=2))
    print(json.dumps(results, indent=2))


def _mean_logs(runs):
    """Kind of a run to the means of all its seeds, by step."""
    logs = {}
    for run, model in runs.items():
        logs.setdefault(measurement.kind(run), []).append(read_log(model.path))
    return {
        f"{kind} (mean of {len(of_kind)})": [
            {
                name: float(np.mean([line[name] for line in lines]))
                for name in lines[0]
                if all(line[name] is not None for line in lines)
            }
            for lines in zip(*of_kind, strict=True)
        ]
        for kind, of_kind in logs.items()
    }


class _Experiments:
    """All operations, and which models are compared.

    Attributes:
        graph: `Graph`.
        compared: dict. Name to model: what all runs begin with, then these.
        measurement: `measurement.Measurement`.
    """

    def __init__(self, args):
        self._args = args
        # Exact: no result depends on how fast the machine is.
        self.recipe = (
            configs.RECIPES[args.recipe].parse(args.set).replace(refresh="sync")
        )
        self.graph, self.compared = Graph(), {}
        self._start = self._add(
            Init,
            "minilm-start",
            from_="minilm",
            wheel=args.wheel,
            reader_layers=3,
        )
        blocks = self._add(
            Chunk,
            "blocks",
            input=quickstart.CORPUS,
            vocab=self._start.vocabulary,
            max_block_length=_MAX_BLOCK_LENGTH,
        )
        annotated = self._add(
            Annotate, "annotated", blocks=blocks, tagger="rules"
        )
        self._blocks, self._passages = blocks, annotated
        self.measurement = measurement.Measurement(
            self._blocks, self._passages, args.output, args.num_batches
        )
        if not args.measure:
            self._train()

    def path(self, name):
        return os.path.join(self._args.output, name)

    def measure(self, model):
        """Metrics by what is masked; see `Measurement`."""
        return self.measurement.measure(model, self.recipe)

    def _train(self):
        """Each kind with each seed, from one warm start."""
        warm = self._pretrain(
            "minilm-warm", self._start, self.recipe.replace(num_steps=0)
        )
        self.compared[_START] = warm
        for seed in range(self._args.seeds):
            for kind in self._args.kinds:
                name = f"minilm-{kind}-{seed}"
                self.compared[name] = self._pretrain(
                    name,
                    warm,
                    self.recipe.replace(
                        masked_lm_steps=0, seed=seed, **_KINDS[kind]
                    ),
                )

    def _pretrain(self, name, model, recipe):
        return self._add(
            Pretrain,
            name,
            recipe=recipe,
            model=model,
            blocks=self._blocks,
            corpus=self._passages,
        )

    def _add(self, operation, name, **fields):
        return self.graph.add(operation(output=self.path(name), **fields))


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
