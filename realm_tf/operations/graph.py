"""Lists of operations: each runs once, in order, resumed and timed.

A complete directory that was made from the current inputs and parameters is
kept. Any other directory is refused, neither used nor removed.
"""

import dataclasses
import os
import sys
import time

from realm_tf.answering.sharing import sharing
from realm_tf.artifacts import artifact
from realm_tf.artifacts.directory import Artifact
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of a list.

    Args:
        operation: `Operation` with an output.
    """

    operation: Operation

    @property
    def title(self) -> str:
        """The name of the output."""
        return os.path.basename(self.operation.output)

    def is_done(self) -> bool:
        """Whether the output is complete.

        Raises:
            InputError: if it was made, or begun, from other inputs or
                parameters.
        """
        # A file may have changed since it was read.
        operation = self.operation.reopened()
        result = operation.result
        if result.is_complete:
            where, verb, made = result, "made", result.metadata
        else:
            where, verb = artifact.unfinished(result.path), "begun"
            made = artifact.interrupted_job(where)
        inputs = operation.inputs().values()
        if made and all(each.is_complete for each in inputs):
            differences = artifact.differences(
                made,
                {
                    "parameters": operation.parameters(),
                    "parents": operation.parents(),
                },
            )
            if made.get("contents") not in (None, operation.contents()):
                differences.append("other contents of its input files")
            if differences:
                raise InputError(
                    f"{where} was {verb} with {', '.join(differences)}. "
                    "Choose another --output, or remove it and what was made "
                    "from it."
                )
        return result.is_complete


class Graph:
    """Operations that read each other's outputs.

    Example:
    >>> from realm_tf.operations.build_index import BuildIndex
    >>> from realm_tf.operations.embed import Embed
    >>> from realm_tf.operations.graph import Graph
    >>> graph = Graph()
    >>> rows = graph.add(Embed(model="m", blocks="b", output="e"))
    >>> index = graph.add(BuildIndex(embeddings=rows, output="i"))
    >>> [(step.title, step.is_done()) for step in graph.steps]
    [('e', False), ('i', False)]
    """

    def __init__(self):
        self._steps: dict[str, Step] = {}

    @property
    def steps(self) -> list[Step]:
        """All steps, in order."""
        return list(self._steps.values())

    def add(self, operation: Operation) -> Artifact:
        """Adds an operation, after those whose outputs it reads.

        The same operation may be added again, which changes nothing.

        Returns:
            The object at its output, made or not.

        Raises:
            ValueError: if another operation has this output.
        """
        step = Step(operation)
        there = self._steps.setdefault(operation.result.path, step)
        if there.operation != operation:
            raise ValueError(
                "Operations with one output must be the same. Received: "
                f"{there.operation} and {operation}"
            )
        return there.operation.result

    def plan(self) -> list[tuple[Step, bool]]:
        """Each step, and whether it is done.

        Raises:
            InputError: if an output was made from something else.
        """
        return [(step, step.is_done()) for step in self.steps]

    def run(self) -> None:
        """Runs the steps that are not done, and prints its progress.

        Raises:
            InputError: if an output was made from something else: before
                anything is done, where that shows at once.
            RuntimeError: if a check failed.
        """
        # A changed input must not show after hours.
        self.plan()
        with sharing():
            self._run_steps()

    def _run_steps(self):
        total = len(self._steps)
        for number, step in enumerate(self.steps, start=1):
            label = f"[{number}/{total}] {step.title}"
            if step.is_done():
                print(f"{label}: done before", flush=True)
            else:
                command = step.operation.command_line()
                print(f"{label}\n      $ {command}", flush=True)
                started = time.monotonic()
                _do(step.operation.reopened())
                _forget_models()
                seconds = time.monotonic() - started
                print(f"      {seconds:.0f} s", flush=True)


def _do(operation):
    result = operation.run()
    if operation.status(result):
        raise RuntimeError(
            f"{operation.command_line()}\n{operation.report(result)}"
        )


def _forget_models():
    """Frees an operation's models: many follow in one process."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
