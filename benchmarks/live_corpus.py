"""A running server while the documents that it answers from change.

    python benchmarks/live_corpus.py update --corpus DIR
    python benchmarks/live_corpus.py load --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --output DIR
"""

import collections
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import load
import numpy as np
import tyro
from tensorflow_serving.apis import predict_pb2

import realm_tf as realm
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.serving.client import RealmClient

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "support"))
import handbook

_PORT = ("--rest-port", "0")
_WORD = "zyzzyva"
_FEED = """
import json, sys
import realm_tf
lines = open(sys.argv[2])
realm_tf.Corpus(sys.argv[1]).update(map(json.loads, lines))
"""
_DEADLINE_SECONDS = 600
_NUM_CLIENTS = 2
_PAUSE_SECONDS = 0.25
_NUM_CHANGED = 5
_CHANGES_PER_LOOK = 5


def update(*, corpus: str, num_changed: int = 100):
    """Seconds until a running server answers from new documents.

    A copy of the corpus is served. A feed brings some documents again, changed, and
    the time runs until a question about them finds the new text.

    Args:
        corpus: directory of `realm corpus create`.
        num_changed: documents.
    """
    folder = os.path.dirname(os.path.abspath(corpus))
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        copy = LiveCorpus(os.path.join(folder, "corpus"))
        shutil.copytree(corpus, copy.path)
        documents = list(copy.state().rows().values())
        source = pathlib.Path(folder, "documents.jsonl")
        step = len(documents) // num_changed
        with source.open("w") as file:
            for row in documents[::step][:num_changed]:
                line = {name: row[name] for name in ("id", "title", "url")}
                line |= {name: each[0] for name, each in row["fields"].items()}
                line["text"] = f"{_WORD} {row['text']}"
                file.write(json.dumps(line) + "\n")
        with load.serve(copy.saved_model, *_PORT) as server:
            client = RealmClient(server.target)
            started = time.monotonic()
            command = subprocess.Popen(
                [sys.executable, "-c", _FEED, copy.path, str(source)]
            )
            while not _is_found(client):
                if time.monotonic() > started + _DEADLINE_SECONDS:
                    raise TimeoutError("The server never saw the change.")
                time.sleep(1)
            seen = time.monotonic() - started
            _, status, usage = os.wait4(command.pid, 0)
        if status:
            raise RuntimeError("`Corpus.update` failed.")
        found = {
            "blocks": copy.state().num_blocks,
            "seconds until a server answers from it": round(seen, 1),
            "memory of the command, GB": round(usage.ru_maxrss / 1e6, 2),
        }
    print(json.dumps(found, indent=1))


def _is_found(client):
    (blocks,) = client.retrieve([_WORD])
    return any(_WORD in block.text for block in blocks)


def under_load(
    *,
    model: str,
    output: str,
    calibration: str | None = None,
    minutes: float = 10.0,
    seconds_per_change: float = 10.0,
):
    """Errors of a server under load while its documents change.

    The handbook of the tests becomes a corpus that `realm serve` answers from.
    Two clients ask its 40 questions, each a quarter of a second after its last
    answer. Every ten seconds, or when the last change is made, five documents
    change and one is removed or comes back. Counts requests that failed, answers
    with a block that is not in the state which they name, and answers from an
    earlier state than one that was seen before the request. The server's memory
    is read after every fifth change.

    Args:
        output: directory to make.
    """
    root = pathlib.Path(output)
    documents = root / "documents"
    shutil.copytree(handbook.DOCUMENTS, documents)
    corpus = LiveCorpus(root / "corpus")
    realm.CreateCorpus(
        documents=str(documents),
        model=model,
        calibration=calibration,
        output=corpus.path,
    ).run()
    held = {corpus.manifest().state: _texts(corpus)}
    answers, failed = [], collections.Counter()
    memory = {"resident": [], "allocated": []}
    stop = threading.Event()
    with load.serve(corpus.saved_model, *_PORT) as server:
        clients = [
            threading.Thread(
                target=_ask, args=(server.target, first, answers, failed, stop)
            )
            for first in range(_NUM_CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            end = time.monotonic() + 60 * minutes
            for number in itertools.count(1):
                started = time.monotonic()
                if started > end:
                    break
                _change(documents, number)
                realm.SyncCorpus(corpus=corpus.path, yes=True).run()
                held[corpus.manifest().state] = _texts(corpus)
                left = seconds_per_change - (time.monotonic() - started)
                time.sleep(max(0.0, left))
                if number % _CHANGES_PER_LOOK == 0:
                    resident = load.own_megabytes(server.process.pid)
                    memory["resident"].append(round(resident))
                    allocated = load.allocated_megabytes(server)
                    memory["allocated"].append(round(allocated))
        finally:
            stop.set()
            for client in clients:
                client.join()
    found = {
        "changes": number - 1,
        **_summary(answers, held),
        "failed": dict(failed),
        "megabytes": memory,
    }
    print(json.dumps(found, indent=1))


def _summary(answers, held):
    """Numbers of the answers, given the texts of each state."""
    p50, p99 = np.quantile(
        [received - asked for asked, received, _, _ in answers], (0.5, 0.99)
    )
    return {
        "states that answered": len({state for _, _, state, _ in answers}),
        "answers": len(answers),
        "of another state": sum(
            not texts <= held[state] for _, _, state, texts in answers
        ),
        "of an earlier state": _num_earlier(answers),
        "seconds": {"median": round(p50, 3), "99 of 100": round(p99, 3)},
    }


def _texts(corpus):
    return set(corpus.state().records().texts)


def _change(documents, number):
    """Restores the documents, then changes some and removes one."""
    shutil.copytree(handbook.DOCUMENTS, documents, dirs_exist_ok=True)
    paths = sorted(documents.rglob("*.md"))
    for place in range(_NUM_CHANGED):
        path = paths[(number + place) % len(paths)]
        path.write_text(f"{path.read_text()}\n\nThis is edition {number}.\n")
    paths[(number + _NUM_CHANGED) % len(paths)].unlink()


def _ask(target, first, answers, failed, stop):
    """Appends (asked, received, state, texts of its blocks) of each answer."""
    requests = [load.request(each) for each, _ in handbook.read_questions()]
    with load.connect(target) as channel:
        predict = channel.unary_unary(
            load.PREDICT,
            response_deserializer=predict_pb2.PredictResponse.FromString,
        )
        for place in itertools.count(first):
            if stop.is_set():
                return
            asked = time.monotonic()
            try:
                found = predict(requests[place % len(requests)], timeout=60)
            except grpc.RpcError as error:
                failed[error.code().name] += 1
                continue
            received = time.monotonic()
            texts = found.outputs["candidate_text"].string_val
            texts = {text.decode() for text in texts if text}
            state = found.model_spec.version.value
            answers.append((asked, received, state, texts))
            time.sleep(_PAUSE_SECONDS)


def _num_earlier(answers):
    """Answers from an earlier state than one seen before the request."""
    by_receipt = sorted((received, state) for _, received, state, _ in answers)
    times = np.array([received for received, _ in by_receipt])
    newest = np.maximum.accumulate([state for _, state in by_receipt])
    num = 0
    for asked, _, state, _ in answers:
        place = np.searchsorted(times, asked)
        num += place > 0 and state < newest[place - 1]
    return int(num)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"update": update, "load": under_load}, description=__doc__
    )
