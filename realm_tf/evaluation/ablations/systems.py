"""The stages of a comparison of systems: each of realm's commands as a node."""

import dataclasses
import os
import shlex

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.cli import command_line
from realm_tf.configs import ablations as configs
from realm_tf.evaluation.ablations.given import Inputs
from realm_tf.evaluation.ablations.given import Recipes
from realm_tf.evaluation.ablations.stage_graph import Stage
from realm_tf.evaluation.ablations.stage_graph import StageGraph
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.combine_models import CombineModels
from realm_tf.operations.embed import Embed
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.pack import Pack

WARM_UP, ICT, PRETRAIN = "warm-up", "ict", "pretrain"
DPR, FINETUNE = "dpr", "finetune"
# What training minutes count.
TRAINING = (WARM_UP, ICT, PRETRAIN, DPR, FINETUNE)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One system with one seed: the stages that its numbers come from.

    Args:
        system: `configs.ablations.System`.
        seed: int.
        model: str. Name of the fine-tuned model's stage.
        evaluations: dict. Name of a test to that of its stage.
        zero_shot: dict. The same, before fine-tuning; empty if not measured.
    """

    system: configs.System
    seed: int
    model: str
    evaluations: dict[str, str]
    zero_shot: dict[str, str]

    @property
    def measured(self) -> set[str]:
        """The stages after which its numbers are known."""
        return {*self.evaluations.values(), *self.zero_shot.values()}


class AblationStages:
    """Adds to a graph what systems need.

    Args:
        graph: `StageGraph`.
        inputs: `Inputs`.
        recipes: `Recipes`.
        begin: str. Source of the towers that REALM's pre-training begins
            with: a key of `configs.BEGINNINGS`. Defaults to `"ict"`.
    """

    def __init__(
        self,
        graph: StageGraph,
        inputs: Inputs,
        recipes: Recipes,
        *,
        begin: str = configs.ICT,
    ):
        self._begin = begin
        self._graph = graph
        self._inputs = inputs
        self._recipes = recipes
        self._questions = {
            path: fingerprints.fingerprint(Path(path).read_bytes())
            for path in (*inputs.train, inputs.dev, *inputs.tests.values())
        }

    def cell(
        self, system: configs.System, seed: int, *, zero_shot: bool
    ) -> Cell:
        """Adds all stages of a system with one seed.

        Args:
            system: `configs.ablations.System`.
            seed: int.
            zero_shot: bool. Whether its towers are measured before
                fine-tuning.
        """
        towers = self._source(configs.MODELS[system.model].towers, seed)
        index = self._index(towers)
        before = {}
        if zero_shot:
            before = {
                test: self._zero_shot(towers, index, test)
                for test in self._inputs.tests
            }
        tuned = self._finetuned(system.model, seed, index)
        return Cell(
            system,
            seed,
            os.path.basename(tuned),
            {
                test: self._evaluation(system, seed, tuned, index, test)
                for test in self._inputs.tests
            },
            before,
        )

    def _source(self, name, seed):
        """The model that holds a source of towers or encoders."""
        if name == configs.START:
            return self._inputs.model
        if name == configs.WARM_UP:
            return self._warm_up()
        if name == configs.ICT:
            return self._ict()
        if name == configs.DPR:
            return self._dpr(seed)
        recipe = self._recipes.pretrain.replace(
            masked_lm_steps=0,
            seed=seed,
            **configs.PRETRAININGS[name],
        )
        return self._pretrained(
            f"pretrained-{name}-{seed}",
            PRETRAIN,
            self._model(self._begin, configs.WARM_UP, seed),
            recipe,
            # Made once, not anew by every system and seed.
            index=self._index(self._source(self._begin, seed)),
        )

    def _warm_up(self):
        recipe = self._recipes.warm_up
        if not recipe.masked_lm.masked_lm_steps:
            return self._inputs.model
        return self._pretrained(WARM_UP, WARM_UP, self._inputs.model, recipe)

    def _ict(self):
        from realm_tf.training import ict

        model, recipe = self._inputs.model, self._recipes.ict
        if recipe is None:
            return model
        blocks = self._packed_blocks()
        return self._add(
            ICT,
            ICT,
            lambda output: ict.ict(model, blocks, output, recipe=recipe),
            {"model": model, "blocks": blocks},
            {"recipe": recipe.flat()},
            command_line(
                "ict",
                **self._recipes.options("ict", recipe),
                model=model,
                blocks=blocks,
            ),
        )

    def _dpr(self, seed):
        from realm_tf.training import dpr

        inputs, model = self._inputs, self._inputs.model
        recipe = self._recipes.dpr.replace(seed=seed)
        return self._add(
            f"dpr-{seed}",
            DPR,
            lambda output: dpr.train_dpr(
                model,
                inputs.blocks,
                list(inputs.train),
                output,
                recipe=recipe,
                dev=inputs.dev,
            ),
            {"model": model, "blocks": inputs.blocks},
            self._learned_from(recipe),
            command_line(
                "finetune",
                retriever_loss="dpr",
                **self._recipes.options(DPR, recipe),
                model=model,
                blocks=inputs.blocks,
                questions=list(inputs.train),
                dev=inputs.dev,
            ),
        )

    def _learned_from(self, recipe):
        """What decides a model that learns from questions."""
        return {
            "recipe": recipe.flat(),
            "train": [self._questions[path] for path in self._inputs.train],
            "dev": self._questions[self._inputs.dev],
        }

    def _pretrained(self, name, kind, model, recipe, index=None):
        from realm_tf.training import pretrain

        corpus = self._packed_corpus()
        # A pipeline embeds what `realm chunk` wrote.
        blocks = (
            self._inputs.blocks
            if recipe.index.refresh == "pipeline"
            else self._packed_blocks()
        )
        given = {"index": index} if index else {}
        return self._add(
            name,
            kind,
            lambda output: pretrain.pretrain(
                model, blocks, corpus, output, recipe=recipe, index=index
            ),
            {"model": model, "blocks": blocks, "corpus": corpus, **given},
            {"recipe": recipe.flat()},
            command_line(
                "pretrain",
                **self._recipes.options("pretrain", recipe),
                model=model,
                blocks=blocks,
                corpus=corpus,
                **given,
            ),
        )

    def _packed_blocks(self):
        blocks = self._inputs.blocks
        return self._add(
            "packed-blocks",
            "pack blocks",
            lambda output: Pack(output=output, blocks=blocks).run(),
            {"blocks": blocks},
            {},
            command_line("pack", blocks=blocks),
        )

    def _packed_corpus(self):
        corpus, model = self._inputs.corpus, self._inputs.model
        if artifact.read_metadata(corpus)["kind"] != schema.ANNOTATED:
            return corpus
        return self._add(
            "packed-corpus",
            "pack corpus",
            lambda output: Pack(
                output=output, annotated=corpus, model=model
            ).run(),
            {"corpus": corpus},
            {"tokenizer": artifact.read_metadata(model)["tokenizer"]},
            command_line("pack", annotated=corpus, model=model),
        )

    def _index(self, towers):

        blocks, label = self._inputs.blocks, self._label(towers)
        embeddings = self._add(
            f"embeddings-{label}",
            "embed",
            lambda output: Embed(
                model=towers, blocks=blocks, output=output
            ).run(),
            {"model": towers, "blocks": blocks},
            {},
            command_line("embed", model=towers, blocks=blocks),
        )
        return self._add(
            f"index-{label}",
            "index",
            lambda output: BuildIndex(
                embeddings=embeddings, output=output, kind="brute_force"
            ).run(),
            {"embeddings": embeddings},
            {"kind": "brute_force"},
            command_line("index", embeddings=embeddings, kind="brute_force"),
        )

    def _label(self, model):
        """What is made of a model is named by it."""
        if model == self._inputs.model:
            return configs.START
        return os.path.basename(model).removeprefix("pretrained-")

    def _model(self, towers, encoder, seed):
        """A model before fine-tuning, of its two sources."""
        reader = self._source(encoder, seed)
        towers_from = self._source(towers, seed)
        # These leave one part of the start as it is.
        if towers_from == self._inputs.model and encoder == configs.WARM_UP:
            return reader
        if reader == self._inputs.model and towers in configs.ENCODER_KEPT:
            return towers_from
        if reader == towers_from:
            return towers_from
        name = f"{self._label(towers_from)}+{self._label(reader)}"
        return self._add(
            f"combined-{name}",
            "combine",
            lambda output: CombineModels(
                towers=towers_from, reader=reader, output=output
            ).run(),
            {"towers": towers_from, "reader": reader},
            {},
            f"(CombineModels, towers of {towers_from}, reader of {reader})",
        )

    def _finetuned(self, name, seed, index):
        from realm_tf.training import finetune

        inputs, parts = self._inputs, configs.MODELS[name]
        model = self._model(parts.towers, parts.encoder, seed)
        recipe = self._recipes.finetune.replace(
            seed=seed, **dict(parts.finetune)
        )
        return self._add(
            f"finetuned-{name}-{seed}",
            FINETUNE,
            lambda output: finetune.finetune(
                model,
                inputs.blocks,
                index,
                list(inputs.train),
                output,
                recipe=recipe,
                dev=inputs.dev,
            ),
            {"model": model, "blocks": inputs.blocks, "index": index},
            self._learned_from(recipe),
            command_line(
                "finetune",
                **self._recipes.options("finetune", recipe),
                model=model,
                blocks=inputs.blocks,
                index=index,
                questions=list(inputs.train),
                dev=inputs.dev,
            ),
        )

    def _evaluation(self, system, seed, model, index, test):
        return self._evaluated(
            f"evaluation-{system.name}-{seed}-{test}",
            f"evaluate {test}",
            model,
            index,
            test,
            retriever=system.retriever,
        )

    def _zero_shot(self, model, index, test):
        # Before any question was learned from.
        return self._evaluated(
            f"zero-shot-{self._label(model)}-{test}",
            f"zero-shot {test}",
            model,
            index,
            test,
            num_reader_blocks=0,
        )

    def _evaluated(self, name, kind, model, index, test, **options):
        blocks, path = self._inputs.blocks, self._inputs.tests[test]
        self._add(
            name,
            kind,
            lambda output: Evaluate(
                model=model,
                blocks=blocks,
                index=index,
                questions=path,
                output=output,
                **options,
            ).run(),
            {"model": model, "blocks": blocks, "index": index},
            {**options, "questions": self._questions[path]},
            command_line(
                "evaluate",
                model=model,
                blocks=blocks,
                index=index,
                questions=path,
                **options,
            ),
        )
        return name

    def _add(self, name, kind, make, inputs, parameters, command):
        output = self._graph.path(name)
        if command.startswith("realm "):
            command = f"{command} --output {shlex.quote(output)}"
        return self._graph.add(
            Stage(
                name,
                kind,
                lambda output: _alone(make, output),
                inputs,
                parameters,
                command,
            )
        )


def _alone(make, output):
    """Makes a stage and lets go of its models: many follow in one process."""
    import keras

    make(output)
    keras.utils.clear_session()
