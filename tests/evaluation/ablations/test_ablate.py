"""Comparisons: what is kept and refused, and their numbers."""

import json
import os
import shutil

import pytest
from comparisons import TINY

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import random_weights
from realm_tf.configs import ablations as configs
from realm_tf.errors import InputError
from realm_tf.evaluation.ablations import results as ablation_results
from realm_tf.evaluation.ablations import tables
from realm_tf.operations.ablate import Ablate
from realm_tf.operations.annotate import Annotate
from realm_tf.operations.combine_models import CombineModels
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
        ({"set_ict": ["stale=1"]}, "--ict-recipe, --set-ict: --set stale=1"),
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


class _Made:
    """A comparison, stopped once on its way."""

    def __init__(self, world, output):
        self.output, self.world = output, world

    def path(self, name):
        return os.path.join(self.output, name)

    def times(self):
        """When each stage was completed."""
        return {
            name: os.stat(self.path(f"{name}/COMPLETED")).st_mtime_ns
            for name in os.listdir(self.output)
            if os.path.exists(self.path(f"{name}/COMPLETED"))
        }


@pytest.fixture(scope="module")
def made(world, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("made") / "output")
    made = _Made(world, output)
    combine, calls = CombineModels.run, []
    with pytest.MonkeyPatch.context() as patch:

        def stop(operation):
            """At the second, after REALM's pre-training."""
            calls.append(operation)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return combine(operation)

        patch.setattr(CombineModels, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            _ablate(world, output, cells=CELLS)
    made.before = made.times()
    made.results = _ablate(world, output, cells=CELLS)
    return made


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(made):
    assert {"warm-up", "ict", "pretrained-realm-0"} <= set(made.before)
    assert "finetuned-orqa+warm_up-0" not in made.before
    after = made.times()
    assert {name: after[name] for name in made.before} == made.before
    assert "evaluation-orqa-0-nq.test" in after
    assert "evaluation-baseline_retriever+realm_encoder-0-nq.test" in after
    # All of it is there, and nothing is made again.
    assert _ablate(made.world, made.output, cells=CELLS) == made.results
    assert made.times() == after


@pytest.mark.slow
def test_the_numbers_are_those_of_the_stages(made):
    results = made.results
    stored = json.loads(Path(made.path("results.json")).read_text())
    assert stored == json.loads(json.dumps(results))
    before = json.loads(
        Path(made.path("zero-shot-ict-nq.test/metrics.json")).read_text()
    )
    table = Path(made.path("results.md")).read_text()
    for name in CELLS:
        found = json.loads(
            Path(
                made.path(f"evaluation-{name}-0-nq.test/metrics.json")
            ).read_text()
        )
        seed = results["systems"][name]["seeds"]["0"]["metrics"]["nq.test"]
        assert {k: seed[k] for k in found} == found
        # Both have the towers that ICT left.
        assert seed["zero_shot_answer_recall@5"] == before["answer_recall@5"]
        summary = results["summary"]["nq.test"][name]
        for metric, value in (
            ("exact_match", found["exact_match"]),
            ("zero_shot_answer_recall@5", before["answer_recall@5"]),
        ):
            expected = dict.fromkeys(("mean", "low", "high"), value)
            assert summary[metric] == expected
        title, paper = {
            "orqa": ("Baseline (ORQA)", "*31.3* | *13.9*"),
            "baseline_retriever+realm_encoder": (
                "Baseline retriever + REALM encoder",
                "*35.3* | *13.9*",
            ),
        }[name]
        em, recall = (
            f"{100 * x:.1f} ({100 * x:.1f} to {100 * x:.1f})"
            for x in (found["exact_match"], before["answer_recall@5"])
        )
        assert f"| {title} | {em} | {recall} | {paper} |" in table
    assert os.path.getsize(made.path("results.png")) > 10_000


@pytest.mark.slow
def test_training_seconds_are_those_of_what_a_model_is_made_of(made):
    def seconds(*names):
        return pytest.approx(
            sum(artifact.read(made.path(name))["seconds"] for name in names),
            abs=0.1,
        )

    systems = made.results["systems"]
    assert systems["orqa"]["seeds"]["0"]["training_seconds"] == seconds(
        "warm-up", "ict", "finetuned-orqa+warm_up-0"
    )
    name = "baseline_retriever+realm_encoder"
    assert systems[name]["seeds"]["0"]["training_seconds"] == seconds(
        "warm-up", "ict", "pretrained-realm-0", f"finetuned-{name}-0"
    )


@pytest.mark.slow
def test_another_recipe_is_refused(made):
    times = made.times()
    with pytest.raises(
        InputError,
        match=r"pretrained-realm-0 was made with num_steps=2 \(now 3\)",
    ):
        _ablate(
            made.world,
            made.output,
            cells=CELLS,
            set_pretrain=[*SET_PRETRAIN, "num_steps=3"],
        )
    with pytest.raises(
        InputError, match=r"realm_encoder-0 was made with num_epochs=1"
    ):
        _ablate(
            made.world, made.output, cells=CELLS, set_finetune=["num_epochs=2"]
        )
    with pytest.raises(InputError, match="made with another questions"):
        other = os.path.join(os.path.dirname(made.output), "dev.jsonl")
        with open(other, "w", encoding="utf-8") as file:
            file.write('{"question": "Where?", "answer": ["London"]}\n')
        _ablate({**made.world, "dev": other}, made.output, cells=CELLS)
    assert made.times() == times


@pytest.mark.slow
def test_the_command_plans(made, capsys):
    world = made.world
    arguments = ["ablate", "--suite", "table2", "--output", made.output]
    for name in ("model", "blocks", "corpus", "dev"):
        arguments += [f"--{name}", world[name]]
    for name in ("pretrain", "ict", "dpr", "finetune"):
        arguments += [f"--{name}-recipe", "tiny"]
    arguments += ["--train", *world["train"], "--test", *world["test"]]
    arguments += ["--seeds", "0", "--cells", *CELLS, "--plan"]
    arguments += ["--set-pretrain", *SET_PRETRAIN]
    arguments += ["--set-finetune", "num_epochs=1"]
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "14 of 14 steps are done."
    assert lines[0] == "[1/14] packed-blocks: done"
    assert cli.main([*arguments, "--set-ict", "num_steps=3"]) == 2
    error = capsys.readouterr().err
    assert "ict was made with num_steps=7 (now 3)" in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("suite", sorted(configs.SUITES))
def test_a_whole_suite(world, tmp_path, suite):
    output = tmp_path / "output"
    given = {"suite": suite, "seeds": [0, 1]}
    results = _ablate(world, output, **given)
    chosen = configs.SUITES[suite]
    for system in chosen.systems:
        seeds = results["systems"][system.name]["seeds"]
        assert set(seeds) == {"0", "1"}
        summary = results["summary"]["nq.test"][system.name]
        for metric in chosen.metrics:
            values = [
                seed["metrics"]["nq.test"][metric] for seed in seeds.values()
            ]
            assert summary[metric]["mean"] == pytest.approx(
                sum(values) / 2, abs=1e-4
            )
            low, high = (summary[metric][end] for end in ("low", "high"))
            if suite == "table2":
                assert (low, high) == (min(values), max(values))
            else:
                assert low <= summary[metric]["mean"] <= high
    table = (output / "results.md").read_text()
    assert sum(line.startswith("| ") for line in table.splitlines()) == (
        len(chosen.systems) + 2
    )
