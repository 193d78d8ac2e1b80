"""A reader that learns in stages: the reader of the package.

    python benchmarks/stages_of_reading.py --data-dir DIR --output DIR

DIR is that of `sample_questions.py`, corpus.jsonl.gz and a folder questions, with
wiki.xml.bz2, an export of pages with tables. MiniLM's towers do not learn. The
reader learns from

1. cloze questions of the corpus, without any human label;
2. the gold block of each training question;
3. three blocks of each;
4. questions about rows of tables, then a quarter of the training questions and
   the scores of the reader of stage 3, so that it forgets nothing
   (--second-teacher adds those of another reader);
5. the documents and questions of organisations.py, and that quarter.

Dev fits the weights of retrieval and of BM25, for each retriever.
"""

import functools
import json
import pathlib

import organisations
import row_questions
import runs
import sample_questions
import tyro

import realm_tf as realm

_RETRIEVERS = ("hybrid", "bm25", "realm")
_ASKED = ("nq_open", "squad_open", "webquestions", "curatedtrec", "further_dev")
_COMMON = ("retriever=hybrid", "read_titles=true", "num_epochs=1")
_ONE_BLOCK = ("batch_size=16", "gold=only", "num_reader_blocks=1")
_FROM_MINILM = (*_ONE_BLOCK, "dropout=0", "learning_rate=2e-4")
_CLOZE = (*_FROM_MINILM, "num_candidates=50")
_READ = (*_FROM_MINILM, "num_candidates=100")
_CHOOSE = (
    *("batch_size=8", "gold=read", "num_candidates=50"),
    *("num_reader_blocks=3", "dropout=0", "learning_rate=5e-5"),
)
_ROWS = (
    *_ONE_BLOCK,
    *("num_candidates=50", "dropout=0.1", "learning_rate=5e-5"),
)


def main(
    *,
    data_dir: str,
    output: str,
    wheel: str | None = None,
    second_teacher: str | None = None,
):
    """Trains, and measures on dev and on the tests.

    Args:
        data_dir: corpus, pages and questions.
        output: where everything is kept.
        wheel: that of `realm init --wheel`.
        second_teacher: model directory. Ours learned from 140,860 clozes on a
            GPU.
    """
    corpus, questions = f"{data_dir}/corpus.jsonl.gz", f"{output}/questions"
    sample_questions.main(
        questions=pathlib.Path(data_dir, "questions"),
        corpus=pathlib.Path(corpus),
        output=pathlib.Path(questions),
    )
    steps = runs.Runs(output)
    start = steps.add(realm.Init, "start", from_="minilm", wheel=wheel)
    # Its vocabulary decides the wordpieces of the blocks.
    steps.graph.run()
    over, annotated = _search(steps, start, "", input=corpus)
    # Short blocks hold a few rows, as the table of a document does.
    over_tables, with_rows = _search(
        steps,
        start,
        "tables/",
        input=f"{data_dir}/wiki.xml.bz2",
        keep_tables=True,
        max_block_length=100,
    )
    clozes = steps.add(
        realm.PrepareQuestions, "clozes", form="cloze", corpus=annotated
    )
    steps.graph.run()
    rows = f"{output}/rows.jsonl"
    row_questions.write(with_rows, rows)
    every, quarter, dev = (
        f"{questions}/{name}.jsonl" for name in ("all", "quarter", "dev")
    )
    learn = functools.partial(_learn, steps, over)
    clozes = clozes.file("questions.jsonl")
    model = learn("cloze", start, clozes, _CLOZE, dev=dev)
    model = learn("read", model, every, _READ, dev=dev)
    # The last model is measured when weights are fitted.
    chosen = learn("choose", model, every, _CHOOSE)
    model = _learn(steps, over_tables, "rows", chosen, rows, _ROWS)
    teacher = (chosen, second_teacher) if second_teacher else (chosen,)
    model = learn("taught", model, quarter, _ROWS, teacher=teacher)
    steps.graph.run()
    model = organisations.learn(
        organisations.Searched(model, f"{output}/organisations", corpus),
        quarter,
    )
    evaluations = {
        retriever: _evaluate(steps, retriever, questions, model=model, **over)
        for retriever in _RETRIEVERS
    }
    steps.graph.run()
    return {
        retriever: {name: each.metrics for name, each in of_retriever.items()}
        for retriever, of_retriever in evaluations.items()
    }


def _learn(steps, over, name, model, learned_from, settings, **others):
    return steps.add(
        realm.FineTune,
        name,
        recipe="quickstart",
        set=(*_COMMON, *settings),
        model=model,
        **over,
        questions=learned_from,
        **others,
    )


def _search(steps, start, folder, **options):
    """Blocks with an index, and their passages."""
    vocab = start.vocabulary
    blocks = steps.add(realm.Chunk, f"{folder}blocks", vocab=vocab, **options)
    index = steps.index(start, blocks, f"{folder}index")
    annotated = steps.add(
        realm.Annotate, f"{folder}annotated", blocks=blocks, tagger="rules"
    )
    return {"blocks": blocks, "index": index}, annotated


def _evaluate(steps, retriever, questions, **searched):
    """Name of a set to its evaluation, with weights fitted on dev."""

    def evaluate(name, **options):
        return steps.add(
            realm.Evaluate,
            f"{retriever}-{name}",
            questions=f"{questions}/{name}.jsonl",
            retriever=retriever,
            **searched,
            **options,
        )

    dev = evaluate("dev", calibrate=True)
    others = {name: evaluate(name, calibration=dev) for name in _ASKED}
    return {"dev": dev, **others}


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
