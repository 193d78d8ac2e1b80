"""Whether Beam runs a step, which takes seconds to import and to begin."""

from collections.abc import Sequence

from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.steps import ShardStep
from realm_tf.beam_pipelines.steps import run_here


def given_options(arguments: Sequence[str]):
    """`execution.pipeline_options` of what is given; `None` if nothing is."""
    if not arguments:
        return None
    from realm_tf.beam_pipelines import execution

    return execution.pipeline_options(arguments)


def run_on_shards(
    step: ShardStep, shards: Sequence[resumable.Shard], options=None
) -> int:
    """Runs a step on the shards that are not there.

    One shard is nothing to share out: it needs no engine, unless one is named.

    Args:
        step: `ShardStep`.
        shards: sequence of `Shard`.
        options: of `given_options`. Defaults to `None`.

    Returns:
        int, how many were made.

    Raises:
        InputError: if a worker has reported one.
    """
    missing = resumable.missing_shards(shards)
    if not missing:
        resumable.clean(step.directory)
        return 0
    step.progress = resumable.ShardProgress(
        step.label.lower(), step.what, shards
    )
    if options is None and len(missing) == 1:
        resumable.clean(step.directory)
        run_here(step, missing)
        resumable.raise_error(step.directory)
    else:
        from realm_tf.beam_pipelines import execution

        execution.run_shard_step(step, missing, options)
    return len(missing)
