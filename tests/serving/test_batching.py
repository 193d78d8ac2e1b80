import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest
from waiting import wait_for

from realm_tf.serving.batching import BatchingServable
from realm_tf.serving.request_error import RequestError


class Doubling:
    """Doubles `x`, as many rows at a time as it is given; 13 is refused."""

    directory = "doubling"
    card = {}
    signature_defs = {}

    def __init__(self):
        self.batches = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.started = threading.Semaphore(0)
        self.closed = False

    def check(self, inputs, *, signature="", output_filter=()):
        pass

    def warm_up(self):
        pass

    def run(self, inputs, *, signature, timeout_seconds):
        self.batches.append(inputs["x"].tolist())
        self.started.release()
        assert self.may_run.wait()
        if 13 in inputs["x"]:
            raise RequestError(grpc.StatusCode.INVALID_ARGUMENT, "13")
        if -1 in inputs["x"]:
            raise KeyError("a defect")
        return {"y": 2 * inputs["x"]}

    def close(self):
        self.may_run.set()
        self.closed = True


@pytest.fixture
def inner():
    return Doubling()


@pytest.fixture
def observed():
    return []


@pytest.fixture
def make(inner, observed):
    made = []

    def make(*, max_rows=8, timeout_seconds=0.0, num_threads=1):
        made.append(
            BatchingServable(
                inner,
                max_rows=max_rows,
                timeout_seconds=timeout_seconds,
                num_threads=num_threads,
                observe=lambda rows, waits: observed.append((rows, waits)),
            )
        )
        return made[-1]

    yield make
    inner.may_run.set()
    for servable in made:
        servable.close()


@pytest.fixture
def pool():
    with futures.ThreadPoolExecutor(32) as pool:
        yield pool


def x(*values):
    return {"x": np.array(values, np.int64)}


def run(servable, *values, seconds=600.0, **options):
    outputs = servable.run(x(*values), timeout_seconds=seconds, **options)
    return outputs["y"].tolist()


def hold(servable, inner, pool, *values):
    """Occupies the one thread, so that what follows has to wait."""
    inner.may_run.clear()
    held = pool.submit(run, servable, *values)
    assert inner.started.acquire()
    return held


def wait_for_queue(servable, number):
    wait_for(lambda: len(servable._waiting) >= number)


def submit_in_order(servable, pool, *requests, **options):
    calls = []
    for number, values in enumerate(requests, start=1):
        calls.append(pool.submit(run, servable, *values, **options))
        wait_for_queue(servable, number)
    return calls


def test_what_waits_is_run_as_one_and_split_again(make, inner, pool, observed):
    servable = make()
    held = hold(servable, inner, pool, 100)
    calls = submit_in_order(servable, pool, [1, 2], [3], [4, 5, 6])
    inner.may_run.set()
    assert held.result() == [200]
    assert [c.result() for c in calls] == [[2, 4], [6], [8, 10, 12]]
    assert inner.batches == [[100], [1, 2, 3, 4, 5, 6]]
    wait_for(lambda: len(observed) == 2)
    assert [rows for rows, _ in observed] == [1, 6]
    assert len(observed[1][1]) == 3 and min(observed[1][1]) >= 0


def test_a_batch_is_not_larger_than_the_limit(make, inner, pool):
    servable = make(max_rows=4)
    hold(servable, inner, pool, 100)
    calls = submit_in_order(
        servable, pool, [1, 2, 3], [4, 5], [6], list(range(20, 30))
    )
    inner.may_run.set()
    for call in calls:
        assert call.result()
    # A request that is larger is run by itself.
    assert inner.batches[1:] == [[1, 2, 3], [4, 5, 6], list(range(20, 30))]


def test_a_batch_waits_to_be_filled(make, inner, pool):
    servable = make(max_rows=3, timeout_seconds=0.3)
    started = time.monotonic()
    assert run(servable, 1) == [2]
    assert time.monotonic() - started >= 0.3
    # A full one does not wait.
    servable._timeout_seconds = 3600
    calls = submit_in_order(servable, pool, [1], [2])
    assert run(servable, 3) == [6]
    assert [c.result() for c in calls] == [[2], [4]]
    assert inner.batches[1:] == [[1, 2, 3]]


def test_only_vectors_of_a_signature_are_merged(make, inner, pool):
    servable = make()
    hold(servable, inner, pool, 100)
    wide = np.ones((1, 2), np.int64)
    requests = [
        *[(wide, ""), (wide, ""), (np.array(1), "")],
        *[(np.array([], np.int64), ""), (np.array([4]), "other")],
        *[(np.array([5]), ""), (np.array([6]), "serving_default")],
    ]
    calls = []
    for number, (array, signature) in enumerate(requests, start=1):
        calls.append(
            pool.submit(
                servable.run,
                {"x": array},
                signature=signature,
                timeout_seconds=600,
            )
        )
        wait_for_queue(servable, number)
    inner.may_run.set()
    for (array, _), call in zip(requests, calls, strict=True):
        np.testing.assert_array_equal(call.result()["y"], 2 * array)
    assert inner.batches[1:] == [[[1, 1]], [[1, 1]], 1, [], [4], [5, 6]]


def test_only_the_guilty_request_fails(make, inner, pool):
    servable = make()
    hold(servable, inner, pool, 100)
    calls = submit_in_order(servable, pool, [1], [13], [2])
    inner.may_run.set()
    assert calls[0].result() == [2]
    assert calls[2].result() == [4]
    with pytest.raises(RequestError, match="13"):
        calls[1].result()
    assert inner.batches[1:] == [[1, 13, 2], [1], [13], [2]]


def test_a_defect_reaches_its_requests_and_the_thread_goes_on(make):
    servable = make()
    with pytest.raises(KeyError, match="a defect"):
        run(servable, -1)
    assert run(servable, 1) == [2]


def test_each_request_keeps_its_own_deadline(make, inner, pool):
    servable = make()
    held = hold(servable, inner, pool, 100)
    with pytest.raises(RequestError) as caught:
        run(servable, 1, seconds=0.1)
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    inner.may_run.set()
    assert held.result() == [200]
    # Nobody waits for it any more, so it is not run.
    assert run(servable, 2) == [4]
    assert inner.batches == [[100], [2]]
    with pytest.raises(RequestError, match="Deadline exceeded"):
        run(servable, 3, seconds=-1.0)


def test_close_refuses_what_waits_and_what_comes(make, inner, pool):
    servable = make(timeout_seconds=3600)
    (call,) = submit_in_order(servable, pool, [1])
    servable.close()
    assert inner.closed
    for refused in (call.result, lambda: run(servable, 3)):
        with pytest.raises(RequestError) as caught:
            refused()
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_many_clients_get_their_own_answers(make, pool):
    servable = make(num_threads=2, timeout_seconds=0.001)
    calls = [
        (value, pool.submit(run, servable, value, value + 1))
        for value in range(500)
        if 13 not in (value, value + 1)
    ]
    for value, call in calls:
        assert call.result() == [2 * value, 2 * value + 2]
