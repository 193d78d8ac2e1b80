"""Fine-tuning of a tiny model, as an operation."""

from realm_tf.operations.fine_tune import FineTune


def operation(world, output, *changes, **given):
    """`FineTune` over `open_qa_world`, with changes of the tiny recipe."""
    given = {
        name: given.pop(name, world[name])
        for name in ("model", "blocks", "questions")
    } | given
    return FineTune(
        recipe="tiny",
        set=changes,
        index=world["exact"],
        output=str(output),
        **given,
    )
