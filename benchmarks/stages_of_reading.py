"""A reader that learns on clozes, to read, then to choose; the package's own.

    python benchmarks/stages_of_reading.py --data-dir DIR --output DIR

DIR is as `sample_questions.py` wants it: corpus.jsonl.gz and a folder questions.
MiniLM's towers stay as they are. The reader first learns from cloze questions of
the corpus, which no human made, then from the gold block of each training question,
then from three blocks of each. Weights of retrieval and of BM25 are fitted on dev,
for each retriever. What is done is kept in the output.
"""

import json
import os
import subprocess
import sys

import tyro

import realm_tf as realm

_RETRIEVERS = ("hybrid", "bm25", "realm")
_ASKED = ("nq_open", "squad_open", "webquestions", "curatedtrec", "further_dev")
_COMMON = ("retriever=hybrid", "read_titles=true", "dropout=0")
_ONE_BLOCK = (
    *("batch_size=16", "gold=only", "num_reader_blocks=1"),
    *("learning_rate=2e-4", "num_epochs=1"),
)
_CLOZE = (*_ONE_BLOCK, "num_candidates=50")
_READ = (*_ONE_BLOCK, "num_candidates=100")
_CHOOSE = (
    *("batch_size=8", "gold=read", "num_candidates=50"),
    *("num_reader_blocks=3", "learning_rate=5e-5", "num_epochs=1"),
)


def main(*, data_dir: str, output: str, wheel: str | None = None):
    """Trains, and measures on dev and on the tests.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`.
    """
    corpus, questions = f"{data_dir}/corpus.jsonl.gz", f"{output}/questions"
    _sample(data_dir, corpus, questions)
    graph = realm.Graph()
    start = graph.add(
        realm.Init(from_="minilm", wheel=wheel, output=f"{output}/start")
    )
    # Its vocabulary decides what blocks are made of.
    graph.run()
    over = _index(graph, start, corpus, output)
    model = start
    dev, asked = f"{questions}/dev.jsonl", f"{questions}/all.jsonl"
    for name, learned_from, settings, measured_on in (
        ("cloze", _clozes(graph, over["blocks"], output), _CLOZE, dev),
        ("read", asked, _READ, dev),
        # Measured below, when weights are fitted.
        ("choose", asked, _CHOOSE, None),
    ):
        model = graph.add(
            realm.FineTune(
                recipe="quickstart",
                set=(*_COMMON, *settings),
                model=model,
                **over,
                questions=learned_from,
                dev=measured_on,
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
    """Writes files of questions."""
    if os.path.exists(f"{questions}/all.jsonl"):
        return
    sample = f"{os.path.dirname(__file__)}/sample_questions.py"
    subprocess.run(
        [
            *(sys.executable, sample, "--corpus", corpus),
            *("--questions", f"{data_dir}/questions"),
            *("--output", questions),
        ],
        check=True,
    )


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


def _clozes(graph, blocks, output):
    annotated = graph.add(
        realm.Annotate(
            blocks=blocks, tagger="rules", output=f"{output}/annotated"
        )
    )
    operation = realm.MakeClozeQuestions(
        corpus=annotated, num_questions=26_000, output=f"{output}/clozes"
    )
    graph.add(operation)
    return operation.questions


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
    others = {
        name: graph.add(
            realm.Evaluate(
                **asked,
                questions=f"{questions}/{name}.jsonl",
                calibration=dev,
                output=f"{output}-{name}",
            )
        )
        for name in _ASKED
    }
    return {"dev": dev, **others}


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
