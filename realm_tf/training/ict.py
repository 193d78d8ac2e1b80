"""The Inverse Cloze Task as a function; see `operations.inverse_cloze_task`."""

from realm_tf.operations.inverse_cloze_task import InverseClozeTask


def ict(model, blocks, output, *, recipe, save_every_steps=None, **fit):
    """`InverseClozeTask.run`; returns the metrics of each epoch."""
    return (
        InverseClozeTask(
            model=model, blocks=blocks, output=output, recipe=recipe
        )
        .run(every_steps=save_every_steps, **fit)
        .metadata["history"]
    )
