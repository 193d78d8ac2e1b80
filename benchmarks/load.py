"""Clients that load a server in a process of its own.

    python benchmarks/load.py --saved-model DIR

Measures a server that merges 16 requests, beside one that does not. Requests are
those of tensorflow-serving-api, so that no client of this project is measured.
Servers and clients are on one machine and share its processors.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
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

SIGNATURES = ("embed_query", "retrieve", "serving_default")
_NUM_CLIENTS = 16
_NUM_TURNS = 3
_READY = "realm serve: ready at "
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
    """Megabytes that a server with REST has allocated and not freed."""
    url = f"{server.rest_url}/monitoring/prometheus/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    return (
        float(re.search(r"^realm_allocated_bytes (\S+)", text, re.M)[1]) / 1e6
    )


def own_megabytes(pid: int) -> float:
    """Resident memory of a process that no file backs."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+)", status, re.M)[1]) * 1024 / 1e6


def questions_of(saved_model: str) -> list[str]:
    """The questions that an export holds for `realm verify`."""
    path = os.path.join(saved_model, "assets.extra", "expected.json")
    stored = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return [row["question"] for row in stored if row["question"]]


def request(question: str, signature: str = "") -> bytes:
    """A request that asks the server one question."""
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "realm"
    message.model_spec.signature_name = signature
    message.inputs["question"].CopyFrom(
        tf.make_tensor_proto([question], tf.string)
    )
    return message.SerializeToString()


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
    """Clients that ask again as soon as they have an answer.

    They do not parse the answers, because they share the processors with the
    server. Answers of the first two seconds do not count, nor those after the
    last second, when some clients have already stopped.

    Returns:
        dict of `per_second`, `p50_ms` and `p99_ms`.
    """
    answered = [[] for _ in range(num_clients)]
    begin = time.perf_counter() + _RAMP_SECONDS
    end = begin + seconds
    requests = [request(each, signature) for each in questions]

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
    p50, p99 = np.quantile(latencies, (0.5, 0.99))
    return {
        "per_second": round(len(latencies) / seconds, 1),
        "p50_ms": round(1000 * p50, 1),
        "p99_ms": round(1000 * p99, 1),
    }


def rest_loop(rest_url: str, questions: list[str], *, seconds: float) -> dict:
    """One client of the REST port, which keeps its connection.

    Returns:
        dict of `p50_ms` and `p99_ms`.
    """
    address = rest_url.removeprefix("http://")
    latencies, end = [], time.perf_counter() + seconds
    with contextlib.closing(http.client.HTTPConnection(address)) as connection:
        while (started := time.perf_counter()) < end:
            question = questions[len(latencies) % len(questions)]
            body = json.dumps({"inputs": [question]})
            connection.request("POST", "/v1/models/realm:predict", body)
            connection.getresponse().read()
            latencies.append(time.perf_counter() - started)
    p50, p99 = 1000 * np.quantile(latencies, (0.5, 0.99))
    return {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1)}


def main(*, saved_model: str, seconds: float = 10.0):
    """Questions a second of a server with batching, beside one without.

    For each signature, in turns: one client asks a server without batching; 16
    clients ask a server that merges their requests. The other server waits.
    Numbers are of the median turn; `ratios` are of all turns, `ratio` is their
    median. `rest` is the latency of one client of the REST port.
    """
    with contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                serve(
                    saved_model,
                    *("--rest-port", "0"),
                    *("--max-merged-size", str(merged)),
                )
            )
            for name, merged in (("one_client", 1), ("batching", _NUM_CLIENTS))
        }
        questions = questions_of(find_version(saved_model))
        results = {
            name: _turns(servers, questions, name, seconds)
            for name in SIGNATURES
        }
        rest_url = servers["one_client"].rest_url
        results["rest"] = rest_loop(rest_url, questions, seconds=seconds)
        for name, server in servers.items():
            results[f"{name}_megabytes"] = round(
                own_megabytes(server.process.pid)
            )
    return results


def _turns(servers, questions, signature, seconds):
    turns = []
    # The first turn does not count: every size of batch is compiled.
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


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
