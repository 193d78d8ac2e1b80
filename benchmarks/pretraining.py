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
import itertools
import json
import os
import statistics
from typing import Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tyro

from realm_tf import quickstart
from realm_tf.answering import bootstrap
from realm_tf.artifacts.array_files import VOCABULARY
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.configs import pretrain as configs
from realm_tf.configs.pretrain import PretrainRecipe
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.models import model_directory
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.graph import Graph
from realm_tf.operations.init import Init
from realm_tf.operations.operation import Repeated
from realm_tf.operations.pretrain import Pretrain
from realm_tf.text.tokenizer import Tokenizer
from realm_tf.training import plots
from realm_tf.training.training_log import read_log

# Far beyond any training: masks that no step has seen.
_EPOCH = 1_000_000
# What models are compared by, batch by batch; each of a batch's sentences
# counts alike in it.
RECALLS = ("answer_recall", "article_recall")


def evaluate(
    model: Model,
    blocks,
    passages,
    *,
    recipe: configs.PretrainRecipe,
    num_batches: int,
    mode: str = "salient",
    seed: int = 0,
) -> dict:
    """Measures a model on masked sentences, over an index of its own.

    The masks are new ones; the sentences may be among those it was trained
    on.

    Args:
        model: `Model`.
        blocks: `BlockRecords`. What is retrieved.
        passages: `TokenizedPassages`. What is masked.
        recipe: `PretrainRecipe`. Lengths, candidates and batch size.
        num_batches: int.
        mode: str. What is masked. Defaults to `"salient"`.
        seed: int. Of the masks. Defaults to `0`.

    Returns:
        dict of float: `loss` and the metrics of `RealmModel`; and `batches`,
        dict of each of `RECALLS` to a list of float, that of each batch. The
        same seed masks the same sentences for each model:
        `bootstrap.paired_difference` takes two such lists.
    """
    from realm_tf.retrieval.block_embedder import BlockEmbedder
    from realm_tf.training import index_builder
    from realm_tf.training import trainers

    recipe = recipe.replace(num_steps=1)
    loaded = model_directory.load(model)
    trainers.prepare(loaded.model, recipe)
    embedder = BlockEmbedder(loaded, max_length=recipe.lengths.max_block_length)
    trainer = trainers.make_realm_trainer(
        loaded,
        blocks,
        recipe,
        embeddings=index_builder.embed_blocks(embedder, blocks),
    )
    examples = PretrainingExamples(
        passages,
        batch_size=recipe.batch_size,
        seed=seed,
        mode=mode,
        max_query_length=recipe.lengths.max_query_length,
        max_masked=recipe.masking.max_masked,
    )
    batches = itertools.islice(
        examples.batches(_EPOCH * examples.steps_per_epoch), num_batches
    )
    recalls = _BatchRecalls()
    metrics = trainer.evaluate(
        ((batch,) for batch in batches),
        steps=num_batches,
        callbacks=[recalls],
        return_dict=True,
        verbose=0,
    )
    return {**metrics, "batches": recalls.found}


class _BatchRecalls(keras.callbacks.Callback):
    """Each batch's recalls, of which Keras logs the mean so far."""

    def on_test_begin(self, logs=None):
        self.found = {name: [] for name in RECALLS}

    def on_test_batch_end(self, batch, logs=None):
        for name, values in self.found.items():
            total = logs[name] * (len(values) + 1)
            values.append(float(total - sum(values)))


_MODES = ("salient", "uniform")
_BATCHES = "batches"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Measures models over blocks that each embeds itself.

    Args:
        blocks: `Blocks`.
        passages: `Passages`. What is masked.
        output: str. Directory of a file for each model that was measured.
        num_batches: int. Of masked sentences.
    """

    blocks: Blocks
    passages: Passages
    output: str
    num_batches: int

    def measure(self, model: Model, recipe: PretrainRecipe) -> dict:
        """Metrics by what is masked, those in a file if it is of this model.

        Args:
            model: `Model`.
            recipe: `PretrainRecipe`. Lengths, candidates and batch size.
        """
        name = os.path.basename(model.path)
        path = os.path.join(self.output, f"{name}.json")
        measured_of = {
            "model": model.fingerprint,
            "num_batches": self.num_batches,
        }
        if os.path.exists(path):
            found = json.loads(Path(path).read_text())
            if found.get("measured_of") == measured_of:
                return found
        found = {
            mode: evaluate(
                model,
                self.blocks.records,
                self._tokenized(),
                recipe=recipe,
                num_batches=self.num_batches,
                mode=mode,
            )
            for mode in _MODES
        }
        found["measured_of"] = measured_of
        write_text(path, json.dumps(found))
        return found

    def _tokenized(self):
        path = os.path.join(self.output, "passages.arrow")
        if not os.path.exists(path):
            vocabulary = os.path.join(self.blocks.path, VOCABULARY)
            TokenizedPassages.write(
                path, self.passages, Tokenizer.from_file(vocabulary)
            )
        return TokenizedPassages(path)

    def findable(self, recipe: PretrainRecipe) -> dict:
        """Of a salient span of each sentence, how many are elsewhere too."""
        blocks = self.blocks.records
        articles = blocks.article_numbers()
        bodies = [
            f" {' '.join(map(str, blocks[number].token_ids))} "
            for number in range(len(blocks))
        ]
        examples = PretrainingExamples(
            self._tokenized(),
            batch_size=recipe.batch_size,
            max_query_length=recipe.lengths.max_query_length,
            max_masked=recipe.masking.max_masked,
        )
        counts = {"spans": 0, "in_the_article": 0, "in_the_corpus": 0}
        for step in range(examples.steps_per_epoch):
            for example in examples.examples(0, step):
                masked = f" {' '.join(map(str, example.mask_ids))} "
                holders = [
                    number
                    for number, body in enumerate(bodies)
                    if masked in body and number != example.block_id
                ]
                counts["spans"] += 1
                counts["in_the_corpus"] += bool(holders)
                counts["in_the_article"] += bool(
                    (articles[holders] == articles[example.block_id]).any()
                )
        return counts


def kind(run: str) -> str:
    """`refreshed` of `minilm-refreshed-0`; `start` as it is."""
    return run.split("-")[1] if "-" in run else run


def without_batches(found: dict) -> dict:
    """What was measured of a model, without each batch's recalls."""
    return {
        mode: {
            name: value
            for name, value in found[mode].items()
            if name != _BATCHES
        }
        for mode in _MODES
    }


def differences(measured: dict[str, dict]) -> dict:
    """How far each model's recalls are from the first's, on the same masks.

    Paired by batches: these are what `questions` counts.
    """
    first, *others = measured
    return {
        other: {
            mode: {
                name: bootstrap.paired_difference(
                    measured[other][mode][_BATCHES][name],
                    measured[first][mode][_BATCHES][name],
                )
                for name in RECALLS
            }
            for mode in _MODES
        }
        for other in others
    }


def means(measured: dict[str, dict]) -> dict:
    """Mean and range of each metric over the seeds of a kind."""
    kinds = {}
    for run, found in measured.items():
        kinds.setdefault(kind(run), []).append(without_batches(found))
    return {
        name: {
            mode: {
                metric: [
                    round(statistics.mean(values), 4),
                    round(min(values), 4),
                    round(max(values), 4),
                ]
                for metric in found[0][mode]
                for values in [[one[mode][metric] for one in found]]
            }
            for mode in _MODES
        }
        for name, found in kinds.items()
    }


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
        shown = without_batches(measured[model])
        print(model, json.dumps(shown), flush=True)
    print("differences", json.dumps(differences(measured)))


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
            run: without_batches(found) for run, found in measured.items()
        },
        "means": means(measured),
        "differences": differences(measured),
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
        logs.setdefault(kind(run), []).append(read_log(model.path))
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
        measurement: `Measurement`.
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
        self.measurement = Measurement(
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
