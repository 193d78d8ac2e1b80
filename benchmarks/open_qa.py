"""The package's reader over 50,000 passages of Wikipedia.

    python benchmarks/open_qa.py --data-dir DIR --output DIR

DIR is that of `sample_questions.py`: corpus.jsonl.gz and a folder questions. MiniLM's
towers find the blocks, with BM25 or alone. Dev fits the weights of retrieval and of BM25
for both.
"""

import json
import pathlib

import runs
import sample_questions
import tyro

import realm_tf as realm

_RETRIEVERS = ("hybrid", "realm")
_ASKED = ("nq_open", "squad_open", "webquestions", "curatedtrec")


def main(
    *,
    data_dir: str,
    output: str,
    model: str | None = None,
    wheel: str | None = None,
):
    """Measures on dev and on the tests.

    Args:
        data_dir: corpus and questions.
        output: where everything is kept.
        model: model directory, with MiniLM's towers (if not given: the package's
            own).
        wheel: that of `realm init --wheel`.
    """
    corpus, questions = f"{data_dir}/corpus.jsonl.gz", f"{output}/questions"
    sample_questions.main(
        questions=pathlib.Path(data_dir, "questions"),
        corpus=pathlib.Path(corpus),
        output=pathlib.Path(questions),
    )
    steps = runs.Runs(output)
    if model is None:
        start = steps.add(
            realm.Init, "start", from_="minilm", reader="trained", wheel=wheel
        )
        # Its vocabulary decides the wordpieces of the blocks.
        steps.graph.run()
    else:
        start = realm.Model(model)
    blocks = steps.add(
        realm.Chunk, "blocks", input=corpus, vocab=start.vocabulary
    )
    found = {
        "model": start,
        "blocks": blocks,
        "index": steps.index(start, blocks),
    }

    def evaluate(retriever, name, **options):
        return steps.add(
            realm.Evaluate,
            f"{retriever}-{name}",
            questions=f"{questions}/{name}.jsonl",
            retriever=retriever,
            **found,
            **options,
        )

    evaluations = {}
    for retriever in _RETRIEVERS:
        dev = evaluate(retriever, "dev", calibrate=True)
        evaluations[retriever] = {"dev": dev} | {
            name: evaluate(retriever, name, calibration=dev) for name in _ASKED
        }
    steps.graph.run()
    return {
        retriever: {name: each.metrics for name, each in of_retriever.items()}
        for retriever, of_retriever in evaluations.items()
    }


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
