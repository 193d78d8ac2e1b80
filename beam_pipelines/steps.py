"""Steps on shards, of which a pipeline is made."""

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
        progress: `Progress`. Given by `engine.run_on_shards`.

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
