"""Steps on shards, which Beam shares out, or this process makes alone.

Beam takes seconds to import and to begin, so it runs a step only if its options
are given.
"""

import dataclasses
import operator
from collections.abc import Callable
from collections.abc import Sequence
from typing import ClassVar

from realm_tf.beam_pipelines import resumable


@dataclasses.dataclass(eq=False, kw_only=True)
class ShardStep:
    """A step on shards, which stops all once it has found a mistake.

    A shard is one element, read, computed and written in one step. Rows that
    are brought together again, with GroupByKey, would be a barrier: no shard
    would be written before the last row is done (nothing to resume from), and
    all of them would go through the runner's shuffle.

    A subclass states `command` and `what` and implements `load(share)`, called
    once a worker, and `make(shard)`.

    Args:
        directory: str. Where mistakes are reported and unfinished files go.
        progress: `Progress`. Given by `run_on_shards`.

    Attributes:
        command: str. The command whose step it is.
        what: str. What its rows are.
    """

    command: ClassVar[str]
    what: ClassVar[str]

    directory: str
    progress: Callable[[int], None] | None = None

    @property
    def label(self) -> str:
        """Name of the step in a pipeline."""
        return f"{self.command.capitalize()} {self.what}"

    def make_progress(self, shards: Sequence) -> Callable[[int], None]:
        """What is called with the rows of a shard that are done."""
        return resumable.ShardProgress(self.command, self.what, shards)

    def setup(self, share: Callable = operator.call) -> None:
        """Loads what `make` needs.

        Args:
            share: function. Calls a function once a process, for all of its
                threads, and returns its result. Defaults to a plain call.
        """
        with resumable.reporting(self.directory):
            self.load(share)

    def load(self, share: Callable) -> None:
        """By default nothing."""

    def process(self, shard) -> None:
        """Makes a shard, unless some worker has found a mistake."""
        if not resumable.has_error(self.directory):
            with resumable.reporting(self.directory):
                self.make(shard)


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
