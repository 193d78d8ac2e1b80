"""Comparisons of systems: their steps, and the numbers collected from them."""

import json
import os
import shutil

import numpy as np
import pytest
import stage_directories
import systems
import tiny_models

import realm_tf as realm
from realm_tf.answering import bootstrap
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain

# A masked-LM warm-up and pre-training of two steps each.
SET_PRETRAIN = (
    "num_steps=2",
    "masked_lm_steps=2",
    "masked_lm_batch_size=2",
    "masked_lm_window=8",
)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    recipes = {
        "pretrain": pretrain.RECIPES["tiny"].replace(refresh="sync"),
        "ict": ict.RECIPES["tiny"],
        "dpr": dpr.RECIPES["dpr_tiny"],
        "finetune": finetune.RECIPES["tiny"],
    }
    monkeypatch.setattr(systems, "RECIPES", recipes)


def _systems(root, **changes):
    """A comparison of directories that need not exist."""
    given = {
        name: os.path.join(root, name)
        for name in ("model", "blocks", "corpus", "output")
    }
    given |= {"train": ("none",), "dev": "none", "test": ("nq.jsonl",)}
    return systems.Systems(**(given | {"suite": "table2"} | changes))


@pytest.fixture
def list_all(tmp_path):
    """A function that returns the operations of a comparison by name."""

    def list_all(*, seeds=(0,), **changes):
        given = {"set_pretrain": SET_PRETRAIN, **changes}
        found = _systems(tmp_path, **given)
        for seed in seeds:
            found.add(seed)
        operations = found.steps.graph.operations.values()
        return {os.path.basename(each.output): each for each in operations}

    return list_all


def _read(operation, *names):
    """Names of the directories that an operation reads."""
    return [os.path.basename(getattr(operation, n).path) for n in names]


def test_the_steps_of_table_2_differ_as_their_names(list_all):
    found = list_all()
    recipe = systems.RECIPES["pretrain"].parse(SET_PRETRAIN)
    for name, change in (
        ("realm", {}),
        ("span_masks", {"mode": "random_span"}),
        ("stale_30x", {"refresh_every": 3000}),
    ):
        trained = found[f"pretrained-{name}-0"]
        assert trained.settings == recipe.replace(masked_lm_steps=0, **change)
        assert _read(trained, "model", "index") == ["warm-up", "index-start"]
    assert found["warm-up"].settings.num_steps == 0
    combined = found["combined-start+realm-0"]
    assert _read(combined, "towers", "reader") == [
        "model",
        "pretrained-realm-0",
    ]
    evaluated = found["evaluation-baseline_retriever+realm_encoder-0-nq"]
    assert _read(evaluated, "index") == ["index-start"]


def test_the_steps_of_table_1(list_all):
    found = list_all(suite="table1", test=("nq.test.jsonl", "nq.dev.jsonl.gz"))
    # No towers are measured before fine-tuning; REALM's model serves two.
    assert not [name for name in found if name.startswith("zero-shot")]
    for name, model, retriever in (
        ("bm25", "bm25", "bm25"),
        ("bm25+warm_up", "bm25+warm_up", "bm25"),
        ("start", "start", "realm"),
        ("realm", "realm", "realm"),
        ("hybrid", "realm", "hybrid"),
        ("start+bm25", "start", "hybrid"),
        ("realm_retriever+bm25", "realm_retriever", "hybrid"),
    ):
        fitted = found[f"calibration-{name}-0"]
        dev = found[f"finetuned-{model}-0"].dev
        assert fitted.questions == dev and fitted.calibrate
        for test in ("nq.test", "nq.dev"):
            evaluated = found[f"evaluation-{name}-0-{test}"]
            assert _read(evaluated, "model") == [f"finetuned-{model}-0"]
            assert evaluated.retriever == retriever
            # Weights are fitted on dev, once for all tests.
            assert evaluated.calibration == fitted.result
    # With the start's reader, and with that of the warm-up.
    inputs = {
        "bm25": ("model", "start"),
        "start": ("model", "start"),
        "start+query_tower": ("model", "start"),
        "orqa": ("ict", "ict"),
        "dpr": ("dpr-0", "dpr-0"),
        "realm_retriever": ("combined-realm-0+start", "realm-0"),
        "realm": ("pretrained-realm-0", "realm-0"),
        "bm25+warm_up": ("warm-up", "start"),
        "start+warm_up": ("warm-up", "start"),
        "orqa+warm_up": ("combined-ict+warm-up", "ict"),
        "dpr+warm_up": ("combined-dpr-0+warm-up", "dpr-0"),
    }
    tuned = [name for name in found if name.startswith("finetuned")]
    assert tuned == [f"finetuned-{name}-0" for name in inputs]
    for name, (before, index) in inputs.items():
        tuned = found[f"finetuned-{name}-0"]
        assert _read(tuned, "model", "index") == [before, f"index-{index}"]
        learns = name.startswith(("orqa", "start+query_tower", "realm"))
        assert tuned.settings.train_query_tower == learns
        retriever = "bm25" if "bm25" in name else "realm"
        assert tuned.settings.candidates.retriever == retriever


def test_retrievers_are_compared_with_one_reader(list_all):
    """A system that does not learn is not trained, and measured once."""
    cells = ("bm25", "start", "start+query_tower", "start+bm25", "dpr", "orqa")
    changes = {"suite": "table1", "set_finetune": ("train_reader=false",)}
    found = list_all(seeds=[0, 1], cells=cells, **changes)
    assert [name for name in found if name.startswith("finetuned")] == [
        f"finetuned-{name}-{seed}"
        for seed in (0, 1)
        for name in ("start+query_tower", "orqa")
    ]
    assert [name for name in found if name.startswith("evaluation")] == [
        *(f"evaluation-{name}-nq" for name in ("bm25", "start")),
        "evaluation-start+query_tower-0-nq",
        "evaluation-start+bm25-nq",
        *(f"evaluation-{name}-0-nq" for name in ("orqa", "dpr")),
        *(
            f"evaluation-{name}-1-nq"
            for name in ("start+query_tower", "orqa", "dpr")
        ),
    ]
    for name, model in (("bm25", "model"), ("dpr-1", "dpr-1")):
        assert _read(found[f"evaluation-{name}-nq"], "model") == [model]


# Exact matches of four questions, by system and seed, and recall@5 before
# fine-tuning.
TABLE_2 = {
    "realm": {0: ([1, 1, 1, 0], 0.75), 1: ([1, 1, 0, 0], 0.5)},
    "orqa": {0: ([1, 1, 0, 0], 0.25), 1: ([0, 1, 0, 0], 0.25)},
    "stale_30x": {0: ([0, 0, 0, 0], 0.5), 1: ([0, 1, 0, 0], 0.25)},
}


def _files(matches, recall):
    """The files of an evaluation in which an answer is always found."""
    found = {f"answer_recall@{k}": 1.0 for k in (5, 20, 100)}
    found["answer_recall@1"] = recall
    rows = [{"exact_match": float(match), **found} for match in matches]
    metrics = {"exact_match": float(np.mean(matches)), "questions": 4, **found}
    return {
        "metrics.json": json.dumps(metrics),
        "predictions.jsonl": "".join(
            json.dumps({"question": "?", "answer": ["x"], **row}) + "\n"
            for row in rows
        ),
    }


def _collect(root, suite, numbers):
    """Collects from directories that hold these numbers."""
    given = _systems(root, suite=suite, cells=tuple(numbers))
    cells = [*given.add(0), *given.add(1)]
    written = {}
    for cell in cells:
        matches, recall = numbers[cell.system["name"]][cell.seed]
        written[cell.evaluations["nq"]] = _files(matches, recall)
        for each in cell.zero_shot.values():
            metrics = {"answer_recall@5": recall, "questions": 4}
            written[each] = {"metrics.json": json.dumps(metrics)}
    for operation in given.steps.graph.operations.values():
        result = operation.result
        stage_directories.write(
            result.path, kind=result.kind, files=written.get(result, ())
        )
    return systems.collect(given, cells)


def test_means_and_ranges_over_seeds(tmp_path):
    results = _collect(tmp_path, "table2", TABLE_2)
    summary = results["summary"]["nq"]
    assert summary["realm"]["exact_match"] == dict(
        mean=0.625, low=0.5, high=0.75
    )
    assert summary["stale_30x"]["zero_shot_answer_recall@5"] == dict(
        mean=0.375, low=0.25, high=0.5
    )
    metrics = results["systems"]["orqa"]["1"]["nq"]
    assert metrics["exact_match"] == 0.25


def test_intervals_are_over_questions(tmp_path):
    """Of each question's mean over seeds."""
    random = np.random.default_rng(5)
    matches = random.integers(0, 2, (2, 60))
    numbers = {
        "start": {0: (matches[0].tolist(), 0.5), 1: (matches[1].tolist(), 0.5)},
        "realm": {0: ([1] * 60, 1.0), 1: ([1] * 60, 1.0)},
    }
    results = _collect(tmp_path, "table1", numbers)
    found = results["summary"]["nq"]["start"]["exact_match"]
    values = matches.mean(axis=0)
    wanted = bootstrap.summarize([{"mean": value} for value in values])
    low, high = wanted["mean_interval"]
    assert found == dict(mean=wanted["mean"], low=low, high=high)
    # All questions answered: nothing varies.
    assert results["summary"]["nq"]["realm"]["exact_match"] == dict(
        mean=1.0, low=1.0, high=1.0
    )
    assert results["differences"]["nq"].keys() == {"start"}
    found = results["differences"]["nq"]["start"]["exact_match"]
    assert found == bootstrap.paired_difference(values, np.ones(60))


@pytest.fixture(scope="module")
def world(
    tmp_path_factory, vocabulary_path, blocks_dir, annotated_dir, questions_path
):
    """A random model of one layer, blocks, corpus, questions."""
    root = tmp_path_factory.mktemp("systems")
    for name in ("nq.dev.jsonl", "nq.test.jsonl"):
        shutil.copy(questions_path, root / name)
    return {
        "model": tiny_models.save(vocabulary_path, str(root / "model"), seed=1),
        "blocks": blocks_dir,
        "corpus": annotated_dir,
        "train": (questions_path,),
        "dev": str(root / "nq.dev.jsonl"),
        "test": (str(root / "nq.test.jsonl"),),
        "set_pretrain": SET_PRETRAIN,
        "set_finetune": ("num_epochs=1",),
    }


def test_a_missing_questions_file_shows_at_once(world, tmp_path):
    given = {**world, "dev": "nowhere.jsonl"}
    with pytest.raises(realm.InputError, match="nowhere.jsonl does not exist"):
        _systems(tmp_path, **given).run()
    assert not (tmp_path / "output").exists()


@pytest.mark.slow
def test_a_stopped_comparison_continues(world, tmp_path, monkeypatch):
    # They share all but their reader's pre-training.
    given = {
        **world,
        "cells": ("orqa", "baseline_retriever+realm_encoder"),
        "seeds": (0,),
    }
    output = tmp_path / "output"

    def times():
        return {
            path.parent.name: path.stat().st_mtime_ns
            for path in output.glob("*/COMPLETED")
        }

    def metrics(name):
        return json.loads((output / name / "metrics.json").read_text())

    def stop(operation):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(realm.FineTune, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            _systems(tmp_path, **given).run()
    before = times()
    assert {"warm-up", "index-start"} <= set(before)
    results = _systems(tmp_path, **given).run()
    after = times()
    assert {name: after[name] for name in before} == before
    # All of it is there, and nothing is made again.
    assert _systems(tmp_path, **given).run() == results
    assert times() == after
    assert json.loads((output / "results.json").read_text()) == results
    # Both have the initial towers.
    recall = metrics("zero-shot-start-nq.test")["answer_recall@5"]
    for name in given["cells"]:
        found = metrics(f"evaluation-{name}-0-nq.test")
        seed = results["systems"][name]["0"]["nq.test"]
        assert {k: seed[k] for k in found} == found
        summary = results["summary"]["nq.test"][name]
        for metric, value in (
            ("exact_match", found["exact_match"]),
            ("zero_shot_answer_recall@5", recall),
        ):
            expected = dict.fromkeys(("mean", "low", "high"), value)
            assert summary[metric] == expected
    given["set_pretrain"] = (*SET_PRETRAIN, "masked_lm_steps=3")
    with pytest.raises(
        realm.InputError, match=r"warm-up was made with .*=2 \(now 3\)"
    ):
        _systems(tmp_path, **given).run()
