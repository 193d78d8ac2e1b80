"""Does pre-training work, and does a fresh index beat a stale one?

    python benchmarks/pretraining.py --output DIR [--wheel FILE]

Over the embedded corpus of the quick start, in DIR, where a run that was
stopped goes on:

- `minilm`: from MiniLM's weights, the reader's masked-LM warm-up, then
  pre-training (the recipe `wiki-small`).
- `random`: from random weights of a small model, the Inverse Cloze Task (over
  `--text` a longer one, too), the warm-up in four parts (to copy; with the
  recipe's share of blocks that hold what is masked; with many blocks that do
  not help; with more of these than of others), then pre-training (the recipe
  `small`).

Each with several seeds, and of these `--kinds`: with an index that is refreshed
every so many steps, with one that never is (`stale`), and with uniformly drawn
wordpieces masked instead of salient spans (`uniform`).

Each model is measured on masks that it has not seen, of salient spans and of
uniformly drawn wordpieces. Writes curves (PNG) and results.json, with how far
recalls are from those before (paired by batches of masked sentences). `--measure
MODEL ...` trains nothing and measures models that are there, such as those of
`realm ablate` over the same blocks, and compares them with the first.
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
from realm_tf.configs import ict as ict_configs
from realm_tf.configs import pretrain as configs
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.graph import Graph
from realm_tf.operations.init import Init
from realm_tf.operations.inverse_cloze_task import InverseClozeTask
from realm_tf.operations.operation import Repeated
from realm_tf.operations.pack import Pack
from realm_tf.operations.pretrain import Pretrain
from realm_tf.training import plots
from realm_tf.training.training_log import read_log

# Of the embedded corpus; both recipes read blocks of 64 wordpieces.
_MAX_BLOCK_LENGTH = 64
_KINDS = {
    "refreshed": {},
    "stale": {"refresh_every": 0},
    "uniform": {"mode": "uniform"},
}
RANDOM_START = {
    "from_": "random",
    "num_heads": 4,
    "cosine": True,
    "mimetic": True,
    "reader_layers": 4,
}
# Random weights learn to copy first; nothing else can be learnt before.
_COPYING = {"masked_lm_own_block": 0.7, "masked_lm_answer_block": 0.2}
# Then, not to copy from whatever is there.
_JUDGING = {
    "masked_lm_steps": 1000,
    "masked_lm_own_block": 0.25,
    "masked_lm_answer_block": 0.35,
    "masked_lm_other_block": 0.3,
}
# Last, to lose little by blocks that do not help, so that the null block does
# not take over while few that help are found.
_IGNORING = {
    "masked_lm_steps": 1000,
    "masked_lm_own_block": 0.1,
    "masked_lm_answer_block": 0.3,
    "masked_lm_other_block": 0.5,
    # Other masks than those of the steps before.
    "seed": 1,
}
RANDOM_WARM_UPS = {
    "copy": _COPYING,
    "answer": {},
    "judge": _JUDGING,
    "warm": _IGNORING,
}
RANDOM_ICT = ict_configs.RECIPES["wiki-small"].replace(
    num_steps=1200,
    # Many blocks to be told apart: what is learnt holds for new sentences.
    batch_size=192,
    max_query_length=40,
    max_block_length=_MAX_BLOCK_LENGTH,
    learning_rate=1e-3,
    freeze_word_embeddings=False,
    num_frozen_layers=0,
    dropout=0.3,
)
# Over `--text`, too large to be learnt by heart.
_LONG_ICT = RANDOM_ICT.replace(num_steps=3000, dropout=0.1, seed=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    output: str
    """directory of all models and results; one that is there goes on"""
    wheel: str | None = None
    """as `realm init --from minilm --wheel`"""
    experiments: tuple[Literal["minilm", "random"], ...] = ("minilm", "random")
    """what is trained"""
    seeds: int = 3
    """of each kind"""
    kinds: tuple[Literal[*_KINDS], ...] = ("refreshed", "stale")
    """what is compared"""
    recipe: Literal[*configs.RECIPES] = "wiki-small"
    """of `minilm`"""
    set: Repeated = ()
    """NAME=VALUE: change a number of that recipe"""
    set_small: Repeated = ()
    """NAME=VALUE: change a number of the recipe of `random`"""
    text: tuple[str, ...] = ()
    """articles, as `realm chunk --input`, for the Inverse Cloze Task of random
    weights (default: the embedded corpus)"""
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
    results = {
        "minilm_recipe": experiments.recipe.flat(),
        "random_recipe": experiments.small.flat(),
        "random_ict_recipe": RANDOM_ICT.flat(),
        "random_long_ict_recipe": _LONG_ICT.flat(),
    }
    for name, (warm, runs) in experiments.compared.items():
        measured = {"start": experiments.measure(warm)}
        for run, model in runs.items():
            measured[run] = experiments.measure(model)
        results[name] = {
            "runs": {
                run: measurement.without_batches(found)
                for run, found in measured.items()
            },
            "means": measurement.means(measured),
            "differences": measurement.differences(measured),
        }
        plots.plot_training(
            _mean_logs(runs),
            experiments.path(f"{name}.png"),
        )
    results["findable"] = experiments.measurement.findable(experiments.small)
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
        compared: dict. Name of an experiment to the model that its runs begin
            with, and the runs by name.
        measurement: `measurement.Measurement`.
    """

    def __init__(self, args):
        self._args = args
        # Exact: no result depends on how fast the machine is.
        self.recipe = (
            configs.RECIPES[args.recipe].parse(args.set).replace(refresh="sync")
        )
        self.small = (
            configs.RECIPES["small"]
            .parse(args.set_small)
            .replace(refresh="sync")
        )
        self.graph, self.compared = Graph(), {}
        # Its vocabulary is that of the corpus for both models.
        self._start = self._add(
            Init,
            "minilm-start",
            from_="minilm",
            wheel=args.wheel,
            reader_layers=3,
        )
        blocks = self._chunk("blocks", quickstart.CORPUS)
        annotated = self._add(
            Annotate, "annotated", blocks=blocks, tagger="rules"
        )
        self._blocks = self._add(Pack, "packed-blocks", blocks=blocks)
        self._passages = self._add(
            Pack, "packed-passages", annotated=annotated, model=self._start
        )
        self.measurement = measurement.Measurement(
            self._blocks, self._passages, args.output, args.num_batches
        )
        for name in () if args.measure else args.experiments:
            {"minilm": self._minilm, "random": self._random}[name]()

    def path(self, name):
        return os.path.join(self._args.output, name)

    def measure(self, model):
        """Metrics by what is masked; see `Measurement`."""
        is_random = os.path.basename(model.path).startswith("random")
        recipe = self.small if is_random else self.recipe
        return self.measurement.measure(model, recipe)

    def _minilm(self):
        """From a sentence encoder's weights."""
        warm = self._pretrain(
            "minilm-warm", self._start, self.recipe.replace(num_steps=0)
        )
        self._compare("minilm", warm, self.recipe)

    def _random(self):
        """From random weights."""
        model = self._add(
            Init,
            "random-start",
            vocab=self._start.vocabulary,
            **RANDOM_START,
        )
        text, recipes = self._blocks, {"random-ict": RANDOM_ICT}
        if self._args.text:
            blocks = self._chunk("text-blocks", *self._args.text)
            text = self._add(Pack, "packed-text-blocks", blocks=blocks)
            recipes["random-long-ict"] = _LONG_ICT
        for name, recipe in recipes.items():
            model = self._add(
                InverseClozeTask, name, recipe=recipe, model=model, blocks=text
            )
        warm_up = self.small.replace(num_steps=0)
        for name, changes in RANDOM_WARM_UPS.items():
            model = self._pretrain(
                f"random-{name}", model, warm_up.replace(**changes)
            )
        self._compare("random", model, self.small)

    def _compare(self, name, warm, recipe):
        """Each kind with each seed, from one warm start."""
        runs = {
            run: self._pretrain(
                run,
                warm,
                recipe.replace(masked_lm_steps=0, seed=seed, **_KINDS[kind]),
            )
            for seed in range(self._args.seeds)
            for kind in self._args.kinds
            for run in [f"{name}-{kind}-{seed}"]
        }
        self.compared[name] = warm, runs

    def _pretrain(self, name, model, recipe):
        return self._add(
            Pretrain,
            name,
            recipe=recipe,
            model=model,
            blocks=self._blocks,
            corpus=self._passages,
        )

    def _chunk(self, name, *files):
        return self._add(
            Chunk,
            name,
            input=files,
            vocab=self._start.vocabulary,
            max_block_length=_MAX_BLOCK_LENGTH,
        )

    def _add(self, operation, name, **fields):
        return self.graph.add(operation(output=self.path(name), **fields))


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
