"""A comparison of systems as a list of operations."""

import dataclasses
import os

from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Model
from realm_tf.configs import ablations as configs
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.combine_models import CombineModels
from realm_tf.operations.embed import Embed
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.fine_tune import FineTune
from realm_tf.operations.graph import Graph
from realm_tf.operations.inverse_cloze_task import InverseClozeTask
from realm_tf.operations.pack import Pack
from realm_tf.operations.pretrain import Pretrain


@dataclasses.dataclass(frozen=True)
class Cell:
    """One system with one seed: what its numbers come from.

    Args:
        system: `configs.ablations.System`.
        seed: int.
        model: `Model`. After fine-tuning.
        evaluations: dict. Name of a test to `Evaluation`.
        zero_shot: dict. The same, before fine-tuning; empty if not measured.
    """

    system: configs.System
    seed: int
    model: Model
    evaluations: dict[str, Evaluation]
    zero_shot: dict[str, Evaluation]

    @property
    def measured(self) -> set[Evaluation]:
        """What must be made for its numbers to be known."""
        return {*self.evaluations.values(), *self.zero_shot.values()}


def list_operations(given) -> tuple[Graph, list[Cell]]:
    """All operations of a comparison, and which of them give its numbers.

    Args:
        given: `Ablate`.

    Returns:
        `Graph`; list of `Cell`: every system once, before any a second time.
    """
    graph = Graph()
    systems = _Systems(graph, given)
    cells = [
        systems.cell(system, seed)
        for seed in given.seeds
        for system in given.chosen.systems
    ]
    return graph, cells


class _Systems:
    """Adds to a graph what systems need.

    Args:
        graph: `Graph`.
        given: `Ablate`.
    """

    def __init__(self, graph: Graph, given):
        self._graph = graph
        self._given = given

    def cell(self, system: configs.System, seed: int) -> Cell:
        """Adds all operations of a system with one seed.

        Args:
            system: `configs.ablations.System`.
            seed: int.

        Returns:
            `Cell`. Its towers are measured before fine-tuning if the suite
            has such metrics.
        """
        given = self._given
        towers = self._source(system.towers, seed)
        index = self._index(towers)
        before = {}
        if given.chosen.is_zero_shot:
            # Before any question was learned from.
            name = f"zero-shot-{self._label(towers)}"
            before = self._evaluate(name, towers, index, num_reader_blocks=0)
        model = self._model(system.towers, system.encoder, seed)
        recipe = given.recipes["finetune"].replace(
            seed=seed, **dict(system.finetune)
        )
        name = f"evaluation-{system.name}"
        # What no seed has changed is measured once.
        if recipe.learns or system.towers not in (configs.START, configs.ICT):
            name += f"-{seed}"
        if recipe.learns:
            model = self._add(
                FineTune,
                f"finetuned-{system.model or system.name}-{seed}",
                recipe=recipe,
                model=model,
                blocks=given.blocks,
                index=index,
                questions=given.train,
                dev=given.dev,
            )
        evaluations = self._evaluate(
            name, model, index, retriever=system.retriever
        )
        return Cell(system, seed, model, evaluations, before)

    def _source(self, name, seed):
        """The model that holds a source of towers or encoders."""
        given = self._given
        if name == configs.WARM_UP and given.warm_up_steps:
            recipe = given.recipes["pretrain"].replace(num_steps=0)
            return self._pretrain("warm-up", given.model, recipe)
        if name == configs.ICT and given.recipes["ict"]:
            return self._add(
                InverseClozeTask,
                "ict",
                recipe=given.recipes["ict"],
                model=given.model,
                blocks=self._packed_blocks(),
            )
        if name == configs.DPR:
            return self._add(
                FineTune,
                f"dpr-{seed}",
                retriever_loss="dpr",
                recipe=given.recipes["dpr"].replace(seed=seed),
                model=given.model,
                blocks=given.blocks,
                questions=given.train,
                dev=given.dev,
            )
        if name not in configs.PRETRAININGS:
            return given.model
        return self._pretrain(
            f"pretrained-{name}-{seed}",
            self._model(given.begin, configs.WARM_UP, seed),
            given.recipes["pretrain"].replace(
                masked_lm_steps=0, seed=seed, **configs.PRETRAININGS[name]
            ),
            # Made once, not by every system and seed.
            index=self._index(self._source(given.begin, seed)),
        )

    def _pretrain(self, name, model, recipe, index=None):
        blocks, corpus = self._packed_blocks(), self._given.corpus
        if not corpus.is_packed:
            corpus = self._add(
                Pack,
                "packed-corpus",
                annotated=corpus,
                model=self._given.model,
            )
        return self._add(
            Pretrain,
            name,
            recipe=recipe,
            model=model,
            blocks=blocks,
            corpus=corpus,
            index=index,
        )

    def _packed_blocks(self):
        return self._add(Pack, "packed-blocks", blocks=self._given.blocks)

    def _index(self, towers):
        label = self._label(towers)
        embeddings = self._add(
            Embed,
            f"embeddings-{label}",
            model=towers,
            blocks=self._given.blocks,
        )
        return self._add(
            BuildIndex,
            f"index-{label}",
            embeddings=embeddings,
            kind="brute_force",
        )

    def _model(self, towers, encoder, seed):
        """A model before fine-tuning, of its two sources."""
        reader = self._source(encoder, seed)
        towers_from = self._source(towers, seed)
        start = self._given.model
        # These leave one part of the initial model as it is.
        if towers_from == start and encoder == configs.WARM_UP:
            return reader
        if reader == start and towers in configs.ENCODER_KEPT:
            return towers_from
        if reader == towers_from:
            return towers_from
        return self._add(
            CombineModels,
            f"combined-{self._label(towers_from)}+{self._label(reader)}",
            towers=towers_from,
            reader=reader,
        )

    def _evaluate(self, name, model, index, **options):
        """Name of each test to the `Evaluation` of a model."""
        given = self._given
        options.update(model=model, blocks=given.blocks, index=index)
        if "num_reader_blocks" not in options:
            # Tests use the weights that were fitted to dev.
            options["calibration"] = self._add(
                Evaluate,
                name.replace("evaluation", "calibration", 1),
                questions=given.dev,
                calibrate=True,
                **options,
            )
        return {
            test: self._add(
                Evaluate, f"{name}-{test}", questions=questions, **options
            )
            for test, questions in given.tests.items()
        }

    def _label(self, model):
        """What is made from a model is named by it."""
        if model == self._given.model:
            return configs.START
        return os.path.basename(model.path).removeprefix("pretrained-")

    def _add(self, operation, name, **fields):
        """Adds an operation by the name of its output; returns that."""
        output = os.path.join(self._given.output, name)
        # Of one kind are those whose names begin with one word.
        kind = name.split("-")[0]
        return self._graph.add(operation(output=output, **fields), kind=kind)
