"""Whether Beam shares shards out, or this process makes them alone.

Beam takes seconds to import and to begin, so it runs a step only if its options
are given.
"""

from collections.abc import Sequence

from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.steps import ShardStep


def given_options(arguments: Sequence[str]):
    """`execution.pipeline_options` of what is given; `None` if nothing is."""
    if not arguments:
        return None
    from realm_tf.beam_pipelines import execution

    return execution.pipeline_options(arguments)


def run_on_shards(step: ShardStep, shards: Sequence, options=None) -> int:
    """Runs a step on the shards that are not there.

    Args:
        step: `ShardStep`.
        shards: sequence of `Shard`, or of what has a `path`.
        options: of `given_options`. Defaults to `None`: this process makes one
            after the other.

    Returns:
        int, how many were made.

    Raises:
        InputError: if a worker has reported one.
    """
    resumable.clean(step.directory)
    missing = resumable.missing_shards(shards)
    if not missing:
        return 0
    step.progress = step.make_progress(shards)
    if options is None:
        step.setup()
        for shard in missing:
            step.process(shard)
        resumable.raise_error(step.directory)
    else:
        from realm_tf.beam_pipelines import execution

        execution.run_step(step, missing, options)
    return len(missing)
