import collections
import contextlib
import random
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.errors import InputError
from realm_tf.serving.batching import batching_servable as batching
from realm_tf.serving.batching.batching_servable import BatchingParameters
from realm_tf.serving.batching.batching_servable import BatchingServable
from realm_tf.serving.request_error import RequestError

FILE = """
# As tensorflow.org/tfx/serving/serving_config has it.
max_batch_size { value: 32 }
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 3 }
thread_pool_name { value: "mine" }
allowed_batch_sizes: 8
allowed_batch_sizes: 32
pad_variable_length_inputs: true
"""


def test_a_file_of_tf_serving_is_read(tmp_path):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(FILE)
    parameters = batching.read(str(path))
    assert parameters == BatchingParameters(
        max_batch_size=32,
        batch_timeout_micros=2000,
        max_enqueued_batches=100,
        num_batch_threads=3,
        thread_pool_name="mine",
        allowed_batch_sizes=(8, 32),
        pad_variable_length_inputs=True,
    )
    sizes = [parameters.padded_size(rows) for rows in (1, 8, 9, 32)]
    assert sizes == [8, 8, 32, 32]
    path.write_text("")
    assert batching.read(str(path)) == BatchingParameters()


@pytest.mark.parametrize(
    "text, message",
    [
        ("max_batch_size { value: 32 }\nbatch_size: 3", "line 2,.*batch_size"),
        ("max_batch_size: 32", "line 1,"),
        ("max_batch_size { value: 0 }", "max_batch_size is 0: expected at"),
        ("num_batch_threads { value: 0 }", "num_batch_threads is 0"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros is -1"),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "must match max_batch_size; last entry was 4; expected 8",
        ),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: [8, 4]",
            "not ascending",
        ),
        ("max_execution_batch_size { value: 4 }", "needs enable_large"),
        (
            "max_batch_size { value: 4 } "
            "enable_large_batch_splitting { value: true } "
            "max_execution_batch_size { value: 5 }",
            "expected at most max_batch_size",
        ),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, message):
    path = tmp_path / "batching_parameters.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        batching.read(str(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        batching.read(str(tmp_path / "none"))


def definition(inputs, outputs):
    """A `SignatureDef` of names to lists of sizes."""
    result = meta_graph_pb2.SignatureDef()
    for side, shapes in ((result.inputs, inputs), (result.outputs, outputs)):
        for name, sizes in shapes.items():
            side[name].dtype = tf.int64.as_datatype_enum
            for size in sizes:
                side[name].tensor_shape.dim.add(size=size)
    return result


class Doubler:
    """Doubles the numbers; the number 13 fails. Holds runs if told to."""

    directory = "doubler"
    version = 1
    card = {}

    def __init__(self):
        self.signature_defs = {
            "serving_default": definition(
                {"x": [-1]}, {"doubled": [-1], "copy": [-1]}
            ),
            "wide": definition({"x": [-1, -1]}, {"doubled": [-1, -1]}),
            "pair": definition({"x": [-1], "y": [-1]}, {"doubled": [-1]}),
            "scalar": definition({"x": []}, {"doubled": []}),
            "mean": definition({"x": [-1]}, {"mean": [-1]}),
        }
        self.batches = []
        self.timeouts = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)
        self.at_once = collections.Counter()
        self.lock = threading.Lock()
        self.closed_with = None

    def signature(self, name=""):
        return self.signature_defs[name or "serving_default"]

    def check(self, inputs, *, signature="", output_filter=()):
        if set(inputs) != set(self.signature(signature).inputs):
            raise RequestError(grpc.StatusCode.INVALID_ARGUMENT, "inputs")

    def warm_up(self):
        return 1.5

    def run(self, inputs, *, signature="", output_filter=(), **options):
        with self.lock:
            self.batches.append(inputs["x"].tolist())
            self.timeouts.append(options.get("timeout_seconds"))
            self.at_once["now"] += 1
            self.at_once["most"] = max(self.at_once.values())
        self.started.release()
        try:
            assert self.gate.wait(timeout=20)
        finally:
            with self.lock:
                self.at_once["now"] -= 1
        if self.closed_with is not None:
            raise RequestError(grpc.StatusCode.CANCELLED, "closed")
        if 13 in inputs["x"]:
            raise RequestError(grpc.StatusCode.INVALID_ARGUMENT, "unlucky 13")
        if signature == "mean":
            return {"mean": np.array([inputs["x"].mean()])}
        outputs = {"doubled": 2 * inputs["x"], "copy": inputs["x"]}
        names = output_filter or self.signature(signature).outputs
        return {name: outputs[name] for name in names}

    def close(self, *, grace_seconds=None):
        self.closed_with = grace_seconds
        self.gate.set()


@pytest.fixture
def batched():
    """Makes a `Doubler` and its `BatchingServable`."""
    with contextlib.ExitStack() as stack:

        def make(observe=None, **parameters):
            doubler = Doubler()
            servable = BatchingServable(
                doubler, BatchingParameters(**parameters), observe=observe
            )
            stack.callback(servable.close)
            stack.callback(doubler.gate.set)
            return doubler, servable

        yield make


@pytest.fixture
def pool():
    with futures.ThreadPoolExecutor(32) as pool:
        yield pool


def x(*values):
    return {"x": np.array(values, np.int64)}


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def queued_rows(servable):
    with servable._changed:
        return [
            [batch.rows for batch in queue]
            for queue in servable._queues.values()
        ]


def hold_one(doubler, servable, pool):
    """Fills the only thread with a run that waits for the gate."""
    doubler.gate.clear()
    held = pool.submit(servable.run, x(0))
    assert doubler.started.acquire(timeout=20)
    return held


def outputs_of(call):
    return call.result(timeout=20)["doubled"].tolist()


def test_requests_that_wait_are_merged(batched, pool):
    runs = []
    doubler, servable = batched(runs.append, num_batch_threads=1)
    held = hold_one(doubler, servable, pool)
    calls = [pool.submit(servable.run, x(i, 10 * i)) for i in range(1, 5)]
    wait_for(lambda: queued_rows(servable) == [[8]])
    doubler.gate.set()
    assert [outputs_of(call) for call in calls] == [
        [2, 20],
        [4, 40],
        [6, 60],
        [8, 80],
    ]
    assert outputs_of(held) == [0]
    assert len(doubler.batches) == 2
    assert sorted(doubler.batches[1]) == [1, 2, 3, 4, 10, 20, 30, 40]
    wait_for(lambda: len(runs) == 2)
    assert (runs[1].rows, runs[1].padding_rows) == (8, 0)
    assert runs[1].signature == "serving_default"
    assert len(runs[1].queue_seconds) == 4
    assert min(runs[1].queue_seconds) > 0


def test_output_filter_is_each_requests_own(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    hold_one(doubler, servable, pool)
    calls = [
        pool.submit(servable.run, x(i), output_filter=wanted)
        for i, wanted in enumerate((["copy"], [], ["doubled"]))
    ]
    wait_for(lambda: queued_rows(servable) == [[3]])
    doubler.gate.set()
    results = [call.result(timeout=20) for call in calls]
    assert [sorted(r) for r in results] == [
        ["copy"],
        ["copy", "doubled"],
        ["doubled"],
    ]
    assert results[0]["copy"].tolist() == [0]


def test_batches_are_padded_with_their_first_row(batched):
    runs = []
    doubler, servable = batched(
        runs.append, max_batch_size=8, allowed_batch_sizes=(4, 8)
    )
    assert servable.run(x(7, 1, 2, 3, 4))["doubled"].tolist() == [
        14,
        2,
        4,
        6,
        8,
    ]
    assert doubler.batches == [[7, 1, 2, 3, 4, 7, 7, 7]]
    wait_for(lambda: runs)
    assert (runs[0].rows, runs[0].padding_rows) == (5, 3)


def test_a_full_batch_does_not_wait(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1, max_batch_size=4, batch_timeout_micros=60_000_000
    )
    calls = [pool.submit(servable.run, x(i, i)) for i in range(4)]
    assert sorted(outputs_of(call) for call in calls) == [
        [0, 0],
        [2, 2],
        [4, 4],
        [6, 6],
    ]
    assert [len(batch) for batch in doubler.batches] == [4, 4]


def test_a_batch_that_the_next_request_would_not_fit_is_closed(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1, max_batch_size=4, batch_timeout_micros=60_000_000
    )
    first = pool.submit(servable.run, x(1, 2, 3))
    wait_for(lambda: queued_rows(servable) == [[3]])
    second = pool.submit(servable.run, x(4, 5))
    assert outputs_of(first) == [2, 4, 6]
    assert doubler.batches == [[1, 2, 3]]
    assert not second.done()
    servable.close()
    assert outputs_of(second) == [8, 10]


def test_a_batch_waits_for_its_timeout_at_most(batched):
    doubler, servable = batched(batch_timeout_micros=100_000)
    started = time.monotonic()
    servable.run(x(1))
    assert 0.1 <= time.monotonic() - started < 10


def test_signatures_and_shapes_are_not_mixed(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    hold_one(doubler, servable, pool)
    wide = [
        np.array([[1, 2]], np.int64),
        np.array([[3, 4, 5]], np.int64),
        np.array([[6, 7]], np.int64),
    ]
    calls = [
        pool.submit(servable.run, {"x": array}, signature="wide")
        for array in wide
    ]
    wait_for(lambda: sorted(queued_rows(servable)) == [[1], [2]])
    doubler.gate.set()
    assert [outputs_of(c) for c in calls] == [(2 * w).tolist() for w in wide]


def test_variable_lengths_are_padded_if_asked(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1, pad_variable_length_inputs=True
    )
    hold_one(doubler, servable, pool)
    calls = []
    for number, values in enumerate(([[1, 2]], [[3, 4, 5]]), start=1):
        array = np.array(values, np.int64)
        calls.append(pool.submit(servable.run, {"x": array}, signature="wide"))
        wait_for(lambda n=number: queued_rows(servable) == [[n]])
    doubler.gate.set()
    # Filled with the request's own first value, as TF Serving does.
    assert outputs_of(calls[0]) == [[2, 4, 2]]
    assert outputs_of(calls[1]) == [[6, 8, 10]]
    assert doubler.batches[1] == [[1, 2, 1], [3, 4, 5]]


def test_without_a_batch_dimension_requests_pass(batched):
    doubler, servable = batched(allowed_batch_sizes=(1000,))
    outputs = servable.run({"x": np.array(3)}, signature="scalar")
    assert outputs["doubled"] == 6
    assert servable.run(x())["doubled"].tolist() == []
    assert doubler.batches == [3, []]


def test_a_request_beyond_the_largest_batch_is_refused(batched):
    _, servable = batched(max_batch_size=2)
    with pytest.raises(
        RequestError,
        match="Task size 3 is larger than maximum input batch size 2",
    ) as caught:
        servable.run(x(1, 2, 3))
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_large_request_is_split_if_asked(batched):
    doubler, servable = batched(
        num_batch_threads=1,
        max_batch_size=10,
        enable_large_batch_splitting=True,
        max_execution_batch_size=4,
    )
    values = list(range(10))
    assert servable.run(x(*values))["doubled"].tolist() == [
        2 * value for value in values
    ]
    assert doubler.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_inputs_of_different_lengths_are_refused(batched):
    doubler, servable = batched()
    inputs = {**x(1, 2), "y": np.zeros(3, np.int64)}
    with pytest.raises(RequestError, match="equal 0th-dimension size"):
        servable.run(inputs, signature="pair")
    assert doubler.batches == []


def test_a_full_queue_refuses(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1, max_batch_size=2, max_enqueued_batches=2
    )
    hold_one(doubler, servable, pool)
    calls = [pool.submit(servable.run, x(i, i)) for i in (1, 2)]
    wait_for(lambda: queued_rows(servable) == [[2, 2]])
    with pytest.raises(RequestError, match="queue .* is full") as caught:
        servable.run(x(3))
    assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    doubler.gate.set()
    assert sorted(outputs_of(call) for call in calls) == [[2, 2], [4, 4]]
    # There is room again.
    assert servable.run(x(3))["doubled"].tolist() == [6]


def test_parts_of_a_refused_request_leave_the_queue(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1,
        max_batch_size=6,
        max_enqueued_batches=2,
        enable_large_batch_splitting=True,
        max_execution_batch_size=2,
    )
    hold_one(doubler, servable, pool)
    call = pool.submit(servable.run, x(1))
    wait_for(lambda: queued_rows(servable) == [[1]])
    with pytest.raises(RequestError, match="full"):
        servable.run(x(2, 3, 4, 5))
    assert queued_rows(servable) == [[1]]
    doubler.gate.set()
    assert outputs_of(call) == [2]
    assert doubler.batches == [[0], [1]]


def test_time_that_runs_out_in_the_queue(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    hold_one(doubler, servable, pool)
    call = pool.submit(servable.run, x(1))
    wait_for(lambda: queued_rows(servable) == [[1]])
    with pytest.raises(RequestError) as caught:
        servable.run(x(2), timeout_seconds=0.05)
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert queued_rows(servable) == [[1]]
    doubler.gate.set()
    assert outputs_of(call) == [2]
    assert doubler.batches == [[0], [1]]


def test_a_batch_runs_as_long_as_its_most_patient_request(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    hold_one(doubler, servable, pool)
    calls = [
        pool.submit(servable.run, x(1), timeout_seconds=seconds)
        for seconds in (15.0, 18.0)
    ]
    wait_for(lambda: queued_rows(servable) == [[2]])
    doubler.gate.set()
    assert [outputs_of(call) for call in calls] == [[2], [2]]
    assert doubler.timeouts[0] is None
    assert 15.0 < doubler.timeouts[1] <= 18.0


def test_only_the_guilty_request_fails(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    hold_one(doubler, servable, pool)
    calls = [pool.submit(servable.run, x(value)) for value in (1, 13, 2)]
    wait_for(lambda: queued_rows(servable) == [[3]])
    doubler.gate.set()
    assert outputs_of(calls[0]) == [2]
    assert outputs_of(calls[2]) == [4]
    with pytest.raises(RequestError, match="unlucky 13"):
        calls[1].result(timeout=20)
    assert sorted(doubler.batches[2:]) == [[1], [2], [13]]


def test_wrong_inputs_are_refused_before_they_queue(batched):
    doubler, servable = batched()
    with pytest.raises(RequestError, match="inputs"):
        servable.run({"z": np.zeros(1)})
    assert doubler.batches == []


def test_outputs_that_do_not_follow_the_inputs(batched):
    _, servable = batched()
    with pytest.raises(
        RequestError, match="0th dimension does not equal"
    ) as caught:
        servable.run(x(1, 2), signature="mean")
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION


def test_no_more_batches_at_once_than_threads(batched, pool):
    doubler, servable = batched(num_batch_threads=2, max_batch_size=1)
    doubler.gate.clear()
    calls = [pool.submit(servable.run, x(i)) for i in range(6)]
    for _ in range(2):
        assert doubler.started.acquire(timeout=20)
    wait_for(lambda: queued_rows(servable) == [[1] * 4])
    doubler.gate.set()
    assert sorted(outputs_of(call) for call in calls) == [
        [2 * i] for i in range(6)
    ]
    assert doubler.at_once["most"] == 2


def test_closing_finishes_what_is_queued(batched, pool):
    doubler, servable = batched(
        num_batch_threads=1, batch_timeout_micros=60_000_000
    )
    calls = [pool.submit(servable.run, x(i)) for i in range(3)]
    wait_for(lambda: queued_rows(servable) == [[3]])
    servable.close(grace_seconds=20)
    assert [outputs_of(call) for call in calls] == [[0], [2], [4]]
    assert len(doubler.batches) == 1
    assert 0 < doubler.closed_with <= 20
    with pytest.raises(RequestError, match="unloaded") as caught:
        servable.run(x(1))
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_closing_without_grace_cancels(batched, pool):
    doubler, servable = batched(num_batch_threads=1)
    held = hold_one(doubler, servable, pool)
    call = pool.submit(servable.run, x(1))
    wait_for(lambda: queued_rows(servable) == [[1]])
    servable.close(grace_seconds=0)
    for cancelled in (held, call):
        with pytest.raises(RequestError) as caught:
            cancelled.result(timeout=20)
        assert caught.value.code == grpc.StatusCode.CANCELLED


def test_a_defect_reaches_its_request_and_no_other(batched, monkeypatch):
    doubler, servable = batched(num_batch_threads=1)
    with monkeypatch.context() as patch:
        patch.setattr(doubler, "run", lambda inputs, **unused: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            servable.run(x(1))
    assert servable.run(x(1))["doubled"].tolist() == [2]


def test_many_threads_get_their_own(batched, pool):
    runs = []
    _, servable = batched(
        runs.append,
        num_batch_threads=2,
        max_batch_size=16,
        max_enqueued_batches=1000,
        allowed_batch_sizes=(4, 16),
    )

    def ask(seed):
        generator = random.Random(seed)
        rows = 0
        for _ in range(30):
            values = [
                generator.choice((1, 2, 3, 5, 8))
                for _ in range(generator.randint(1, 9))
            ]
            outputs = servable.run(x(*values), timeout_seconds=20)
            assert outputs["doubled"].tolist() == [2 * v for v in values]
            rows += len(values)
        return rows

    rows = sum(pool.map(ask, range(16)))
    wait_for(lambda: sum(run.rows for run in runs) == rows)
    assert len(runs) < 16 * 30
    assert {run.rows + run.padding_rows for run in runs} <= {4, 16}


def test_it_has_a_servables_interface(batched):
    doubler, servable = batched()
    assert servable.directory == "doubler"
    assert servable.version == 1
    assert servable.card == {}
    assert servable.signature_defs is doubler.signature_defs
    assert servable.signature("wide") is doubler.signature_defs["wide"]
    assert servable.warm_up() == 1.5
