"""A comparison of systems as a list of operations."""

import dataclasses
import os

from realm_tf.artifacts.objects import Evaluation
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
        training: `FineTune`.
        evaluations: dict. Name of a test to `Evaluation`.
        zero_shot: dict. The same, before fine-tuning; empty if not measured.
    """

    system: configs.System
    seed: int
    training: FineTune
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
        towers = self._source(system.towers, seed)
        index = self._index(towers)
        before = {}
        if self._given.chosen.is_zero_shot:
            # Before any question was learned from.
            before = self._evaluate(
                f"zero-shot-{self._label(towers)}",
                towers,
                index,
                kind="zero-shot",
                num_reader_blocks=0,
            )
        training = FineTune(
            recipe=self._given.recipes["finetune"].replace(
                seed=seed, **dict(system.finetune)
            ),
            model=self._model(system.towers, system.encoder, seed),
            blocks=self._given.blocks,
            index=index,
            questions=self._given.train,
            dev=self._given.dev,
            output=self._path(
                f"finetuned-{system.model or system.name}-{seed}"
            ),
        )
        evaluations = self._evaluate(
            f"evaluation-{system.name}-{seed}",
            self._graph.add(training),
            index,
            kind="evaluate",
            retriever=system.retriever,
        )
        return Cell(system, seed, training, evaluations, before)

    def _source(self, name, seed):
        """The model that holds a source of towers or encoders."""
        given = self._given
        if name == configs.WARM_UP and given.warm_up_steps:
            recipe = given.recipes["pretrain"].replace(num_steps=0)
            return self._pretrain("warm-up", given.model, recipe, "warm-up")
        if name == configs.ICT and given.recipes["ict"]:
            return self._graph.add(
                InverseClozeTask(
                    recipe=given.recipes["ict"],
                    model=given.model,
                    blocks=self._packed_blocks(),
                    output=self._path("ict"),
                )
            )
        if name == configs.DPR:
            return self._graph.add(
                FineTune(
                    retriever_loss="dpr",
                    recipe=given.recipes["dpr"].replace(seed=seed),
                    model=given.model,
                    blocks=given.blocks,
                    questions=given.train,
                    dev=given.dev,
                    output=self._path(f"dpr-{seed}"),
                ),
                kind="dpr",
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

    def _pretrain(self, name, model, recipe, kind="", index=None):
        # A pipeline embeds what `realm chunk` wrote.
        blocks = (
            self._given.blocks
            if recipe.index.refresh == "pipeline"
            else self._packed_blocks()
        )
        return self._graph.add(
            Pretrain(
                recipe=recipe,
                model=model,
                blocks=blocks,
                corpus=self._packed_corpus(),
                index=index,
                output=self._path(name),
            ),
            kind=kind,
        )

    def _packed_blocks(self):
        return self._graph.add(
            Pack(blocks=self._given.blocks, output=self._path("packed-blocks")),
            kind="pack blocks",
        )

    def _packed_corpus(self):
        corpus = self._given.corpus
        if corpus.is_packed:
            return corpus
        return self._graph.add(
            Pack(
                annotated=corpus,
                model=self._given.model,
                output=self._path("packed-corpus"),
            ),
            kind="pack corpus",
        )

    def _index(self, towers):
        label = self._label(towers)
        embeddings = self._graph.add(
            Embed(
                model=towers,
                blocks=self._given.blocks,
                output=self._path(f"embeddings-{label}"),
            )
        )
        return self._graph.add(
            BuildIndex(
                embeddings=embeddings,
                kind="brute_force",
                output=self._path(f"index-{label}"),
            )
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
        name = f"{self._label(towers_from)}+{self._label(reader)}"
        return self._graph.add(
            CombineModels(
                towers=towers_from,
                reader=reader,
                output=self._path(f"combined-{name}"),
            )
        )

    def _evaluate(self, name, model, index, *, kind, **options):
        """Name of each test to the `Evaluation` of a model."""
        return {
            test: self._graph.add(
                Evaluate(
                    model=model,
                    blocks=self._given.blocks,
                    index=index,
                    questions=questions,
                    output=self._path(f"{name}-{test}"),
                    **options,
                ),
                kind=f"{kind} {test}",
            )
            for test, questions in self._given.tests.items()
        }

    def _label(self, model):
        """What is made from a model is named by it."""
        if model == self._given.model:
            return configs.START
        return os.path.basename(model.path).removeprefix("pretrained-")

    def _path(self, name):
        return os.path.join(self._given.output, name)
