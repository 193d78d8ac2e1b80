"""How soon a running server answers from documents that have changed.

    python benchmarks/live_corpus.py --corpus DIR [--num-changed 100]

DIR is a corpus of `realm corpus create --fields half twentieth thousandth`,
whose documents have these fields, such as a number modulo 2, 20 and 1,000; it is
copied. `realm serve` answers from it; then a command of its own changes some documents,
and the time is taken until a question about them is answered from the new text.
Memory is the command's at its peak. Besides, filters that let a half, a twentieth
and a thousandth of the blocks be found: how many of the best five blocks of an
exact search over these they find, and how long a search takes.
"""

import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import load
import numpy as np
import tyro

from realm_tf.answering import corpus as corpora
from realm_tf.artifacts import question_files
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.objects import Model
from realm_tf.export import signatures
from realm_tf.serving.client import RealmClient
from realm_tf.serving.servable import SavedModelServable
from realm_tf.text.tokenizer import Tokenizer

_WORD = "zyzzyva"
_FILTERS = ("", "half=1", "twentieth=1", "thousandth=1", "thousandth=1|2")
_NUM_QUESTIONS = 20
_DEADLINE_SECONDS = 600


def main(*, corpus: str, num_changed: int = 100):
    """Changes a copy of the corpus, and asks."""
    with tempfile.TemporaryDirectory(
        dir=os.path.dirname(os.path.abspath(corpus))
    ) as folder:
        copy = os.path.join(folder, "corpus")
        shutil.copytree(corpus, copy)
        state = LiveCorpus(copy).state()
        documents = list(state.rows().values())
        found = {
            "documents": len(documents),
            "blocks": state.num_blocks,
            "changed": num_changed,
            **_update(copy, folder, documents, num_changed),
            "filters": _filter(copy, documents),
        }
    print(json.dumps(found, indent=1))


def _update(corpus, folder, documents, num_changed):
    step = len(documents) // num_changed
    path = pathlib.Path(folder) / "documents.jsonl"
    with path.open("w") as file:
        for number, row in enumerate(documents):
            is_changed = number % step == 0 and number // step < num_changed
            line = {
                **{name: row[name] for name in ("id", "title", "url")},
                **{name: values[0] for name, values in row["fields"].items()},
                "text": f"{_WORD} " * is_changed + row["text"],
            }
            file.write(json.dumps(line) + "\n")
    with load.serve(
        LiveCorpus(corpus).saved_model,
        *("--file-system-poll-wait-seconds", "1", "--rest-port", "0"),
    ) as server:
        client = RealmClient(server.target)
        started = time.monotonic()
        command = subprocess.Popen(
            [
                *(sys.executable, "-m", "realm_tf.cli", "corpus", "sync"),
                *(corpus, "--documents", str(path)),
            ]
        )
        while True:
            (blocks,) = client.retrieve([_WORD])
            if any(_WORD in block.text for block in blocks):
                break
            if time.monotonic() > started + _DEADLINE_SECONDS:
                raise TimeoutError("the change was never seen")
            time.sleep(1)
        seen = time.monotonic() - started
        status = command.wait()
        if status:
            raise RuntimeError(f"`realm corpus sync` ended with {status}")
        ended = time.monotonic() - started
        # Before the server ends, which is a child as well.
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds until a server answers from it": round(seen, 1),
        "seconds of the command": round(ended, 1),
        "memory of the command, GB": round(children.ru_maxrss / 1e6, 2),
    }


def _filter(corpus, documents):
    questions = [
        row["title"] for row in documents[:: len(documents) // _NUM_QUESTIONS]
    ][:_NUM_QUESTIONS]
    live = LiveCorpus(corpus)
    state = live.state()
    fields, ids, exact = state.fields(), state.block_ids(), _Exact(live, state)
    found = {}
    with SavedModelServable(live.saved_model) as servable:
        weight = servable.card["lexical_weight"]
        for filter in _FILTERS:
            name, _, values = filter.partition("=")
            allowed = np.array(
                [
                    not filter or each.get(name, [""])[0] in values.split("|")
                    for each in fields
                ]
            )
            seconds, recall = [], []
            for question in questions:
                inputs = {"question": _strings(question)}
                query = servable.run(inputs, signature=signatures.EMBED_QUERY)
                signature = signatures.RETRIEVE
                if filter:
                    inputs[signatures.FILTER] = _strings(filter)
                    signature += signatures.FILTERED
                servable.run(inputs, signature=signature)
                started = time.perf_counter()
                outputs = servable.run(inputs, signature=signature)
                seconds.append(time.perf_counter() - started)
                scores = exact.scores(question, query["embedding"][0], weight)
                scores[~allowed] = -np.inf
                best = set(ids[np.argsort(-scores)[:5]].tolist())
                recall.append(
                    len(best & set(outputs["block_id"][0, :5].tolist())) / 5
                )
            found[filter or "none"] = {
                "share of the blocks": round(float(allowed.mean()), 4),
                "recall@5": round(statistics.mean(recall), 4),
                "milliseconds": round(1000 * statistics.median(seconds), 1),
            }
    return found


class _Exact:
    """f(x, z) and BM25 of all blocks, in NumPy."""

    def __init__(self, live, state):
        model = Model(live.manifest().settings["model"])
        self._tokenizer = Tokenizer.from_file(
            model.vocabulary, lowercase=model.config["lowercase"]
        )
        records = state.records()
        self._embeddings = state.embeddings()
        self._postings = corpora.postings(
            records,
            corpora.title_ids(records, self._tokenizer),
            self._tokenizer,
        )

    def scores(self, question, query, weight):
        pieces = question_files.query_wordpieces(question, self._tokenizer)
        lexical = self._postings[:, pieces].sum(axis=1)
        return self._embeddings @ query + weight * np.asarray(lexical).ravel()


def _strings(text):
    return np.array([text.encode()], object)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
