"""DPR's training as a function; see `operations.fine_tune`."""

from realm_tf.operations.fine_tune import FineTune


def train_dpr(
    model,
    blocks,
    questions,
    output,
    *,
    recipe,
    dev=None,
    save_every_steps=None,
    **fit,
):
    """`FineTune.run`; returns the metrics of each epoch."""
    questions = [questions] if isinstance(questions, str) else questions
    return (
        FineTune(
            retriever_loss="dpr",
            model=model,
            blocks=blocks,
            questions=questions,
            output=output,
            recipe=recipe,
            dev=dev,
        )
        .run(every_steps=save_every_steps, **fit)
        .metadata["history"]
    )
