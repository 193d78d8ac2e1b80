"""A reader that learns to read, then to choose; the one of the package.

    python benchmarks/two_stages.py --data-dir DIR --output DIR

DIR is as `sample_questions.py` wants it: corpus.jsonl.gz and a folder questions.
MiniLM's towers stay as they are. The reader first learns from the gold block of each
training question, then from three blocks of two in five of those that
`sample_questions.py` chooses for the systems of table 1. Weights of retrieval and
of BM25 are fitted on dev, for each retriever. What is done is kept in the output.
"""

import json
import os
import subprocess
import sys

import tyro

import realm_tf as realm

_RETRIEVERS = ("hybrid", "bm25", "realm")
_TESTS = ("nq_open", "squad_open", "webquestions", "curatedtrec")
_COMMON = ("retriever=hybrid", "read_titles=true", "dropout=0")
_READ = (
    *("batch_size=16", "gold=only", "num_candidates=100"),
    *("num_reader_blocks=1", "learning_rate=2e-4", "num_epochs=1"),
)
_CHOOSE = (
    *("batch_size=8", "gold=read", "num_candidates=50"),
    *("num_reader_blocks=3", "learning_rate=5e-5"),
)


def main(*, data_dir: str, output: str, wheel: str | None = None):
    """Trains, and measures on dev and on the tests.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`.
    """
    corpus, questions = f"{data_dir}/corpus.jsonl.gz", f"{output}/questions"
    few = _sample(data_dir, corpus, questions)
    graph = realm.Graph()
    start = graph.add(
        realm.Init(from_="minilm", wheel=wheel, output=f"{output}/start")
    )
    # Its vocabulary decides what blocks are made of.
    graph.run()
    over = _index(graph, start, corpus, output)
    model = start
    for name, learned_from, settings in (
        ("read", f"{questions}/all.jsonl", _READ),
        ("choose", few, _CHOOSE),
    ):
        model = graph.add(
            realm.FineTune(
                recipe="quickstart",
                set=(*_COMMON, *settings),
                model=model,
                **over,
                questions=learned_from,
                dev=f"{questions}/dev.jsonl",
                output=f"{output}/{name}",
            )
        )
    evaluations = {
        retriever: _evaluate(
            graph,
            {"model": model, **over, "retriever": retriever},
            questions,
            f"{output}/{retriever}",
        )
        for retriever in _RETRIEVERS
    }
    graph.run()
    return {
        retriever: {name: each.metrics for name, each in of_retriever.items()}
        for retriever, of_retriever in evaluations.items()
    }


def _sample(data_dir, corpus, questions):
    """Writes files of questions; the path of those that are chosen from."""
    if not os.path.exists(f"{questions}/all.jsonl"):
        sample = f"{os.path.dirname(__file__)}/sample_questions.py"
        subprocess.run(
            [
                *(sys.executable, sample, "--corpus", corpus),
                *("--questions", f"{data_dir}/questions"),
                *("--output", questions),
            ],
            check=True,
        )
    few = f"{questions}/train2k.jsonl"
    with open(f"{questions}/train.jsonl") as file, open(few, "w") as chosen:
        chosen.writelines(
            line for number, line in enumerate(file, 1) if number % 5 < 2
        )
    return few


def _index(graph, start, corpus, output):
    blocks = graph.add(
        realm.Chunk(
            vocab=start.vocabulary, output=f"{output}/blocks", input=corpus
        )
    )
    rows = graph.add(
        realm.Embed(model=start, blocks=blocks, output=f"{output}/emb")
    )
    index = graph.add(
        realm.BuildIndex(
            embeddings=rows, kind="brute_force", output=f"{output}/index"
        )
    )
    return {"blocks": blocks, "index": index}


def _evaluate(graph, asked, questions, output):
    """Name of a set to its evaluation, with what is fitted on dev."""
    dev = graph.add(
        realm.Evaluate(
            **asked,
            questions=f"{questions}/dev.jsonl",
            calibrate=True,
            output=f"{output}-dev",
        )
    )
    tests = {
        name: graph.add(
            realm.Evaluate(
                **asked,
                questions=f"{questions}/{name}.jsonl",
                calibration=dev,
                output=f"{output}-{name}",
            )
        )
        for name in _TESTS
    }
    return {"dev": dev, **tests}


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
