"""How well models predict what is masked: numbers of `pretraining.py`."""

import dataclasses
import json
import os
import statistics

import masked_lm

from realm_tf.answering import bootstrap
from realm_tf.artifacts.array_files import VOCABULARY
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.configs.pretrain import PretrainRecipe
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.text.tokenizer import Tokenizer

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
            mode: masked_lm.evaluate(
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
                for name in masked_lm.RECALLS
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
