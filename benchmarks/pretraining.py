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

import argparse
import json
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from realm_tf import quickstart
from realm_tf.answering import bootstrap
from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import packed_passages
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.checkpoints import minilm
from realm_tf.checkpoints import random_weights
from realm_tf.configs import ict as ict_configs
from realm_tf.configs import pretrain as configs
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.evaluation import masked_lm
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.chunk import Chunk
from realm_tf.text.tokenizer import Tokenizer
from realm_tf.training import ict
from realm_tf.training import plots
from realm_tf.training.pretrain import pretrain
from realm_tf.training.training_log import read_log

# Of the embedded corpus; both recipes read blocks of 64 wordpieces.
_MAX_BLOCK_LENGTH = 64
_MODES = ("salient", "uniform")
_BATCHES = "batches"
_KINDS = {
    "refreshed": {},
    "stale": {"refresh_every": 0},
    "uniform": {"mode": "uniform"},
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
_SMALL_ICT = ict_configs.RECIPES["wiki-small"].replace(
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
_LONG_ICT = _SMALL_ICT.replace(num_steps=3000, dropout=0.1, seed=1)


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
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=_KINDS,
        default=["refreshed", "stale"],
    )
    parser.add_argument("--recipe", default="wiki-small")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument(
        "--set-small", dest="small_overrides", action="append", default=[]
    )
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="articles, as `realm chunk --input`, for the Inverse Cloze Task "
        "of random weights\n(default: the embedded corpus)",
    )
    parser.add_argument("--num-batches", type=int, default=40)
    parser.add_argument("--measure", nargs="+", metavar="MODEL")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)
    experiment = _Experiment(args)
    if args.measure:
        measured = {}
        for model in args.measure:
            measured[model] = experiment.measure(model)
            print(
                model, json.dumps(_without_batches(measured[model])), flush=True
            )
        print("differences", json.dumps(_differences(measured)))
        return
    for name in args.experiments:
        getattr(experiment, name)()
    experiment.results["findable"] = experiment.findable()
    path = experiment.path("results.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(experiment.results, file, indent=2)
    print(json.dumps(experiment.results, indent=2))


class _Experiment:
    def __init__(self, args):
        self._args = args
        self._recipe = configs.get_recipe(args.recipe, args.overrides)
        # Exact: no result depends on how fast the machine is.
        self._recipe = self._recipe.replace(refresh="sync")
        self._small = configs.get_recipe("small", args.small_overrides).replace(
            refresh="sync"
        )
        self._packed = None
        self.results = {
            "minilm_recipe": self._recipe.flat(),
            "random_recipe": self._small.flat(),
            "random_ict_recipe": _SMALL_ICT.flat(),
            "random_long_ict_recipe": _LONG_ICT.flat(),
        }

    def path(self, name):
        return os.path.join(self._args.output, name)

    def minilm(self):
        """From a sentence encoder's weights."""
        warm = self._pretrain(
            "minilm-warm",
            self._start(),
            self._recipe.replace(num_steps=0),
        )
        self._compare("minilm", warm, self._recipe)

    def random(self):
        """From random weights."""
        vocab = os.path.join(self._start(), model_directory.VOCABULARY)
        start = self._make(
            "random-start",
            lambda output: model_directory.save(
                random_weights.random(
                    vocab=vocab,
                    num_heads=4,
                    cosine=True,
                    mimetic=True,
                    reader_layers=4,
                ),
                output,
            ),
        )
        ict_start = self._make(
            "random-ict",
            lambda output: ict.ict(
                start, self._text(vocab), output, recipe=_SMALL_ICT
            ),
        )
        if self._args.text:
            ict_start = self._make(
                "random-long-ict",
                lambda output, model=ict_start: ict.ict(
                    model, self._text(vocab), output, recipe=_LONG_ICT
                ),
            )
        warm_up = self._small.replace(num_steps=0)
        reading = ict_start
        for name, changes in (
            ("random-copy", _COPYING),
            ("random-answer", {}),
            ("random-judge", _JUDGING),
            ("random-warm", _IGNORING),
        ):
            reading = self._pretrain(name, reading, warm_up.replace(**changes))
        self._compare("random", reading, self._small)

    def measure(self, model):
        """Metrics by what is masked, over blocks the model embeds itself."""
        name = os.path.basename(os.path.normpath(model))
        blocks, passages = self._data()
        path = self.path(f"{name}.json")
        measured_of = {
            "model": artifact.read_metadata(model)["fingerprint"],
            "num_batches": self._args.num_batches,
        }
        if os.path.exists(path):
            found = json.loads(Path(path).read_text())
            if found.get("measured_of") == measured_of:
                return found
        found = {
            mode: masked_lm.evaluate(
                model,
                blocks,
                passages,
                recipe=self._small
                if name.startswith("random")
                else self._recipe,
                num_batches=self._args.num_batches,
                mode=mode,
            )
            for mode in _MODES
        }
        found["measured_of"] = measured_of
        write_text(path, json.dumps(found))
        return found

    def findable(self):
        """Of a salient span of each sentence, how many stand elsewhere."""
        blocks, passages = self._data()
        articles = blocks.article_numbers()
        bodies = [
            f" {' '.join(map(str, blocks[number].token_ids))} "
            for number in range(len(blocks))
        ]
        examples = PretrainingExamples(
            passages,
            batch_size=self._small.batch_size,
            max_query_length=self._small.max_query_length,
            max_masked=self._small.max_masked,
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

    def _compare(self, name, warm, recipe):
        """Each kind with each seed, from one warm start."""
        runs = {
            f"{name}-{kind}-{seed}": recipe.replace(
                masked_lm_steps=0, seed=seed, **_KINDS[kind]
            )
            for seed in range(self._args.seeds)
            for kind in self._args.kinds
        }
        measured = {"start": self.measure(warm)}
        for run, changed in runs.items():
            self._pretrain(run, warm, changed)
            measured[run] = self.measure(self.path(run))
        self.results[name] = {
            "runs": {
                run: _without_batches(found) for run, found in measured.items()
            },
            "means": _means(measured),
            "differences": _differences(measured),
        }
        plots.plot_training(
            {run: read_log(self.path(run)) for run in runs},
            self.path(f"{name}.png"),
            groups={run: _kind(run) for run in runs},
        )

    def _pretrain(self, name, model, recipe):
        blocks, passages = self._data()
        return self._make(
            name,
            lambda output: pretrain(
                model,
                blocks.directory,
                passages.directory,
                output,
                recipe=recipe,
            ),
        )

    def _data(self):
        """The packed corpus; both models have one vocabulary."""
        if self._packed:
            return self._packed
        vocab = os.path.join(self._start(), model_directory.VOCABULARY)
        blocks = self._chunk("blocks", [quickstart.CORPUS], vocab)
        annotated = self._make(
            "annotated",
            lambda output: Annotate(
                output=output, tagger="rules", blocks=blocks
            ).run(),
        )
        packed = self._make(
            "packed-blocks",
            lambda output: packed_blocks.pack_blocks(blocks, output),
        )
        tokenizer = Tokenizer.from_file(vocab, lowercase=True)
        passages = self._make(
            "packed-passages",
            lambda output: packed_passages.pack_passages(
                annotated, tokenizer, output
            ),
        )
        self._packed = (
            packed_blocks.PackedBlocks(packed),
            packed_passages.PackedPassages(passages),
        )
        return self._packed

    def _text(self, vocab):
        """Packed blocks of `--text`, or of the embedded corpus."""
        if not self._args.text:
            return self._data()[0].directory
        blocks = self._chunk("text-blocks", self._args.text, vocab)
        return self._make(
            "packed-text-blocks",
            lambda output: packed_blocks.pack_blocks(blocks, output),
        )

    def _chunk(self, name, files, vocab):
        return self._make(
            name,
            lambda output: Chunk(
                input=files,
                output=output,
                vocab=vocab,
                max_block_length=_MAX_BLOCK_LENGTH,
            ).run(),
        )

    def _start(self):
        """MiniLM; its vocabulary is that of the corpus for both models."""
        return self._make(
            "minilm-start",
            lambda output: model_directory.save(
                minilm.minilm(wheel=self._args.wheel, reader_layers=3),
                output,
            ),
        )

    def _make(self, name, make):
        output = self.path(name)
        if not artifact.is_complete(output):
            print(f"{name}", flush=True)
            make(output)
        return output


def _kind(run):
    """`refreshed` of `minilm-refreshed-0`; `start` as it is."""
    return run.split("-")[1] if "-" in run else run


def _without_batches(found):
    return {
        mode: {
            name: value
            for name, value in found[mode].items()
            if name != _BATCHES
        }
        for mode in _MODES
    }


def _differences(measured):
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
                for name in masked_lm.RECALLS
            }
            for mode in _MODES
        }
        for other in others
    }


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
                if name != _BATCHES
                for values in [[one[mode][name] for one in found]]
            }
            for mode in _MODES
        }
        for kind, found in kinds.items()
    }


if __name__ == "__main__":
    main()
