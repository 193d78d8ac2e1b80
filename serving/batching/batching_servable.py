"""Merges concurrent requests into batches, as TF Serving's batching does.

Requests of one signature whose inputs agree in all but the first dimension
are concatenated, run once and split again. A batch is closed when it is full
or its first request has waited long enough; which batch runs next is decided
by whose first request is oldest.

References:
    batching_session.cc of tensorflow/serving, tensorflow_serving/batching;
    shared_batch_scheduler.h of tensorflow, core/kernels/batching_util.
"""

import collections
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

import grpc
import numpy as np

from realm_tf.serving.batching import tensors as batch_tensors
from realm_tf.serving.batching.parameters import BatchingParameters
from realm_tf.serving.batching.parameters import read
from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import deadline_exceeded

__all__ = ["BatchRun", "BatchingParameters", "BatchingServable", "read"]

# After these a run of each request alone would end in the same way.
_FINAL = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
)


@dataclass(frozen=True)
class BatchRun:
    """A batch that was run, for `observe`.

    Args:
        signature: str.
        rows: int. Of all its requests.
        padding_rows: int. Added to reach an allowed batch size.
        queue_seconds: tuple of float. How long each request waited.
    """

    signature: str
    rows: int
    padding_rows: int
    queue_seconds: tuple[float, ...]


@dataclass(eq=False)
class _Task:
    """A request, or a part of a large one, that waits for its outputs."""

    inputs: Mapping[str, np.ndarray]
    rows: int
    queued: float
    deadline: float | None
    done: threading.Event = field(default_factory=threading.Event)
    outputs: dict[str, np.ndarray] | None = None
    error: Exception | None = None

    def seconds_left(self) -> float | None:
        if self.deadline is None:
            return None
        return self.deadline - time.monotonic()

    def finish(self, outputs=None, *, error: Exception | None = None) -> None:
        self.outputs, self.error = outputs, error
        self.done.set()


@dataclass(eq=False)
class _Batch:
    """Tasks of one signature and shape; the last of a queue is still open."""

    signature: str
    tasks: list[_Task] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(task.rows for task in self.tasks)


class BatchingServable:
    """A servable that runs what is asked of it at the same time at once.

    Has a servable's interface; closing it closes the servable. Signatures
    whose inputs or outputs have no batch dimension, and requests without
    rows, are passed on as they are.

    Args:
        servable: `SavedModelServable`.
        parameters: `BatchingParameters`.
        observe: function of a `BatchRun`, called after every batch. Defaults
            to none.
    """

    def __init__(
        self,
        servable,
        parameters: BatchingParameters,
        *,
        observe: Callable[[BatchRun], None] | None = None,
    ):
        self._servable = servable
        self._parameters = parameters
        self._observe = observe
        self.directory = servable.directory
        self.version = servable.version
        self.signature_defs = servable.signature_defs
        self.signature = servable.signature
        self.check = servable.check
        self.warm_up = servable.warm_up
        # Batches that wait, by signature and shapes; no queue stays empty.
        self._queues: dict[tuple, collections.deque[_Batch]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._work,
                name=f"{parameters.thread_pool_name}-{number}",
                daemon=True,
            )
            for number in range(parameters.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def card(self) -> dict:
        """The servable's."""
        return self._servable.card

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        output_filter: Iterable[str] = (),
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature; any number of threads may do so at once.

        Arguments, result and errors as of `SavedModelServable.run`; further:

        Raises:
            RequestError: INVALID_ARGUMENT if the request has more rows than
                the parameters allow, RESOURCE_EXHAUSTED if the queue is
                full.
        """
        wanted = list(output_filter)
        # Before it is queued: its mistakes must not fail other requests.
        self._servable.check(inputs, signature=signature, output_filter=wanted)
        definition = self._servable.signature(signature)
        rows = batch_tensors.count_rows(inputs, definition)
        if not rows:
            return self._servable.run(
                inputs,
                signature=signature,
                output_filter=wanted,
                timeout_seconds=timeout_seconds,
            )
        now = time.monotonic()
        deadline = None if timeout_seconds is None else now + timeout_seconds
        tasks = [
            _Task(part, batch_tensors.rows_of(part), now, deadline)
            for part in self._parts(inputs, rows)
        ]
        key = (
            signature or DEFAULT_SIGNATURE,
            *batch_tensors.shapes(
                inputs, sizes=not self._parameters.pad_variable_length_inputs
            ),
        )
        self._enqueue(key, tasks)
        outputs = self._wait(key, tasks)
        return {name: outputs[name] for name in wanted or outputs}

    def close(self, *, grace_seconds: float | None = None) -> None:
        """Refuses new runs, finishes those queued, closes the servable.

        Args:
            grace_seconds: float. How long to wait for them; what is not done
                then is cancelled. Defaults to no limit.
        """
        deadline = None
        if grace_seconds is not None:
            deadline = time.monotonic() + grace_seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_left(deadline))
        # Cancels what still runs, which ends the threads.
        self._servable.close(grace_seconds=_left(deadline))
        for thread in self._threads:
            thread.join()

    def _parts(self, inputs, rows: int) -> list[dict[str, np.ndarray]]:
        """The request, in pieces of a batch's size if they may be split."""
        parameters = self._parameters
        if rows > parameters.max_batch_size:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Task size {rows} is larger than maximum input batch size "
                f"{parameters.max_batch_size}",
            )
        size = parameters.max_rows
        return [
            {name: array[i : i + size] for name, array in inputs.items()}
            for i in range(0, rows, size)
        ]

    def _enqueue(self, key: tuple, tasks: list[_Task]) -> None:
        most_rows = self._parameters.max_rows
        with self._changed:
            if self._closed:
                raise RequestError(
                    grpc.StatusCode.UNAVAILABLE,
                    f"Version {self.version} is being unloaded.",
                )
            queue = self._queues.get(key) or collections.deque()
            batches = list(queue)
            for task in tasks:
                if not batches or batches[-1].rows + task.rows > most_rows:
                    batches.append(_Batch(key[0]))
                    if len(batches) > self._parameters.max_enqueued_batches:
                        # Parts of it may stand in a batch already.
                        self._remove(key, tasks)
                        raise _queue_full()
                    queue.append(batches[-1])
                    self._queues[key] = queue
                batches[-1].tasks.append(task)
            self._changed.notify_all()

    def _remove(self, key: tuple, tasks: list[_Task]) -> None:
        """Takes tasks out of the queue again; called under the lock."""
        kept = collections.deque()
        for batch in self._queues.pop(key, ()):
            batch.tasks = [t for t in batch.tasks if t not in tasks]
            if batch.tasks:
                kept.append(batch)
        if kept:
            self._queues[key] = kept

    def _wait(self, key: tuple, tasks: list[_Task]) -> dict[str, np.ndarray]:
        """The outputs of a request's parts, one below the other."""
        for task in tasks:
            left = task.seconds_left()
            if not task.done.wait(None if left is None else max(0, left)):
                with self._changed:
                    self._remove(key, tasks)
                raise deadline_exceeded()
        for task in tasks:
            if task.error is not None:
                raise task.error
        return batch_tensors.concatenate([task.outputs for task in tasks])

    def _work(self) -> None:
        """A thread's life: waits for a batch, runs it, and so on."""
        while (batch := self._next_batch()) is not None:
            try:
                self._run_batch(batch)
            except Exception as error:
                # A defect must reach its requests, not end the thread.
                for task in batch.tasks:
                    task.finish(error=error)

    def _next_batch(self) -> _Batch | None:
        """The next batch to run; `None` once closed and all are run."""
        with self._changed:
            while True:
                now = time.monotonic()
                ready = {
                    key: self._ready_at(queue)
                    for key, queue in self._queues.items()
                }
                due = [key for key, at in ready.items() if at <= now]
                if due:
                    return self._take(due)
                if self._closed and not self._queues:
                    return None
                earliest = min(ready.values(), default=None)
                self._changed.wait(earliest and earliest - now)

    def _ready_at(self, queue: collections.deque[_Batch]) -> float:
        """When a queue's first batch may run."""
        first = queue[0]
        full = len(queue) > 1 or first.rows >= self._parameters.max_rows
        if full or self._closed:
            return 0.0
        timeout = 1e-6 * self._parameters.batch_timeout_micros
        return first.tasks[0].queued + timeout

    def _take(self, keys: list[tuple]) -> _Batch:
        """Removes the oldest of the queues' first batches."""
        key = min(keys, key=lambda k: self._queues[k][0].tasks[0].queued)
        batch = self._queues[key].popleft()
        if not self._queues[key]:
            del self._queues[key]
        return batch

    def _run_batch(self, batch: _Batch) -> None:
        started = time.monotonic()
        tasks = []
        for task in batch.tasks:
            if task.deadline is not None and task.deadline <= started:
                task.finish(error=deadline_exceeded())
            else:
                tasks.append(task)
        if not tasks:
            return
        try:
            padding = self._run_merged(batch.signature, tasks)
        except RequestError as error:
            if len(tasks) == 1 or error.code in _FINAL:
                for task in tasks:
                    task.finish(error=error)
                return
            padding = 0
            for task in tasks:
                self._run_alone(batch.signature, task)
        if self._observe is not None:
            waits = tuple(started - task.queued for task in tasks)
            rows = sum(task.rows for task in tasks)
            self._observe(BatchRun(batch.signature, rows, padding, waits))

    def _run_merged(self, signature: str, tasks: list[_Task]) -> int:
        """Runs tasks as one; returns how many rows of padding it took."""
        rows = [task.rows for task in tasks]
        size = self._parameters.padded_size(sum(rows))
        merged = batch_tensors.merge([t.inputs for t in tasks], size=size)
        left = [task.seconds_left() for task in tasks]
        outputs = self._servable.run(
            merged,
            signature=signature,
            # The batch is stopped only when nobody waits for it any more.
            timeout_seconds=None if None in left else max(left),
        )
        parts = batch_tensors.split(outputs, rows, size=size)
        for task, part in zip(tasks, parts, strict=True):
            task.finish(part)
        return size - sum(rows)

    def _run_alone(self, signature: str, task: _Task) -> None:
        try:
            self._run_merged(signature, [task])
        except RequestError as error:
            task.finish(error=error)


def _queue_full() -> RequestError:
    # TF Serving's words; it says UNAVAILABLE, which clients take for a
    # server that is gone.
    return RequestError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "The batch scheduling queue to which this task was submitted is full",
    )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
