"""Steps of pipelines, which run with an engine or without one.

Beam takes seconds to import and to run, so what one worker does soon runs
without it.
"""

import collections
import dataclasses
import operator
from collections.abc import Callable
from collections.abc import Iterable
from typing import ClassVar
from typing import NamedTuple

from realm_tf.beam_pipelines import resumable


class Tagged(NamedTuple):
    """What a step yields besides its main output.

    Args:
        tag: str. Name of the output.
        value: the element.
    """

    tag: str
    value: object


class Step:
    """A step of a pipeline, as `beam.DoFn` but for its import.

    A subclass implements `process(element)`, which returns nothing or yields
    elements and `Tagged`.
    """

    def setup(self, share: Callable = operator.call) -> None:
        """Loads what `process` needs; by default nothing.

        Args:
            share: function. Calls a function once a process, for all of its
                threads, and returns its result. Defaults to a plain call.
        """


def run_here(step: Step, elements: Iterable) -> tuple[list, dict[str, list]]:
    """Runs a step on elements, one after the other; what it yields, by tags."""
    main, tagged = [], collections.defaultdict(list)
    step.setup()
    for element in elements:
        for each in step.process(element) or ():
            if isinstance(each, Tagged):
                tagged[each.tag].append(each.value)
            else:
                main.append(each)
    return main, tagged


@dataclasses.dataclass(eq=False, kw_only=True)
class ShardStep(Step):
    """A step on shards, which stops all once it has found a mistake.

    A shard is one element, read, computed and written in one step. Rows that
    are brought together again, with GroupByKey, would be a barrier: no shard
    would be written before the last row is done (nothing to resume from), and
    all of them would go through the runner's shuffle.

    A subclass states `label` and `what` and implements `load(share)`, called
    once a worker, and `make(shard)`.

    Args:
        directory: str. The stage's.
        progress: `ShardProgress`. Given by `run_on_shards`.

    Attributes:
        label: str. Name of the step: that of the command, capitalised.
        what: str. What its rows are.
    """

    label: ClassVar[str]
    what: ClassVar[str]

    directory: str
    progress: resumable.ShardProgress | None = None

    def setup(self, share=operator.call):
        with resumable.reporting(self.directory):
            self.load(share)

    def process(self, shard):
        if not resumable.has_error(self.directory):
            with resumable.reporting(self.directory):
                self.make(shard)
