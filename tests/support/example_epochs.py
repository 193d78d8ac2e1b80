"""Examples of one epoch after the other."""


def examples_of(batches, epoch):
    """All examples of an epoch, step after step."""
    return [
        example
        for step in range(batches.steps_per_epoch)
        for example in batches.examples(epoch, step)
    ]
