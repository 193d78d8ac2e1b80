"""A reader that learns in stages; the package's own.

    python benchmarks/stages_of_reading.py --data-dir DIR --output DIR

DIR is as `sample_questions.py` wants it, corpus.jsonl.gz and a folder questions, and
has wiki.xml.bz2, an export of pages with tables. MiniLM's towers stay as they are.
The reader first learns from cloze questions of the corpus, which no human made, then
from the gold block of each training question, then from three blocks of each. Then
from questions about rows of tables, and, so that it forgets nothing else, from a
quarter of the training questions and what the reader before these rows thinks of
them, or, with --second-teacher, this one and another. Last, from the documents and
questions of organisations.py, and that quarter. Weights of retrieval and of BM25 are
fitted on dev, for each retriever. What is done is kept in the output.
"""

import dataclasses
import json
import os
import pathlib

import organisations
import row_questions
import sample_questions
import tyro

import realm_tf as realm
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.data.question_sets import prepare
from realm_tf.operations.operation import Operation

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
# Of the training questions, the rows are followed by every fourth.
_ONE_OF = 4


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
    _sample(data_dir, corpus, questions)
    graph = realm.Graph()
    start = graph.add(
        realm.Init(from_="minilm", wheel=wheel, output=f"{output}/start")
    )
    # Its vocabulary decides what blocks are made of.
    graph.run()
    over = _index(graph, start, realm.Chunk(input=corpus, **_of(start, output)))
    tables = f"{output}/tables"
    over_tables = _over_tables(graph, start, data_dir, tables)
    learned_from = {
        "clozes": _ask(graph, over["blocks"], output, _ask_clozes),
        "rows": _ask(graph, over_tables["blocks"], tables, _AskRows),
        "questions": f"{questions}/all.jsonl",
        "quarter": f"{questions}/quarter.jsonl",
        "dev": f"{questions}/dev.jsonl",
    }
    model = _train(
        graph, start, over, over_tables, learned_from, output, second_teacher
    )
    model = organisations.learn(
        graph,
        organisations.Searched(graph, model, f"{output}/organisations", corpus),
        learned_from["quarter"],
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


def _over_tables(graph, start, data_dir, output):
    # Short blocks hold a few rows, as a document's table does.
    chunk = realm.Chunk(
        input=f"{data_dir}/wiki.xml.bz2",
        keep_tables=True,
        max_block_length=100,
        **_of(start, output),
    )
    return _index(graph, start, chunk)


def _train(graph, start, over, over_tables, asked, output, second_teacher):
    """The stages; the last model of them."""

    def learn(name, model, learned_from, settings, over=over, **others):
        operation = realm.FineTune(
            recipe="quickstart",
            set=(*_COMMON, *settings),
            model=model,
            **over,
            questions=asked[learned_from],
            output=f"{output}/{name}",
            **others,
        )
        return graph.add(operation)

    dev = asked["dev"]
    model = learn("cloze", start, "clozes", _CLOZE, dev=dev)
    model = learn("read", model, "questions", _READ, dev=dev)
    # The last model is measured when weights are fitted.
    chosen = learn("choose", model, "questions", _CHOOSE)
    model = learn("rows", chosen, "rows", _ROWS, over_tables)
    teachers = (chosen, second_teacher) if second_teacher else (chosen,)
    return learn("taught", model, "quarter", _ROWS, teachers=teachers)


def _sample(data_dir, corpus, questions):
    """Writes files of questions."""
    if os.path.exists(f"{questions}/quarter.jsonl"):
        return
    sample_questions.main(
        questions=pathlib.Path(data_dir, "questions"),
        corpus=pathlib.Path(corpus),
        output=pathlib.Path(questions),
    )
    with open(f"{questions}/all.jsonl") as file:
        lines = file.readlines()[::_ONE_OF]
    with open(f"{questions}/quarter.jsonl", "w") as file:
        file.writelines(lines)


def _of(start, output):
    return {"vocab": start.vocabulary, "output": f"{output}/blocks"}


def _index(graph, start, chunk):
    output = os.path.dirname(chunk.output)
    blocks = graph.add(chunk)
    rows = graph.add(
        realm.Embed(model=start, blocks=blocks, output=f"{output}/emb")
    )
    index = graph.add(
        realm.BuildIndex(
            embeddings=rows, kind="brute_force", output=f"{output}/index"
        )
    )
    return {"blocks": blocks, "index": index}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AskRows(Operation):
    """Makes questions about the rows of tables in passages."""

    makes = QuestionSet

    corpus: Passages
    """directory of `realm annotate`"""
    output: str
    """directory to make"""

    @property
    def questions(self):
        return Questions(self.result.file("questions.jsonl"))

    def run(self):
        made = row_questions.make_row_questions(
            self.corpus.read(), num_questions=26_000
        )
        lines = prepare.lines(made)
        with self.write() as stage:
            write_text(stage.path("questions.jsonl"), lines)
            stage.metadata["fingerprint"] = fingerprints.fingerprint(lines)
        return self.result


def _ask_clozes(**options):
    return realm.PrepareQuestions(form="cloze", **options)


def _ask(graph, blocks, output, make_operation):
    annotated = graph.add(
        realm.Annotate(
            blocks=blocks, tagger="rules", output=f"{output}/annotated"
        )
    )
    operation = make_operation(corpus=annotated, output=f"{output}/clozes")
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
