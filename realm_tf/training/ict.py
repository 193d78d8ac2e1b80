"""Trains the retriever on the Inverse Cloze Task: a sentence, its block.

  realm ict --recipe wiki-small --model DIR --blocks DIR --output DIR \\
      [--set num_steps=1000]

No questions and no labels are needed. --blocks is what `realm chunk` or
`realm pack` wrote. A new model directory is written when the last step is
done, with the same reader. A run that was stopped goes on where it was with
the same command.
"""

import dataclasses

from realm_tf.artifacts import packed_blocks
from realm_tf.configs import ict as configs
from realm_tf.configs import recipes
from realm_tf.data.inverse_cloze import IctExamples
from realm_tf.training import run_directory
from realm_tf.training import trainers


def add_arguments(parser):
    """Arguments of `realm ict`."""
    recipes.add_arguments(parser, configs.RECIPES, default="wiki-small")
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument(
        "--blocks",
        required=True,
        help="directory of `realm chunk`, or of `realm pack`",
    )
    parser.add_argument("--output", required=True, help="directory to make")


def run(args, extra):
    """`realm ict`."""
    history = ict(
        args.model,
        args.blocks,
        args.output,
        recipe=configs.get_recipe(args.recipe, args.overrides),
    )
    last = ", ".join(f"{k} {v:.3f}" for k, v in history[-1].items())
    print(f"{args.output}: {last}")


def ict(
    model: str,
    blocks: str,
    output: str,
    *,
    recipe: configs.IctRecipe,
    verbose: int | str = "auto",
    callbacks=(),
    save_every_seconds: float = 300.0,
    save_every_steps: int | None = None,
) -> list[dict]:
    """Trains the towers of a model directory and writes a new one.

    Shared towers stay shared. On JAX, all devices of the machine share each
    batch.

    Args:
        model: str. Model directory to start from.
        blocks: str. Blocks directory, or one that `realm pack` made of it.
        output: str. Model directory to make, on a local disk.
        recipe: `IctRecipe`.
        verbose: int or str. As `training.resume.fit`. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.
        save_every_seconds: float. See `training.resume.fit`. Defaults to
            `300.0`.
        save_every_steps: int. See there. Defaults to `None`.

    Returns:
        list of dict, the metrics of each epoch.

    Raises:
        InputError: if the inputs do not belong together.
    """
    from realm_tf.artifacts import model_directory
    from realm_tf.training import devices
    from realm_tf.training import resume

    with devices.of_recipe(recipe):
        loaded = model_directory.load(model)
        metadata = run_directory.check_blocks(
            blocks, loaded, model=model, recipe=recipe
        )
        with run_directory.write_model(
            output,
            parameters=dataclasses.asdict(recipe),
            parents={
                "model": loaded.metadata["fingerprint"],
                "blocks": packed_blocks.blocks_fingerprint(metadata),
            },
        ) as stage:
            examples = IctExamples(
                run_directory.open_blocks(
                    blocks, stage, max_length=recipe.max_block_length
                ),
                batch_size=recipe.batch_size,
                seed=recipe.seed,
                max_query_length=recipe.max_query_length,
                max_block_length=recipe.max_block_length,
                remove_probability=recipe.remove_probability,
                block_segment_ids=loaded.block_segment_ids,
            )
            history = resume.fit(
                trainers.make_ict_trainer(loaded.model, recipe),
                examples.batches,
                num_steps=recipe.num_steps,
                steps_per_epoch=examples.steps_per_epoch,
                directory=stage.path(run_directory.CHECKPOINT),
                every_seconds=save_every_seconds,
                every_steps=save_every_steps,
                callbacks=callbacks,
                verbose=verbose,
            )
            model_directory.write_files(loaded, stage)
            stage.metadata.update(
                history=history,
                counts={
                    **examples.counts,
                    "examples_an_epoch": examples.num_examples,
                    "steps": recipe.num_steps,
                },
            )
    return history
