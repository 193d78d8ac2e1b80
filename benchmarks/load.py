"""A server in a process of its own, and clients that load it.

    python benchmarks/load.py batching --saved-model DIR
    python benchmarks/load.py soak --saved-model DIR --other DIR
    python benchmarks/load.py versions --saved-model DIR [--alone]

Requests go out as tensorflow-serving-api makes them, so that the server is
measured and not a client of this project. Servers and clients are processes on
one machine and share its processors.
"""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
import tyro
from tensorflow_serving.apis import predict_pb2

from realm_tf.artifacts.saved_models import find_version
from realm_tf.serving import memory
from realm_tf.serving.servable import SavedModelServable

SIGNATURES = ("embed_query", "retrieve", "serving_default")
_NUM_CLIENTS = 16
_NUM_TURNS = 3
_SHARE = 0.8
_VERSIONS_TO_MEASURE = 4
# As many as may wait for their answer; each is a thread that sleeps.
_NUM_WAITING = 256
_READY = "realm serve: ready at "
_ALLOCATED = "realm_allocated_bytes "
_RAMP_SECONDS = 2.0
PREDICT = "/tensorflow.serving.PredictionService/Predict"


class Server(NamedTuple):
    """A running `realm serve`: addresses for gRPC and, if it has it, REST."""

    process: subprocess.Popen
    target: str
    rest_url: str | None = None


@contextlib.contextmanager
def serve(saved_model: str, *options: str):
    """Starts `realm serve`; yields it as a `Server`."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "realm_tf.cli", "serve"),
            *("--saved-model", saved_model, "--grpc-port", "0", *options),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stdout:
            if line.startswith(_READY):
                where = line[len(_READY) :].split(", ")[0].split(" and ")
                yield Server(process, *where)
                break
        else:
            raise SystemExit(f"realm serve ended with {process.wait()}")
    finally:
        process.terminate()
        process.wait()


def allocated_megabytes(server: Server) -> float:
    """What a server with REST says that it has allocated and not freed."""
    url = f"{server.rest_url}/monitoring/prometheus/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(_ALLOCATED):
                return float(line[len(_ALLOCATED) :]) / 1e6
    raise SystemExit(f"{url} tells no {_ALLOCATED}.")


def resident_megabytes(pid: int) -> float:
    """Memory of a process that is not shared with files."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    raise SystemExit(f"Process {pid} tells no RssAnon.")


def questions_of(saved_model: str) -> list[str]:
    """The questions that an export brings along for `realm verify`."""
    path = os.path.join(saved_model, "assets.extra", "expected.json")
    stored = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return [row["question"] for row in stored["questions"] if row["question"]]


def request(question: str, signature: str = ""):
    """What asks the server one question."""
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "realm"
    message.model_spec.signature_name = signature
    message.inputs["question"].CopyFrom(
        tf.make_tensor_proto([question], tf.string)
    )
    return message


def connect(target: str) -> grpc.Channel:
    """A connection to a server."""
    options = [("grpc.max_receive_message_length", 2**31 - 1)]
    return grpc.insecure_channel(target, options)


def closed_loop(
    target: str,
    questions: list[str],
    *,
    signature: str,
    num_clients: int,
    seconds: float,
) -> dict:
    """Clients that ask again as soon as they are answered.

    They send bytes made before and do not read the answers, because they
    share the processors with the server. What is answered in the first two
    seconds does not count, nor what is answered after the last: then not all
    of them wait.

    Returns:
        dict of `per_second`, `p50_ms`, `p99_ms` and `requests`.
    """
    answered = [[] for _ in range(num_clients)]
    begin = time.perf_counter() + _RAMP_SECONDS
    end = begin + seconds
    requests = [request(q, signature).SerializeToString() for q in questions]

    def ask(number):
        place = number
        with connect(target) as channel:
            predict = channel.unary_unary(PREDICT)
            while (started := time.perf_counter()) < end:
                predict(requests[place % len(requests)], timeout=60)
                answered[number].append((started, time.perf_counter()))
                place += 1

    threads = [
        threading.Thread(target=ask, args=(n,)) for n in range(num_clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latencies = [
        done - started
        for those in answered
        for started, done in those
        if begin <= done < end
    ]
    return {
        "per_second": round(len(latencies) / seconds, 1),
        **quantiles(latencies),
    }


def quantiles(latencies: list[float]) -> dict:
    """Median and 99th percentile, in milliseconds."""
    return {
        "p50_ms": round(1000 * statistics.median(latencies), 1),
        "p99_ms": round(1000 * float(np.quantile(latencies, 0.99)), 1),
        "requests": len(latencies),
    }


def batching(
    *,
    saved_model: str,
    seconds: float = 10.0,
):
    """Questions a second of a server with batching, beside one without.

    For each signature: one client that asks a server without batching, one
    question at a time; then 16 such clients of a server that merges their
    requests; in turns. A server that is not asked waits. Numbers are of the
    median turn; `ratios` are of all turns, `ratio` is their median.
    """
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                serve(
                    saved_model,
                    *("--rest-port", "none"),
                    *("--max-merged-size", str(merged)),
                )
            )
            for name, merged in (("one_client", 1), ("batching", _NUM_CLIENTS))
        }
        questions = questions_of(find_version(saved_model)[0])
        results = {
            name: _turns(servers, questions, name, seconds)
            for name in SIGNATURES
        }
        for name, server in servers.items():
            results[f"{name}_megabytes"] = round(
                resident_megabytes(server.process.pid)
            )
    return results


def _turns(servers, questions, signature, seconds):
    turns = []
    # In the first, which does not count, every size of batch is compiled.
    for number in range(1 + _NUM_TURNS):
        turns.append(
            {
                name: closed_loop(
                    server.target,
                    questions,
                    signature=signature,
                    num_clients=1 if name == "one_client" else _NUM_CLIENTS,
                    seconds=seconds if number else 3,
                )
                for name, server in servers.items()
            }
        )
    turns = sorted(turns[1:], key=_ratio)
    return {
        **turns[len(turns) // 2],
        "ratios": [round(_ratio(turn), 2) for turn in turns],
        "ratio": round(statistics.median(map(_ratio, turns)), 2),
    }


def _ratio(turn):
    return turn["batching"]["per_second"] / turn["one_client"]["per_second"]


def soak(
    *,
    saved_model: str,
    other: str,
    minutes: float = 10.0,
    seconds_per_version: float = 30.0,
):
    """Load at 80 % of capacity while the model is replaced again and again.

    Two exports of one corpus that answer differently (such as one with and one
    without --calibration) become version after version of one base directory.
    For the time of four versions 16 clients ask as fast as they are answered:
    the capacity, of a server that loads versions too. Then questions arrive at
    80 % of that rate, whether earlier ones are answered or not. `mixed` counts
    answers that are not wholly those of the version that they name.
    """
    sources = [find_version(each)[0] for each in (saved_model, other)]
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(
            tempfile.TemporaryDirectory(dir=pathlib.Path(sources[0]).parent)
        )
        put(sources, base, 1)
        server = stack.enter_context(serve(base, "--rest-port", "0"))
        return _load(sources, base, server, minutes, seconds_per_version)


def put(sources: list[str], base: str, version: int) -> None:
    """Makes a version of one of the sources, as an export appears: at once.

    Files are linked, not copied. The version before the last is removed.
    """
    source = sources[version % len(sources)]
    partial = os.path.join(base, f"{version}.partial")
    shutil.copytree(source, partial, copy_function=os.link)
    os.rename(partial, os.path.join(base, str(version)))
    shutil.rmtree(os.path.join(base, str(version - 2)), ignore_errors=True)


def _load(sources, base, server, minutes, seconds_per_version):
    questions = questions_of(sources[0])
    resident, allocated = [], []
    target = server.target
    stopped = threading.Event()
    swapper = threading.Thread(
        target=_swap,
        args=(
            *(sources, base, server, resident, allocated),
            *(stopped, seconds_per_version),
        ),
    )
    swapper.start()
    try:
        signature = "serving_default"
        arguments = {"signature": signature, "num_clients": _NUM_CLIENTS}
        closed_loop(target, questions, seconds=5, **arguments)
        capacity = closed_loop(
            target,
            questions,
            seconds=_VERSIONS_TO_MEASURE * seconds_per_version,
            **arguments,
        )["per_second"]
        asked, received, failed = _ask_at(
            _SHARE * capacity, target, questions, 60 * minutes
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
        **quantiles([seconds for _, seconds, _ in received]),
        "resident_megabytes_after_each_swap": resident,
        "allocated_megabytes_after_each_swap": allocated,
    }


def _ask_at(rate, target, questions, seconds):
    """Asks so often a second; returns how many, the answers and failures."""
    failed = collections.Counter()
    received = []
    channel = connect(target)
    # The bytes of answers are looked at afterwards: server and client share
    # the processors.
    predict = channel.unary_unary(PREDICT)
    requests = {q: request(q).SerializeToString() for q in questions}

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


def _swap(
    sources, base, server, resident, allocated, stopped, seconds_per_version
):
    version = 1
    while not stopped.wait(seconds_per_version):
        if version > 1:
            # By now loaded, warmed up, and the one before let go.
            resident.append(round(resident_megabytes(server.process.pid)))
            allocated.append(round(allocated_megabytes(server)))
        version += 1
        put(sources, base, version)


def versions(*, saved_model: str, versions: int = 40, alone: bool = False):
    """Memory that versions of a model leave, without a server or requests.

    Loads a SavedModel again and again and asks it once, as `realm serve` does:
    the new one before the old is closed, or, with `alone`, after.
    """
    question = questions_of(find_version(saved_model)[0])[0]
    memory.keep_imports()
    old, found = None, []
    for _ in range(versions):
        new = SavedModelServable(saved_model)
        new.run({"question": np.array([question.encode()], object)})
        if old:
            old.close()
        old = None if alone else new
        if alone:
            new.close()
        del new
        memory.hand_back()
        found.append(
            {
                "resident_megabytes": round(resident_megabytes(os.getpid())),
                "allocated_megabytes": round(memory.allocated_bytes() / 1e6, 1),
            }
        )
    return found


if __name__ == "__main__":
    commands = {"batching": batching, "soak": soak, "versions": versions}
    found = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    print(json.dumps(found, indent=2))
