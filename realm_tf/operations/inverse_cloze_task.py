"""`realm ict`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts.objects import Model
from realm_tf.configs import ict
from realm_tf.operations.training import Training


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseClozeTask(Training):
    """Trains the embedder on the Inverse Cloze Task: find a sentence's block.

    No questions and no labels are needed. Shared towers stay shared; the new
    model has the same reader. With JAX, all devices of all processes share
    each batch. Run an interrupted command again to continue.
    """

    command = "ict"
    recipes = ict.RECIPES
    in_processes = True

    recipe: Literal[*ict.RECIPES] = "wiki-small"
    """the recipe by name"""

    def run(self, **fit) -> Model:
        """Trains the towers and writes a new model directory.

        Args:
            **fit: `verbose`, `callbacks` and `every_seconds` of
                `training.resume.fit`.

        Returns:
            `Model`; its metadata hold `history`, the metrics of each epoch.

        Raises:
            InputError: if the inputs do not match, or training diverges.
        """
        from realm_tf.data.inverse_cloze import IctExamples
        from realm_tf.models.in_batch_retriever import IctModel
        from realm_tf.training import hosts
        from realm_tf.training import resume
        from realm_tf.training import run_directory
        from realm_tf.training import trainers
        from realm_tf.training.training_log import LOG

        recipe = self.settings
        with self.train() as (loaded, stage):
            examples = IctExamples(
                run_directory.open_blocks(
                    self.blocks, recipe.lengths.max_block_length
                ),
                batch_size=recipe.batch_size,
                share=(hosts.number(), hosts.count()),
                seed=recipe.seed,
                remove_probability=recipe.remove_probability,
                block_segment_ids=loaded.block_segment_ids,
                **dataclasses.asdict(recipe.lengths),
            )
            stage.metadata["history"] = resume.fit(
                trainers.make_towers_trainer(
                    IctModel, loaded.model, recipe, recipe.num_steps
                ),
                examples.batches,
                epoch_ends=examples.epoch_ends(recipe.num_steps),
                directory=stage.path(run_directory.CHECKPOINT),
                **run_directory.logs(recipe, stage, LOG),
                **fit,
            )
            stage.metadata["counts"] = {
                **examples.counts,
                "examples_an_epoch": examples.num_examples,
                "steps": recipe.num_steps,
            }
        return self.result
