"""Comparisons: what is kept and refused, and their numbers."""

import json
import shutil

import numpy as np
import pytest
import training_runs
from comparisons import TINY

from realm_tf import cli
from realm_tf.checkpoints import random_weights
from realm_tf.errors import InputError
from realm_tf.evaluation.ablations import results as ablation_results
from realm_tf.evaluation.ablations import tables
from realm_tf.models import model_directory
from realm_tf.operations.ablate import Ablate
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.fine_tune import FineTune
from realm_tf.operations.graph import Graph

# A masked-LM warm-up and pre-training of two steps each.
SET_PRETRAIN = [
    "num_steps=2",
    "masked_lm_steps=2",
    "masked_lm_batch_size=2",
    "masked_lm_window=8",
]
# Shares all but its encoder's pre-training with the first.
CELLS = ["orqa", "baseline_retriever+realm_encoder"]


@pytest.fixture(scope="module")
def world(tmp_path_factory, vocabulary_path, blocks_dir, questions_path):
    """A random model of one layer, blocks, corpus, questions."""
    root = tmp_path_factory.mktemp("ablations")
    loaded = random_weights.random(
        vocab=vocabulary_path,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        projection_dim=4,
        seed=1,
    )
    for variable in loaded.model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(25.0 * variable)
    model_directory.save(loaded, str(root / "model"))
    Annotate(
        output=str(root / "annotated"), tagger="rules", blocks=blocks_dir
    ).run()
    for name in ("nq.dev.jsonl", "nq.test.jsonl"):
        shutil.copy(questions_path, root / name)
    return {
        "model": str(root / "model"),
        "blocks": blocks_dir,
        "corpus": str(root / "annotated"),
        "train": [questions_path],
        "dev": str(root / "nq.dev.jsonl"),
        "test": [str(root / "nq.test.jsonl")],
    }


def _ablate(world, output, **changes):
    given = {
        **world,
        **TINY,
        "suite": "table2",
        "seeds": [0],
        "set_pretrain": SET_PRETRAIN,
        "set_finetune": ["num_epochs=1"],
        **changes,
    }
    return Ablate(output=output, **given).run()


def test_what_cannot_be_compared_is_refused(world, tmp_path):
    output = tmp_path / "output"
    (tmp_path / "other").mkdir()
    twin = str(tmp_path / "other" / "nq.test.json")
    shutil.copy(world["test"][0], twin)
    (tmp_path / "bad.jsonl").write_text('{"question": "Where?"}\n')
    for arguments, complaint in (
        ({"cells": ["realm", "bm25"]}, "Received: bm25"),
        ({"seeds": [1, 1]}, "--seeds must be different .* Received: 1 1"),
        ({"seeds": [-1]}, "Received: -1"),
        ({"test": [*world["test"], twin]}, "have one name"),
        ({"dev": str(tmp_path / "bad.jsonl")}, 'line 1 lacks "answer"'),
        ({"dev": "nowhere.jsonl"}, "nowhere.jsonl does not exist"),
        ({"model": world["blocks"]}, "holds 'blocks', expected 'model'"),
        ({"set_pretrain": ["num_steps=0"]}, "leaves nothing to compare"),
        ({"set_finetune": ["refresh_every=3"]}, "moves the block tower"),
        ({"set_ict": ["stale=1"]}, "--set-ict: --set stale=1"),
        # What only a later step reads.
        ({"set_finetune": ["retriever=bm25"]}, "train_query_tower=false"),
        ({"set_finetune": ["gold=read"]}, "read_an_answer=true"),
        ({"set_finetune": ["max_joint_length=600"]}, "max_joint_length=600"),
        ({"set_pretrain": ["max_joint_length=600"]}, "max_joint_length=600"),
    ):
        with pytest.raises(InputError, match=complaint):
            _ablate(world, output, **arguments)
    with pytest.raises(InputError, match="is a file"):
        _ablate(world, tmp_path / "bad.jsonl")
    with pytest.raises(InputError, match="not on a local disk"):
        _ablate(world, "gs://bucket/output")
    assert not output.exists()


def test_results_are_written_after_each_seed(world, tmp_path, monkeypatch):
    done, written = [], []

    def run(graph, on_done):
        for step in graph.steps:
            done.append(step.operation.result)
            on_done(step)

    def collect(given, graph, cells):
        assert set().union(*(cell.measured for cell in cells)) <= set(done)
        return {"seeds": sorted({cell.seed for cell in cells})}

    def write(results, suite, output):
        written.append((dict(results), len(done)))

    monkeypatch.setattr(Graph, "run", run)
    monkeypatch.setattr(ablation_results, "collect", collect)
    monkeypatch.setattr(tables, "write", write)
    results = _ablate(world, tmp_path / "output", seeds=[3, 1, 2])
    found = [one["seeds"] for one, _ in written]
    assert found == [[3], [1, 3], [1, 2, 3]]
    assert results == written[-1][0]
    # Not at the end, all at once.
    numbers = [number for _, number in written]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == len(done)


@pytest.mark.slow
def test_a_comparison_that_was_stopped_goes_on(
    world, tmp_path, monkeypatch, capsys
):
    output = tmp_path / "output"

    def times():
        """When each stage was completed."""
        return {
            path.parent.name: path.stat().st_mtime_ns
            for path in output.glob("*/COMPLETED")
        }

    def metrics(name):
        return json.loads((output / name / "metrics.json").read_text())

    def stop(operation):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FineTune, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            _ablate(world, str(output), cells=CELLS)
    before = times()
    assert {"warm-up", "ict"} <= set(before)
    results = _ablate(world, str(output), cells=CELLS)
    after = times()
    assert {name: after[name] for name in before} == before
    # All of it is there, and nothing is made again.
    assert _ablate(world, str(output), cells=CELLS) == results
    assert times() == after
    stored = json.loads((output / "results.json").read_text())
    assert stored == json.loads(json.dumps(results))
    # Both have the towers that ICT left.
    recall = metrics("zero-shot-ict-nq.test")["answer_recall@5"]
    for name in CELLS:
        found = metrics(f"evaluation-{name}-0-nq.test")
        seed = results["systems"][name]["seeds"]["0"]["metrics"]["nq.test"]
        assert {k: seed[k] for k in found} == found
        assert seed["zero_shot_answer_recall@5"] == recall
        summary = results["summary"]["nq.test"][name]
        for metric, value in (
            ("exact_match", found["exact_match"]),
            ("zero_shot_answer_recall@5", recall),
        ):
            expected = dict.fromkeys(("mean", "low", "high"), value)
            assert summary[metric] == expected
    assert (output / "results.png").stat().st_size > 10_000
    # As a command.
    arguments = ["ablate", "--suite", "table2", "--output", str(output)]
    for name in ("model", "blocks", "corpus", "dev"):
        arguments += [f"--{name}", world[name]]
    for name in ("pretrain", "ict", "dpr", "finetune"):
        arguments += [f"--{name}-recipe", "tiny"]
    arguments += ["--train", *world["train"], "--test", *world["test"]]
    arguments += ["--seeds", "0", "--cells", *CELLS, "--plan"]
    arguments += ["--set-pretrain", *SET_PRETRAIN]
    arguments += ["--set-finetune", "num_epochs=1"]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "16 of 16 steps are done."
    assert lines[0] == "[1/16] packed-blocks: done"
    assert cli.main([*arguments, "--set-ict", "num_steps=3"]) == 2
    error = capsys.readouterr().err
    assert "ict was made with num_steps=7 (now 3)" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_retrievers_with_one_reader_are_measured(world, tmp_path):
    output = tmp_path / "output"
    cells = ["bm25", "start", "start+query_tower"]
    results = _ablate(
        world,
        str(output),
        suite="table1",
        cells=cells,
        seeds=[0, 1],
        set_finetune=["num_epochs=1", "train_reader=false"],
    )
    readers = [
        training_runs.values(model_directory.load(str(path)).model.reader)
        for path in (world["model"], *sorted(output.glob("finetuned-*")))
    ]
    assert len(readers) == 3
    for tuned in readers[1:]:
        for name, value in readers[0].items():
            np.testing.assert_array_equal(tuned[name], value)
    # What no seed changes was measured once, and counts for each.
    names = {path.name for path in output.glob("evaluation-*")}
    assert names == {
        *("evaluation-bm25-nq.test", "evaluation-start-nq.test"),
        *(f"evaluation-start+query_tower-{seed}-nq.test" for seed in (0, 1)),
    }
    for cell in cells:
        assert set(results["systems"][cell]["seeds"]) == {"0", "1"}
    one, two = results["systems"]["bm25"]["seeds"].values()
    assert one["metrics"] == two["metrics"]
