"""A server under load while the documents that it answers from change.

    python benchmarks/live_load.py --model quickstart-output/model \
        --calibration quickstart-output/evaluation-dev --output DIR

The handbook of the tests becomes a corpus, and `realm serve` answers from it, in
a process of its own. For ten minutes two clients ask its 40 questions, each again
a quarter of a second after it is answered; every ten seconds (or as soon as the change before is
made) five documents change and one is removed or comes back. Counted are:

- requests that failed;
- answers with a block that the state they name does not hold;
- answers from an earlier state than one that had been seen when they were asked
  for;
- the server's memory after every fifth change: what is resident, and what is
  allocated and not freed.
"""

import collections
import itertools
import json
import pathlib
import shutil
import sys
import threading
import time

import grpc
import load
import numpy as np
import tyro
from tensorflow_serving.apis import predict_pb2

import realm_tf as realm
from realm_tf.artifacts.live_corpus import LiveCorpus

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "support"))
import handbook

_NUM_CLIENTS = 2
_PAUSE_SECONDS = 0.25
_NUM_CHANGED = 5
_CHANGES_PER_LOOK = 5
_POLL = ("--file-system-poll-wait-seconds", "1", "--rest-port", "0")


def main(
    *,
    model: str,
    output: str,
    calibration: str | None = None,
    minutes: float = 10.0,
    seconds_per_change: float = 10.0,
):
    """Makes the corpus below `output`, serves it, asks and changes."""
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
    with load.serve(corpus.saved_model, *_POLL) as server:
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
                realm.SyncCorpus(corpus=corpus.path).run()
                held[corpus.manifest().state] = _texts(corpus)
                left = seconds_per_change - (time.monotonic() - started)
                time.sleep(max(0.0, left))
                if number % _CHANGES_PER_LOOK == 0:
                    memory["resident"].append(
                        round(load.resident_megabytes(server.process.pid))
                    )
                    memory["allocated"].append(
                        round(load.allocated_megabytes(server))
                    )
        finally:
            stop.set()
            for client in clients:
                client.join()
    seconds = [received - asked for asked, received, _, _ in answers]
    found = {
        "changes": number - 1,
        "states that answered": len({state for _, _, state, _ in answers}),
        "answers": len(answers),
        "failed": dict(failed),
        "of another state": sum(
            not texts <= held[state] for _, _, state, texts in answers
        ),
        "of an earlier state": _num_earlier(answers),
        "seconds": {
            "median": round(float(np.median(seconds)), 3),
            "99 of 100": round(float(np.quantile(seconds, 0.99)), 3),
        },
        "megabytes": memory,
    }
    print(json.dumps(found, indent=1))


def _texts(corpus):
    return set(corpus.state().records().texts)


def _change(documents, number):
    """Changes some documents and removes one; that of before comes back."""
    shutil.copytree(handbook.DOCUMENTS, documents, dirs_exist_ok=True)
    paths = sorted(documents.rglob("*.md"))
    for place in range(_NUM_CHANGED):
        path = paths[(number + place) % len(paths)]
        path.write_text(f"{path.read_text()}\n\nThis is edition {number}.\n")
    paths[(number + _NUM_CHANGED) % len(paths)].unlink()


def _ask(target, first, answers, failed, stop):
    """Appends (asked, received, state, texts of its blocks) of each answer."""
    requests = [
        load.request(question).SerializeToString()
        for question, _ in handbook.read_questions()
    ]
    with load.connect(target) as channel:
        predict = channel.unary_unary(load.PREDICT)
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
            time.sleep(_PAUSE_SECONDS)
            response = predict_pb2.PredictResponse.FromString(found)
            texts = response.outputs["candidate_text"].string_val
            answers.append(
                (
                    asked,
                    received,
                    response.model_spec.version.value,
                    {text.decode() for text in texts if text},
                )
            )


def _num_earlier(answers):
    """Answers from before a state that was seen before they were asked for."""
    by_receipt = sorted((received, state) for _, received, state, _ in answers)
    times = np.array([received for received, _ in by_receipt])
    newest = np.maximum.accumulate([state for _, state in by_receipt])
    num = 0
    for asked, _, state, _ in answers:
        place = np.searchsorted(times, asked)
        num += place > 0 and state < newest[place - 1]
    return int(num)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
