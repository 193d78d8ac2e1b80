"""Merges concurrent requests: a model answers a batch faster than its parts.

Requests of one signature whose inputs are vectors, as those of a REALM export,
are concatenated, run once and split again. A thread takes a batch when the batch
is full or its first request has waited long enough.
"""

import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from dataclasses import field

import grpc
import numpy as np

from realm_tf.export import signatures
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_error import unavailable

# How long cancelled runs may take to end; our choice.
_CANCEL_SECONDS = 5.0


@dataclass(eq=False)
class _Task:
    """A waiting request; only tasks of the same `key` share a batch."""

    key: tuple
    inputs: Mapping[str, np.ndarray]
    rows: int
    queued: float
    deadline: float
    outputs: Future = field(default_factory=Future)


class BatchingServable:
    """A servable that merges concurrent requests.

    Has a servable's interface; closing it closes the servable. Requests
    without rows, or with inputs of another rank, are batches of their own.

    Args:
        servable: `SavedModelServable`.
        max_rows: int. The most rows of a batch of several requests.
        timeout_seconds: float. How long a batch may wait to be filled.
        num_threads: int. The most batches that run at once.
        observe: function of a batch's rows and of the seconds that each of
            its requests waited, called after every batch.

    Attributes:
        servable: as given.
    """

    def __init__(
        self,
        servable,
        *,
        max_rows: int,
        timeout_seconds: float,
        num_threads: int,
        observe: Callable[[int, list[float]], None],
    ):
        self.servable = servable
        self._max_rows = max_rows
        self._timeout_seconds = timeout_seconds
        self._observe = observe
        self.directory = servable.directory
        self.signature_defs = servable.signature_defs
        self.card = servable.card
        self.check = servable.check
        self.warm_up = servable.warm_up
        # In the order in which they came.
        self._waiting: list[_Task] = []
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name="batch", daemon=True)
            for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        timeout_seconds: float,
    ) -> dict[str, np.ndarray]:
        """Runs a signature, as `SavedModelServable.run`."""
        now = time.monotonic()
        rows = _count_rows(inputs)
        # Nothing else equals a new object.
        key = (signature or signatures.DEFAULT, None if rows else object())
        task = _Task(key, inputs, rows, now, now + timeout_seconds)
        with self._changed:
            if self._closed:
                raise unavailable("This version is being unloaded.")
            self._waiting.append(task)
            self._changed.notify_all()
        try:
            return task.outputs.result(timeout_seconds)
        except TimeoutError as error:
            with self._changed:
                if task in self._waiting:
                    self._waiting.remove(task)
            raise RequestError(
                grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded."
            ) from error

    def close(self) -> None:
        """Closes the servable; what waits is cancelled, and what runs with it."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for task in waiting:
            error = unavailable("This version is being unloaded.")
            task.outputs.set_exception(error)
        # Cancels what still runs, which ends the threads.
        self.servable.close()
        for thread in self._threads:
            thread.join(_CANCEL_SECONDS)

    def _work(self) -> None:
        """A thread's life: waits for a batch, runs it, and so on."""
        while tasks := self._next_batch():
            started = time.monotonic()
            self._run(tasks)
            self._observe(
                sum(task.rows for task in tasks),
                [started - task.queued for task in tasks],
            )

    def _next_batch(self) -> list[_Task]:
        """The next requests to run as one; none once closed."""
        with self._changed:
            while not self._closed:
                left = None
                if self._waiting:
                    batch, is_full = self._oldest_batch()
                    waited = time.monotonic() - batch[0].queued
                    left = self._timeout_seconds - waited
                    if is_full or left <= 0:
                        self._waiting = [
                            t for t in self._waiting if t not in batch
                        ]
                        return batch
                self._changed.wait(left)
        return []

    def _oldest_batch(self) -> tuple[list[_Task], bool]:
        """The first request with those like it, and whether that is all."""
        key = self._waiting[0].key
        batch, rows = [], 0
        for task in (task for task in self._waiting if task.key == key):
            if batch and rows + task.rows > self._max_rows:
                return batch, True
            batch.append(task)
            rows += task.rows
        return batch, rows >= self._max_rows or not rows

    def _run(self, tasks: list[_Task]) -> None:
        """Runs requests as one, or alone if that fails."""
        try:
            results = self._results(tasks)
        # A defect must reach its requests, not end the thread.
        except Exception as error:
            if len(tasks) == 1:
                tasks[0].outputs.set_exception(error)
                return
            # Only the guilty one fails.
            for task in tasks:
                self._run([task])
            return
        for task, outputs in zip(tasks, results, strict=True):
            task.outputs.set_result(outputs)

    def _results(self, tasks: list[_Task]) -> list[dict]:
        """The outputs of each request."""
        inputs = tasks[0].inputs
        if len(tasks) > 1:
            inputs = {
                name: np.concatenate([task.inputs[name] for task in tasks])
                for name in inputs
            }
        outputs = self.servable.run(
            inputs,
            signature=tasks[0].key[0],
            # Stopped only when nobody waits for it any more.
            timeout_seconds=max(t.deadline for t in tasks) - time.monotonic(),
        )
        if len(tasks) == 1:
            return [outputs]
        limits = np.cumsum([task.rows for task in tasks])[:-1]
        parts = {
            name: np.split(array, limits) for name, array in outputs.items()
        }
        return [
            dict(zip(parts, arrays, strict=True))
            for arrays in zip(*parts.values(), strict=True)
        ]


def _count_rows(inputs: Mapping[str, np.ndarray]) -> int:
    """The size of a request's batch; 0 if its inputs are no vectors.

    Raises:
        RequestError: if the inputs' sizes differ.
    """
    sizes = {len(array) if array.ndim == 1 else 0 for array in inputs.values()}
    if len(sizes) > 1:
        raise invalid(
            "Batching Run() input tensors must have equal 0th-dimension size"
        )
    return max(sizes, default=0)
