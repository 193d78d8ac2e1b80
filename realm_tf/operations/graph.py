"""Lists of operations: each runs once, in order, resumed and timed.

A complete directory that was made from the current inputs and parameters is
kept. Any other directory is refused, neither used nor removed.
"""

import os
import sys
import time

from realm_tf.answering.sharing import sharing
from realm_tf.artifacts import artifact
from realm_tf.artifacts.directory import Artifact
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


def is_done(operation: Operation) -> bool:
    """Whether the output of an operation is complete.

    Raises:
        InputError: if it was made, or begun, from other inputs or
            parameters.
    """
    # A file may have changed since it was read.
    operation = operation.reopened()
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
                f"{where} was {verb} with {', '.join(differences)}. Choose "
                "another --output, or remove it and what was made from it."
            )
    return result.is_complete


class Graph:
    """Operations that read each other's outputs.

    Attributes:
        operations: dict. Path of an output to its `Operation`, in their order.

    Example:
    >>> from realm_tf.operations.build_index import BuildIndex
    >>> from realm_tf.operations.embed import Embed
    >>> from realm_tf.operations.graph import Graph
    >>> graph = Graph()
    >>> rows = graph.add(Embed(model="m", blocks="b", output="e"))
    >>> index = graph.add(BuildIndex(embeddings=rows, output="i"))
    >>> graph.plan()
    {'e': False, 'i': False}
    """

    def __init__(self):
        self.operations: dict[str, Operation] = {}

    def add(self, operation: Operation) -> Artifact:
        """Adds an operation, after those whose outputs it reads.

        The same operation may be added again, which changes nothing.

        Returns:
            The object at its output, made or not.

        Raises:
            ValueError: if another operation has this output.
        """
        there = self.operations.setdefault(operation.result.path, operation)
        if there != operation:
            raise ValueError(
                "Operations with one output must be the same. Received: "
                f"{there} and {operation}"
            )
        return there.result

    def plan(self) -> dict[str, bool]:
        """Whether each output is there, in the order of the steps.

        Raises:
            InputError: if an output was made from something else.
        """
        return {path: is_done(each) for path, each in self.operations.items()}

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
            for number, operation in enumerate(self.operations.values(), 1):
                name = os.path.basename(operation.output)
                label = f"[{number}/{len(self.operations)}] {name}"
                if is_done(operation):
                    print(f"{label}: done before", flush=True)
                else:
                    print(label, flush=True)
                    _do(operation)


def _do(operation):
    command = operation.command_line()
    print(f"      $ {command}", flush=True)
    started = time.monotonic()
    # What it reads may have been made since it was stated.
    operation = operation.reopened()
    result = operation.run()
    if operation.status(result):
        raise RuntimeError(f"{command}\n{operation.report(result)}")
    # An operation's models: many follow in one process.
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    print(f"      {time.monotonic() - started:.0f} s", flush=True)
