"""Load at 80 % of capacity while the model is replaced again and again.

    python benchmarks/soak.py --saved-model DIR --other DIR

Two exports of one corpus that answer differently (such as one with and one
without --calibration) become version after version of one base directory, a
new one every 30 seconds. For the time of four versions 16 clients ask as fast
as they are answered: the capacity, of a server that loads versions too. Then
questions arrive at 80 % of that rate, whether earlier ones are answered or
not. Prints how many requests failed, how many answers were not wholly those of the
version that they name, latencies, and the server's memory after every swap: what is
resident, and what is allocated and not freed.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import load
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from realm_tf.artifacts.saved_models import find_version

_SHARE = 0.8
_NUM_CLIENTS = 16
_VERSIONS_TO_MEASURE = 4
# As many as may wait for their answer; each is a thread that sleeps.
_NUM_WAITING = 256


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--saved-model", required=True)
    parser.add_argument("--other", required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seconds-per-version", type=float, default=30.0)
    args = parser.parse_args()
    sources = [find_version(d)[0] for d in (args.saved_model, args.other)]
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(
            tempfile.TemporaryDirectory(dir=pathlib.Path(sources[0]).parent)
        )
        put(sources, base, 1)
        server = stack.enter_context(load.serve(base, "--rest-port", "0"))
        print(json.dumps(_run(args, sources, base, server), indent=2))


def put(sources: list[str], base: str, version: int) -> None:
    """Makes a version of one of the sources, as an export appears: at once.

    Files are linked, not copied. The version before the last is removed.
    """
    source = sources[version % len(sources)]
    partial = os.path.join(base, f"{version}.partial")
    shutil.copytree(source, partial, copy_function=os.link)
    os.rename(partial, os.path.join(base, str(version)))
    shutil.rmtree(os.path.join(base, str(version - 2)), ignore_errors=True)


def _run(args, sources, base, server):
    questions = load.questions_of(sources[0])
    resident, allocated = [], []
    target = server.target
    stopped = threading.Event()
    swapper = threading.Thread(
        target=_swap,
        args=(args, sources, base, server, resident, allocated, stopped),
    )
    swapper.start()
    try:
        signature = "serving_default"
        arguments = {"signature": signature, "num_clients": _NUM_CLIENTS}
        load.closed_loop(target, questions, seconds=5, **arguments)
        capacity = load.closed_loop(
            target,
            questions,
            seconds=_VERSIONS_TO_MEASURE * args.seconds_per_version,
            **arguments,
        )["per_second"]
        asked, received, failed = _ask_at(
            _SHARE * capacity, target, questions, 60 * args.minutes
        )
    finally:
        stopped.set()
        swapper.join()
    return {
        "capacity_per_second": capacity,
        "asked": asked,
        "answered": len(received),
        "failed": dict(failed),
        **_compare([(q, answer) for q, _, answer in received], len(sources)),
        **load.quantiles([seconds for _, seconds, _ in received]),
        "resident_megabytes_after_each_swap": resident,
        "allocated_megabytes_after_each_swap": allocated,
    }


def _ask_at(rate, target, questions, seconds):
    """Asks so often a second; returns how many, the answers and failures."""
    failed = collections.Counter()
    received = []
    channel = load.connect(target)
    # The bytes of answers are looked at afterwards: server and client share
    # the processors.
    predict = channel.unary_unary(load.PREDICT)
    requests = {q: load.request(q).SerializeToString() for q in questions}

    def ask(question):
        started = time.perf_counter()
        try:
            answer = predict(requests[question], timeout=60)
        except grpc.RpcError as error:
            failed[error.code().name] += 1
            return
        received.append((question, time.perf_counter() - started, answer))

    number, due = 0, time.perf_counter()
    deadline = due + seconds
    with concurrent.futures.ThreadPoolExecutor(_NUM_WAITING) as pool:
        while due < deadline:
            time.sleep(max(0.0, due - time.perf_counter()))
            pool.submit(ask, questions[number % len(questions)])
            number += 1
            due += 1 / rate
    channel.close()
    return number, received, failed


def _compare(received, num_sources):
    """Whether each answer is wholly that of the version that it names."""
    answers, versions = {}, set()
    num_mixed = 0
    for question, answer in received:
        response = predict_pb2.PredictResponse.FromString(answer)
        version = response.model_spec.version.value
        versions.add(version)
        found = _arrays(response)
        expected = answers.setdefault((version % num_sources, question), found)
        num_mixed += not _same(found, expected)
    differ = {
        question
        for (source, question), answer in answers.items()
        if not _same(answer, answers.get((1 - source, question), answer))
    }
    return {
        "mixed": num_mixed,
        "versions_seen": len(versions),
        "questions_whose_answers_tell_versions_apart": len(differ),
    }


def _arrays(response) -> dict:
    return {
        name: tf.make_ndarray(tensor)
        for name, tensor in response.outputs.items()
    }


def _same(found, expected) -> bool:
    """Whether two answers are one; batches add in another order."""
    return all(
        found[name].shape == value.shape
        and (
            np.allclose(found[name], value, atol=1e-3)
            if value.dtype.kind == "f"
            else np.array_equal(found[name], value)
        )
        for name, value in expected.items()
    )


def _swap(args, sources, base, server, resident, allocated, stopped):
    version = 1
    while not stopped.wait(args.seconds_per_version):
        if version > 1:
            # By now loaded, warmed up, and the one before let go.
            resident.append(round(load.resident_megabytes(server.process.pid)))
            allocated.append(round(load.allocated_megabytes(server)))
        version += 1
        put(sources, base, version)


if __name__ == "__main__":
    main()
