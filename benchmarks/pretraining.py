"""Does pre-training work, and does a fresh index beat a stale one?

    python benchmarks/pretraining.py --output DIR [--wheel FILE]

Over the embedded corpus of the quick start, in DIR, where a run that was
stopped goes on:

1. `minilm`: from MiniLM's weights, a masked-LM warm-up on the null block, then
   pre-training with three seeds, each with an index refreshed every so many
   steps and with one that is never refreshed.
2. `random`: from random weights of a small model, the Inverse Cloze Task, the
   warm-up, then pre-training.

Each model is measured on masks that it has not seen, of salient spans and of
uniformly drawn wordpieces. Writes curves (PNG) and results.json.
"""

import argparse
import dataclasses
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from beam_pipelines import annotate_spans
from beam_pipelines import chunk_wikipedia
from realm_tf import quickstart
from realm_tf import stages
from realm_tf.checkpoints import initialize
from realm_tf.configs import ict as ict_configs
from realm_tf.configs import pretrain as configs
from realm_tf.data import packed_blocks
from realm_tf.data import packed_passages
from realm_tf.evaluation import pretraining
from realm_tf.models import model_directory
from realm_tf.training import ict
from realm_tf.training import plots
from realm_tf.training.pretrain import pretrain
from realm_tf.training.training_log import read_log

_MAX_BLOCK_LENGTH = 128
_MODES = ("salient", "uniform")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", required=True)
    parser.add_argument("--wheel", help="as `realm init --from minilm --wheel`")
    parser.add_argument(
        "--experiments", nargs="+", default=["minilm", "random"]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipe", default="wiki-small")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--num-batches", type=int, default=40)
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    experiment = _Experiment(args)
    for name in args.experiments:
        getattr(experiment, name)()
    path = experiment.path("results.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(experiment.results, file, indent=2)
    print(json.dumps(experiment.results, indent=2))


class _Experiment:
    def __init__(self, args):
        self._args = args
        self._recipe = configs.get_recipe(args.recipe, args.overrides)
        self._recipe = dataclasses.replace(self._recipe, refresh="sync")
        self.results = {"recipe": dataclasses.asdict(self._recipe)}

    def path(self, name):
        return os.path.join(self._args.output, name)

    def minilm(self):
        """3 seeds, refreshed and stale."""
        start = self._make("minilm-start", self._init_minilm)
        blocks, passages = self._data(start)
        warm = self._make(
            "minilm-warm",
            lambda output: pretrain(
                start,
                blocks.directory,
                passages.directory,
                output,
                recipe=dataclasses.replace(self._recipe, num_steps=0),
            ),
        )
        recipe = dataclasses.replace(self._recipe, masked_lm_steps=0)
        runs = {
            f"minilm-{kind}-{seed}": dataclasses.replace(
                recipe,
                seed=seed,
                refresh_every=recipe.refresh_every * (kind == "refreshed"),
            )
            for seed in range(self._args.seeds)
            for kind in ("refreshed", "stale")
        }
        self._compare("minilm", warm, runs, blocks, passages)

    def random(self):
        """One run from random weights."""
        start = self._make("minilm-start", self._init_minilm)
        self._data(start)
        random = self._make(
            "random-start",
            lambda output: model_directory.save(
                initialize.random(
                    vocab=os.path.join(start, model_directory.VOCABULARY),
                    num_heads=4,
                ),
                output,
            ),
        )
        blocks, passages = self._data(random)
        recipe = dataclasses.replace(
            self._recipe,
            freeze_word_embeddings=False,
            num_frozen_layers=0,
            num_steps=8 * self._recipe.num_steps,
            masked_lm_steps=6 * self._recipe.masked_lm_steps,
            masked_lm_learning_rate=1e-3,
            learning_rate=5e-4,
            refresh_every=8 * self._recipe.refresh_every,
        )
        ict_recipe = dataclasses.replace(
            ict_configs.RECIPES["wiki-small"],
            num_steps=4 * self._recipe.num_steps,
            learning_rate=5e-4,
            freeze_word_embeddings=False,
            num_frozen_layers=0,
        )
        warm = self._make(
            "random-ict",
            lambda output: ict.ict(
                random, blocks.directory, output, recipe=ict_recipe
            ),
        )
        warm = self._make(
            "random-warm",
            lambda output, model=warm: pretrain(
                model,
                blocks.directory,
                passages.directory,
                output,
                recipe=dataclasses.replace(recipe, num_steps=0),
            ),
        )
        recipe = dataclasses.replace(recipe, masked_lm_steps=0)
        self._compare(
            "random", warm, {"random-refreshed-0": recipe}, blocks, passages
        )

    def _compare(self, name, warm, runs, blocks, passages):
        measured = {"start": self._measure(warm, blocks, passages)}
        for run, recipe in runs.items():
            output = self._make(
                run,
                lambda output, recipe=recipe: pretrain(
                    warm,
                    blocks.directory,
                    passages.directory,
                    output,
                    recipe=recipe,
                ),
            )
            measured[run] = self._measure(output, blocks, passages)
        self.results[name] = {
            "runs": measured,
            "means": _means(measured),
        }
        plots.plot_training(
            {run: read_log(self.path(run)) for run in runs},
            self.path(f"{name}.png"),
            groups={run: _kind(run) for run in runs},
        )

    def _measure(self, model, blocks, passages):
        path = self.path(f"{os.path.basename(model)}.json")
        if not os.path.exists(path):
            found = {
                mode: pretraining.evaluate(
                    model,
                    blocks,
                    passages,
                    recipe=self._recipe,
                    num_batches=self._args.num_batches,
                    mode=mode,
                )
                for mode in _MODES
            }
            stages.write_text(path, json.dumps(found))
        return json.loads(stages.read_text(path))

    def _data(self, model):
        """The corpus for a model's vocabulary, which both models share."""
        vocab = os.path.join(model, model_directory.VOCABULARY)
        blocks = self._make(
            "blocks",
            lambda output: chunk_wikipedia.chunk(
                [quickstart.CORPUS],
                output,
                vocab=vocab,
                max_block_length=_MAX_BLOCK_LENGTH,
            ),
        )
        annotated = self._make(
            "annotated",
            lambda output: annotate_spans.annotate(
                output, "rules", blocks=blocks
            ),
        )
        tokenizer = model_directory.load(model).tokenizer
        packed = self._make(
            "packed-blocks",
            lambda output: packed_blocks.pack_blocks(blocks, output),
        )
        passages = self._make(
            "packed-passages",
            lambda output: packed_passages.pack_passages(
                annotated, tokenizer, output
            ),
        )
        return (
            packed_blocks.PackedBlocks(packed),
            packed_passages.PackedPassages(passages),
        )

    def _init_minilm(self, output):
        loaded = initialize.minilm(wheel=self._args.wheel)
        model_directory.save(loaded, output)

    def _make(self, name, make):
        output = self.path(name)
        if not stages.is_complete(output):
            print(f"{name}", flush=True)
            make(output)
        return output


def _kind(run):
    """`refreshed` of `minilm-refreshed-0`; `start` as it is."""
    return run.split("-")[1] if "-" in run else run


def _means(measured):
    """Mean and range of each metric over the seeds of a kind."""
    kinds = {}
    for run, found in measured.items():
        kinds.setdefault(_kind(run), []).append(found)
    return {
        kind: {
            mode: {
                name: [
                    round(statistics.mean(values), 4),
                    round(min(values), 4),
                    round(max(values), 4),
                ]
                for name in found[0][mode]
                for values in [[one[mode][name] for one in found]]
            }
            for mode in _MODES
        }
        for kind, found in kinds.items()
    }


if __name__ == "__main__":
    main()
