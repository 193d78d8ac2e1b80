"""Evaluation: what it writes, recomputed from the files alone."""

import json
import os
import re

import numpy as np
import pytest

from realm_tf import cli
from realm_tf.answering import calibration
from realm_tf.answering import relevance_weight
from realm_tf.answering.closed_book import ClosedBook
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.operations.evaluate import Evaluate
from realm_tf.operations.graph import Graph
from realm_tf.retrieval import retrievers
from realm_tf.text import answers

ASKED = [
    "Where was Ada?",
    "What is the river of Rome?",
    "Who wrote music?",
    "What is grey?",
    "When was it cold?",
    "",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir, brute_force_index_dir):
    """Directories, and questions of which some are answered rightly.

    The model is random: what it says is made an accepted answer of the first
    question (in other words), half of the second's, a pattern of the third.
    """
    root = tmp_path_factory.mktemp("evaluation")
    corpus = Corpus.load(model_dir, blocks_dir, brute_force_index_dir)
    said = [p.answer for p in Predictor(corpus).predict(ASKED)]
    answers = [
        ["nobody", f"The {said[0].upper()}!"],
        [f"{said[1]} egypt"],
        [re.escape(said[2][:2]), "("],
        ["zebra"],
        ["1969", "1750"],
        ["London"],
    ]
    lines = [
        {"question": question, "answer": answers[number], "id": number}
        for number, question in enumerate(ASKED)
    ]
    lines[2]["answer_type"] = "regex"
    for number, title, sentence in (
        (0, "Ada", "Ada was\u00a0in  London."),
        (1, "Rome", "The Tiber is the river of Rome."),
        # Of another article; of none.
        (3, "Ada", "The Moon is grey."),
        (4, "Etna", ""),
    ):
        lines[number]["evidence"] = {"title": title, "sentence": sentence}
    questions = root / "questions.jsonl"
    questions.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {
        "model": model_dir,
        "blocks": blocks_dir,
        "index": brute_force_index_dir,
        "questions": str(questions),
        "root": root,
        "corpus": corpus,
    }


def _score(line):
    """Exact match and F1; a pattern has no words to share."""
    said, accepted = line["prediction"], line["answer"]
    if line.get("answer_type") == "regex":
        return [float(answers.is_correct(said, accepted, "regex"))] * 2
    exact = float(answers.exact_match(said, accepted))
    return exact, answers.f1_score(said, accepted)


def _contains(text, line):
    kind = line.get("answer_type", "string")
    return answers.AnswerFinder([text]).contains(0, line["answer"], kind)


def _rank(block_ids, texts, line):
    """At which rank a block holds an answer, from 1; infinite if at none."""
    ranks = enumerate(block_ids, 1)
    return next((n for n, b in ranks if _contains(texts[b], line)), np.inf)


def _evaluate(world, name, **changes):
    names = ("model", "blocks", "index", "questions")
    given = {key: world[key] for key in names} | changes
    return Evaluate(**given, output=world["root"] / name).run()


@pytest.fixture(scope="module")
def evaluated(world):
    return _evaluate(world, "evaluation")


def test_evaluations_of_a_list_open_the_corpus_once(world, monkeypatch):
    load, opened = Corpus.load, []

    def counted(*arguments, **options):
        opened.append(arguments)
        return load(*arguments, **options)

    monkeypatch.setattr(Corpus, "load", counted)
    names = ("model", "blocks", "index", "questions")
    graph = Graph()
    listed = {
        name: graph.add(
            Evaluate(
                **{key: world[key] for key in names},
                retriever=name,
                output=world["root"] / f"listed-{name}",
            )
        )
        for name in ("bm25", "realm")
    }
    graph.run()
    assert len(opened) == 1
    for name, found in listed.items():
        alone = _evaluate(world, f"alone-{name}", retriever=name)
        for one, other in zip(
            found.predictions, alone.predictions, strict=True
        ):
            assert one["prediction"] == other["prediction"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)
    assert len(opened) == 3


def test_metrics_recomputed_from_the_predictions(world, evaluated):
    metrics, lines = evaluated.metrics, evaluated.predictions
    texts = world["corpus"].records.texts
    assert [line["question"] for line in lines] == ASKED
    wanted = {}
    wanted["exact_match"], wanted["f1"] = map(
        list, zip(*map(_score, lines), strict=True)
    )
    ranks = [_rank(line["retrieved"], texts, line) for line in lines]
    for k in (1, 5, 20):
        wanted[f"answer_recall@{k}"] = [float(rank <= k) for rank in ranks]
    for name, values in wanted.items():
        assert [line[name] for line in lines] == pytest.approx(values), name
        assert metrics[name] == pytest.approx(np.mean(values), abs=5e-5), name
    read = [rank <= 5 for rank in ranks]
    assert any(read) and not all(read)
    assert ["reading_accuracy" in line for line in lines] == read
    right = np.mean(np.array(wanted["exact_match"])[read])
    assert metrics["reading_accuracy"] == pytest.approx(right, abs=5e-5)
    # The random model is right where the answers say so, and only there.
    assert wanted["exact_match"] == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert wanted["f1"][0] == 1.0 and 0 < wanted["f1"][1] < 1
    # All 11 blocks are retrieved, except for the empty question.
    assert wanted["answer_recall@20"][4:] == [1.0, 0.0]


def test_the_block_that_a_question_names(world, evaluated):
    metrics, lines = evaluated.metrics, evaluated.predictions
    texts = world["corpus"].records.texts
    gold = [
        next(number for number, text in enumerate(texts) if sentence in text)
        for sentence in (
            "Ada was in London.",
            "The Tiber is the river of Rome.",
        )
    ]
    for k in (1, 5, 20):
        found = [gold[i] in lines[i]["retrieved"][:k] for i in range(2)]
        assert [lines[i][f"gold_recall@{k}"] for i in range(2)] == found
        assert metrics[f"gold_recall@{k}"] == np.mean(found)
    assert metrics["gold_recall@20"] == 1.0
    # Nobody knows where the other questions are answered.
    assert not any("gold_recall@1" in line for line in lines[2:])


def test_what_a_prediction_line_holds(world, evaluated):
    records = world["corpus"].records
    asked = [each.line for each in Questions(world["questions"])]
    predictions = Predictor(world["corpus"]).predict(ASKED)
    for line, question, prediction in zip(
        evaluated.predictions, asked, predictions, strict=True
    ):
        assert {name: line[name] for name in question} == question
        assert line["prediction"] == prediction.answer
        assert line["score"] == pytest.approx(prediction.score, abs=1e-4)
        assert line["block_id"] == prediction.block_id
        assert line["retrieved"] == prediction.retrieved
        if not question["question"]:
            assert line["title"] == line["text"] == line["url"] == ""
            assert line["candidates"] == []
            continue
        block = line["block_id"]
        assert line["title"] == records.titles[block]
        assert line["url"] == records.urls[block] != ""
        assert line["text"] == records.texts[block]
        start, limit = line["start"], line["limit"]
        assert line["text"][start:limit] == line["prediction"]
        assert len(line["candidates"]) == 5
        for found, candidate in zip(
            line["candidates"], prediction.candidates, strict=True
        ):
            assert found["block_id"] == candidate.block_id
            assert found["answer"] == candidate.answer


def test_the_files_and_their_metadata(world, evaluated):
    metrics = evaluated.metrics
    metadata = evaluated.metadata
    assert metadata["metrics"] == metrics
    assert sorted(os.listdir(evaluated)) == [
        *("COMPLETED", "metadata.json", "metrics.json"),
        *("predictions.jsonl", "report.html"),
    ]
    assert metadata["parents"] == {
        "model": Model(world["model"]).fingerprint,
        "index": Index(world["index"]).fingerprint,
        "questions": Questions(world["questions"]).fingerprint,
    }


def test_the_oracle_reads_blocks_with_an_answer_first(world, evaluated):
    found = _evaluate(world, "oracle", retriever="oracle")
    texts = world["corpus"].records.texts
    moved = 0
    for line, own in zip(found.predictions, evaluated.predictions, strict=True):
        # All 11 blocks; the model's order stays in both groups.
        expected = sorted(
            own["retrieved"], key=lambda b: not _contains(texts[b], line)
        )
        assert line["retrieved"] == expected
        moved += expected != own["retrieved"]
        assert [c["block_id"] for c in line["candidates"]] == expected[:5]
    assert moved
    metrics = found.metrics
    assert metrics["answer_recall@1"] == metrics["answer_recall@20"]


@pytest.mark.parametrize("name", ["bm25", "hybrid"])
def test_ranks_of_other_retrievers(world, name):
    """Each rank by searching the texts of what the retriever finds."""
    found = _evaluate(world, name, retriever=name, num_reader_blocks=0)
    metrics, lines = found.metrics, found.predictions
    corpus = world["corpus"]
    block_ids = retrievers.make(name, corpus).search(ASKED, 100)[1].tolist()
    for number, line in enumerate(lines):
        if not line["question"]:
            continue
        assert line["num_ranked"] == len(corpus.records)
        rank = _rank(block_ids[number], corpus.records.texts, line)
        assert line["answer_rank"] == (None if rank == np.inf else rank)
    for k in (1, 5, 20):
        ranks = [line["answer_rank"] or np.inf for line in lines]
        assert metrics[f"answer_recall@{k}"] == pytest.approx(
            np.mean([rank <= k for rank in ranks]), abs=1e-4
        )


def test_recall_alone_reads_no_block(world, evaluated):
    found = _evaluate(world, "recall", num_reader_blocks=0)
    assert not {"exact_match", "f1", "reading_accuracy"} & set(found.metrics)
    for line, read in zip(
        found.predictions, evaluated.predictions, strict=True
    ):
        assert line["retrieved"] == read["retrieved"]
        assert "prediction" not in line
    for name, value in found.metrics.items():
        assert evaluated.metrics[name] == value
    page = Path(found.file("report.html")).read_text()
    assert "answer recall@k" in page and "By question word" not in page
    with pytest.raises(InputError, match="holds no calibration"):
        _evaluate(world, "other", calibration=found)
    with pytest.raises(InputError, match="--calibrate is not for --num-reader"):
        _evaluate(world, "other", num_reader_blocks=0, calibrate=True)


def test_another_evaluations_calibration_is_used(world, evaluated):
    dev = _evaluate(world, "dev", calibrate=True)
    # Nothing else changes.
    assert dev.metrics == evaluated.metrics
    fitted = calibration.read(dev)
    # Each is asked a second time, without what answers it.
    assert fitted.questions == len(ASKED)
    calibrated = _evaluate(world, "calibrated", calibration=dev)
    before = evaluated.predictions
    for line, was in zip(calibrated.predictions, before, strict=True):
        assert line["prediction"] == was["prediction"]
        if not line["prediction"]:
            assert (line["confidence"], line["answered"]) == (0.0, False)
            continue
        assert line["confidence"] == pytest.approx(
            fitted.confidence(was["reader_score"])
        )
        assert line["answered"] == (
            line["confidence"] >= fitted.least_confidence
        )
        assert was["answered"] == (was["confidence"] >= 0.005)
    given = [line for line in calibrated.predictions if line["answered"]]
    metrics = calibrated.metrics
    assert metrics["answered"] == pytest.approx(
        len(given) / len(ASKED), abs=1e-4
    )
    wrong = np.mean([1 - line["exact_match"] for line in given] or [0])
    assert metrics["answered_wrong"] == pytest.approx(wrong, abs=1e-4)
    for options, message in (
        ({"calibrate": True}, "give one of them"),
        ({"retriever": "hybrid"}, "is of --retriever realm, not hybrid"),
    ):
        with pytest.raises(InputError, match=message):
            _evaluate(world, "other", calibration=dev, **options)


def test_retrieval_counts_as_fitted(world, evaluated, monkeypatch):
    weight = 3.0
    monkeypatch.setattr(relevance_weight, "fit", lambda *_: weight)
    dev = _evaluate(world, "weighed", calibrate=True)
    assert calibration.read(dev).relevance_weight == weight
    monkeypatch.undo()
    other = _evaluate(world, "as_weighed", calibration=dev)
    assert other.parameters["relevance_weight"] == weight
    for evaluation in (dev, other):
        for line, was in zip(
            evaluation.predictions, evaluated.predictions, strict=True
        ):
            changes = [
                (new["score"] - old["score"]) - (weight - 1) * old["log_prob"]
                for new, old in zip(
                    line["candidates"], was["candidates"], strict=True
                )
            ]
            if changes:
                np.testing.assert_allclose(changes, changes[0], atol=1e-4)
                best = max(line["candidates"], key=lambda c: c["score"])
                assert line["block_id"] == best["block_id"]


def test_without_a_retriever_the_masked_lm_answers(world, tmp_path):
    loaded = model_directory.load(world["model"])
    loaded.model.knowledge_augmented_encoder = KnowledgeAugmentedEncoder(
        loaded.model.reader.encoder
    )
    model = str(tmp_path / "model")
    model_directory.save(loaded, model)
    changes = {"model": model, "blocks": None, "index": None}
    found = _evaluate(world, "closed", retriever="none", **changes)
    assert found.parents == {
        "model": Model(model).fingerprint,
        "questions": Questions(world["questions"]).fingerprint,
    }
    lines = found.predictions
    said = ClosedBook(loaded).predict(ASKED)
    assert [line["prediction"] for line in lines] == [p.answer for p in said]
    assert lines[0]["block_id"] == -1 and lines[0]["text"] == ""
    with pytest.raises(
        InputError, match="--blocks is not for --retriever none"
    ):
        _evaluate(world, "other", retriever="none")
    with pytest.raises(InputError, match="--blocks and --index are needed"):
        _evaluate(world, "other", **changes)


def test_the_command_prints_the_metrics(world, evaluated, capsys):
    output = str(world["root"] / "command")
    found = Evaluation(output)
    arguments = ["evaluate", "--output", output]
    for name in ("model", "blocks", "index", "questions"):
        arguments += [f"--{name}", world[name]]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in lines[:-1]]
    assert cells[0] == ["metric", "mean", "95 %"]
    rows = {label: numbers for label, *numbers in cells[2:]}
    assert set(rows) == {
        name.replace("_", " ").replace("f1", "F1")
        for name in found.metrics
        if "_interval" not in name
    }
    low, high = evaluated.metrics["exact_match_interval"]
    assert rows["exact match"] == ["0.333", f"{low:.3f} to {high:.3f}"]
    assert rows["questions"] == ["6", ""]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-1] == f"{output}/report.html"
    assert cli.main(arguments) == 2
    assert "exists already" in capsys.readouterr().err


def test_wrong_arguments_are_refused(world, tmp_path):
    for name, value, message in (
        ("num_reader_blocks", -1, "--num-reader-blocks -1: expected 0 or more"),
        ("retriever", "hybird", "--retriever hybird: expected one of realm, "),
    ):
        with pytest.raises(InputError, match=message):
            _evaluate(world, "other", **{name: value})
    bad = tmp_path / "questions.jsonl"
    bad.write_text('{"question": "Where?"}\n')
    with pytest.raises(InputError, match='line 1 lacks "answer"'):
        _evaluate(world, "other", questions=bad)
    assert not (world["root"] / "other").exists()
    assert not (world["root"] / "other.partial").exists()
