"""`realm retrieve`, and what other programs make of its files."""

import json
import pathlib

import ir_measures
import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.evaluation import run_files
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.retrieve import Retrieve
from realm_tf.retrieval import retrievers

QUERIES = [
    {"_id": "q1", "text": "Where was Ada?", "answer": ["London"]},
    {"_id": "q2", "text": "what is the river of rome?", "answer": ["tiber"]},
    {"_id": "q3", "text": " ", "answer": ["grey"]},
]


@pytest.fixture
def world(tmp_path, model_dir, blocks_dir, brute_force_index_dir):
    questions = tmp_path / "queries.jsonl"
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in QUERIES))
    return {
        "model": model_dir,
        "blocks": blocks_dir,
        "index": brute_force_index_dir,
        "questions": str(questions),
        "output": str(tmp_path / "run"),
    }


@pytest.fixture
def corpus(world):
    return Corpus.load(world["model"], world["blocks"], world["index"])


def _evaluate(world, tmp_path, **options):
    """An evaluation of the world; by default with the run's ranking."""
    given = {**world, "output": str(tmp_path / "evaluation")}
    return Evaluate(**given, **{"retriever": world["output"], **options}).run()


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_a_run_has_what_was_found(world, corpus):
    Retrieve(**world, form="trec").run()
    scores, block_ids = retrievers.Dense(corpus).search(
        [row["text"] for row in QUERIES], 11
    )
    rows = [line.split() for line in _read(world["output"]).splitlines()]
    assert [row[0] for row in rows] == ["q1"] * 11 + ["q2"] * 11
    for place, (query, q0, block, rank, score, run) in enumerate(rows):
        row, column = divmod(place, 11)
        assert (query, q0, run) == (QUERIES[row]["_id"], "Q0", "realm")
        assert int(block) == block_ids[row, column] and int(rank) == column + 1
        assert np.float32(score) == scores[row, column]


def test_equal_scores_are_read_in_the_order_of_their_ranks(tmp_path):
    documents = [("a", 2.0), ("c", 1.0), ("b", 1.0), ("d", 1.0 - 1e-12)]
    path = tmp_path / "run"
    path.write_text(run_files.trec([("q", documents), ("r", documents[1:])]))
    scores = {"q": [], "r": []}
    for found in ir_measures.read_trec_run(str(path)):
        scores[found.query_id].append(np.float32(found.score))
    for falling in scores.values():
        assert (np.diff(falling) < 0).all()
        assert falling[-1] == pytest.approx(1.0, abs=1e-6)


def test_other_programs_measure_what_evaluation_measures(world, tmp_path):
    qrels = str(tmp_path / "qrels")
    Retrieve(**world, form="trec", qrels=qrels, retriever="hybrid").run()
    found = ir_measures.calc_aggregate(
        [ir_measures.Success @ 1, ir_measures.Success @ 5],
        list(ir_measures.read_trec_qrels(qrels)),
        list(ir_measures.read_trec_run(world["output"])),
    )
    metrics = _evaluate(
        world, tmp_path, retriever="hybrid", num_reader_blocks=0
    )
    # It leaves out the question for which nothing was found.
    for k, value in ((1, "answer_recall@1"), (5, "answer_recall@5")):
        assert found[ir_measures.Success @ k] * 2 == pytest.approx(
            metrics.metrics[value] * 3, abs=1e-4
        )


def test_articles_are_ranked_by_their_best_blocks(world, corpus):
    blocks = Blocks(world["blocks"])
    Retrieve(**world, form="trec", of="articles").run()
    rows = [line.split() for line in _read(world["output"]).splitlines()]
    articles = [block.article_id for block in blocks.read()]
    scores, block_ids = retrievers.Dense(corpus).search(
        [QUERIES[0]["text"]], len(articles)
    )
    best = {}
    for block, score in zip(block_ids[0].tolist(), scores[0], strict=True):
        best[articles[block]] = max(best.get(articles[block], -np.inf), score)
    expected = sorted(best, key=best.get, reverse=True)
    assert [row[2] for row in rows if row[0] == "q1"] == expected


def test_a_query_of_beir_does_not_find_itself():
    rows = np.arange(3), np.array([3.0, 2.0, 1.0])
    names = ["q1", "a", "q1"]
    asked = [
        Question("?", (), line=line)
        for line in ({"_id": "q1"}, {"_id": "q2"}, {"id": "q1"})
    ]
    found = [run_files.Found(each.id_at(0), each, *rows) for each in asked]
    ranked = [
        [name for name, _ in documents]
        for _, documents in run_files.ranked(found, names)
    ]
    assert ranked == [["a"], ["q1", "a"], ["q1", "a"]]
    assert len(run_files.ranked(found, None)[0][1]) == 3


def test_dprs_json_says_which_block_holds_an_answer(world, corpus):
    Retrieve(**world, form="dpr").run()
    rows = json.loads(_read(world["output"]))
    assert [row["question"] for row in rows] == [row["text"] for row in QUERIES]
    assert [len(row["ctxs"]) for row in rows] == [11, 11, 0]
    for row in rows:
        for each in row["ctxs"]:
            block_id = int(each["id"])
            assert each["text"] == corpus.records.texts[block_id]
            assert each["title"] == corpus.records.titles[block_id]
            (answer,) = row["answers"]
            expected = answer.lower() in each["text"].lower()
            assert each["has_answer"] == expected
    assert any(each["has_answer"] for row in rows for each in row["ctxs"])


def test_nothing_is_searched_that_cannot_be_written(world, tmp_path):
    written = Retrieve(**world, form="trec")
    written.run()
    before = _read(world["output"])
    missing = str(tmp_path / "none" / "q")
    for changes, complaint in (
        ({}, "run exists already"),
        ({"output": str(tmp_path)}, "exists already"),
        ({"output": missing}, "--output: the directory .*none does not exist"),
        (
            {"output": f"{tmp_path}/new", "qrels": world["questions"]},
            "queries.jsonl exists already. Remove it or choose another --qrels",
        ),
    ):
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(InputError, match=complaint),
        ):
            patch.setattr(Corpus, "load", None)
            Retrieve(**{**world, **changes}, form="trec").run()
    assert _read(world["output"]) == before


@pytest.mark.parametrize(
    "form", ["trec", pytest.param("dpr", marks=pytest.mark.slow)]
)
def test_what_was_written_is_read_from(world, tmp_path, form):
    """Answers from a file of the model's own are the model's own."""
    Retrieve(**world, form=form).run()
    found = []
    for name, retriever in (("own", "realm"), ("given", world["output"])):
        made = _evaluate(world, tmp_path / name, retriever=retriever)
        found.append((made.metrics, made.predictions))
    (own, own_rows), (given, given_rows) = found
    assert given == own
    for wanted, row in zip(own_rows, given_rows, strict=True):
        for name in ("question", "prediction", "block_id", "retrieved"):
            assert row[name] == wanted[name], name
        assert row["score"] == pytest.approx(wanted["score"], abs=1e-4)


def test_its_recall_is_its_own(world, tmp_path):
    """Block 1 holds no answer of q2."""
    pathlib.Path(world["output"]).write_text("q2 Q0 1 1 0.5 any\n")
    made = _evaluate(world, tmp_path, num_reader_blocks=0)
    assert made.metrics["answer_recall@20"] == 0
    assert set(made.parents) == {"model", "index", "questions", "ranking"}


def test_fewer_blocks_and_no_order(world, tmp_path):
    """Scores decide, and where nothing was found there is no answer."""
    pathlib.Path(world["output"]).write_text(
        "q2 Q0 3 1 0.5 any\nq2 Q0 1 2 7 any\n"
    )
    made = _evaluate(world, tmp_path, calibrate=True)
    nothing, rows, blank = made.predictions
    assert (nothing["prediction"], blank["prediction"]) == ("", "")
    assert rows["retrieved"] == [1, 3] and nothing["retrieved"] == []
    assert rows["prediction"] != ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 Q0 0 1 0.5\n", "line 1 is no .*: expected lines `QUERY Q0 BLOCK"),
        ("q1 Q0 0 1 2 x\nq1 Q0 doc-a 1 0.5 x\n", "line 2 is no .*'doc-a'"),
        ("q1 Q0 0 1 2 x\n\n", "line 2 is no"),
        ("q1 Q0 0 1 nan x\n", "line 1 is no .*score nan"),
        ("q1 Q0 0 1 -inf x\n", "line 1 is no .*score -inf"),
        ("\ufeffq1 Q0 999 1 0.5 any\n", "block 999, and there are"),
        ("q9 Q0 0 1 0.5 any\n", "none of these 3 questions: their ids"),
        ('[{"question": "?", "ctxs": [{}]}]', "question 1 is no .*'id'"),
        ('[{"question": "?", "ctxs": []}]', "their texts are others"),
        ("[", "JSONDecodeError"),
    ],
)
def test_a_ranking_that_is_none_is_refused(world, tmp_path, text, message):
    pathlib.Path(world["output"]).write_text(text)
    with pytest.raises(InputError, match=message):
        _evaluate(world, tmp_path)
    assert not (tmp_path / "evaluation").exists()


def test_articles_are_not_for_dprs_json(world):
    with pytest.raises(InputError, match="--of is not for --to dpr"):
        Retrieve(**world, form="dpr", of="articles").run()


@pytest.mark.parametrize(
    ("ids", "message"),
    [(["a", "a"], "Two questions have the id a"), (["a b"], "white space")],
)
def test_ids_that_a_run_cannot_hold(ids, message):

    asked = [Question("?", (), line={"id": each}) for each in ids]
    with pytest.raises(InputError, match=message):
        run_files.search(None, asked, 5)


def test_ids_of_articles_have_no_white_space(world, tmp_path, vocabulary_path):
    page = tmp_path / "travel policy.md"
    page.write_text("# Travel\n\n## Hotels: rates\n\nOslo is 160.\n")
    blocks = Chunk(
        input=(str(page),),
        vocab=vocabulary_path,
        output=str(tmp_path / "blocks"),
    ).run()
    (name,) = run_files.article_ids(blocks)
    assert name == f"{tmp_path}/travel%20policy.md#Hotels:%20rates"
