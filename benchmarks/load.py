"""A server in a process of its own, and clients that load it.

What `batching.py` and `soak.py` share. Requests go out as tensorflow-serving-api
makes them, so that the server is measured and not a client of this project.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from typing import NamedTuple

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

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
