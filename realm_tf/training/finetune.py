"""Fine-tuning as a function; see `operations.fine_tune`."""

from realm_tf.operations.fine_tune import FineTune


def finetune(
    model,
    blocks,
    index,
    questions,
    output,
    *,
    recipe,
    dev=None,
    tensorboard=None,
    save_every_steps=None,
    **fit,
):
    """`FineTune.run`; returns the metrics of each epoch."""
    questions = [questions] if isinstance(questions, str) else questions
    return (
        FineTune(
            model=model,
            blocks=blocks,
            index=index,
            questions=questions,
            output=output,
            recipe=recipe,
            dev=dev,
            tensorboard=tensorboard,
        )
        .run(every_steps=save_every_steps, **fit)
        .metadata["history"]
    )
