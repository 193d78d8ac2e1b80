"""What all trainings have in common, by the two that train the towers."""

import dataclasses
import json
import os
import shlex

import keras
import ml_dtypes
import numpy as np
import pytest
import training_runs

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.configs import dpr
from realm_tf.configs import ict
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.fine_tune import FineTune
from realm_tf.operations.inverse_cloze_task import InverseClozeTask
from realm_tf.training.resume import Diverged
from realm_tf.training.training_log import read_log

DEV = [
    {"question": "Where was Ada in 1843?", "answer": ["London"]},
    {"question": "Who wrote music in the city?", "answer": ["Bach"]},
    {"question": "What is red?", "answer": ["fire"]},
    {"question": "Is the Moon cold?", "answer": ["19\\d\\d"]}
    | {"answer_type": "regex"},
]
METRICS = {
    "ict": {"loss", "accuracy", "accuracy_removed", "accuracy_left"},
    "dpr": {"loss", "accuracy", "rank"}
    | {"dev_loss", "dev_accuracy", "dev_rank"},
}
NUM_STEPS = {"ict": 7, "dpr": 6}


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir, questions_path):
    root = tmp_path_factory.mktemp("towers")
    rows = "".join(f"{json.dumps(row)}\n" for row in DEV)
    (root / "dev.jsonl").write_text(rows)
    return {
        "root": root,
        "model": model_dir,
        "blocks": blocks_dir,
        "questions": questions_path,
        "dev": str(root / "dev.jsonl"),
    }


def _operation(kind, world, output, **changes):
    """The tiny training of a kind."""
    given = {"recipe": "tiny", "model": world["model"], "output": str(output)}
    if kind == "ict":
        given["blocks"] = world["blocks"]
        return InverseClozeTask(**{**given, **changes})
    given |= {"recipe": "dpr_tiny", "blocks": world["blocks"]}
    given |= {"questions": [world["questions"]], "dev": world["dev"]}
    return FineTune(**{**given, **changes})


@pytest.fixture(
    scope="module", params=["ict", pytest.param("dpr", marks=pytest.mark.slow)]
)
def trained(request, world):
    output = world["root"] / f"trained-{request.param}"
    return request.param, _operation(request.param, world, output).run(
        verbose=0
    )


def test_the_log_ends_with_the_last_step(trained):
    kind, model = trained
    *_, line = read_log(model.path)
    assert line["step"] == NUM_STEPS[kind]
    assert {"loss", "accuracy"} < line.keys()


def test_the_shared_tower_moves_and_the_reader_does_not(world, trained):
    _, model = trained
    start, end = map(model_directory.load, (world["model"], model))
    assert end.model.share_embedders
    moved = training_runs.moved(
        start.model.query_embedder, end.model.query_embedder
    )
    assert "token_embedding/embeddings" in moved
    assert "projection/kernel" in moved
    assert not training_runs.moved(start.model.reader, end.model.reader)
    # So an index of the old tower is refused.
    assert end.metadata["block_tower"] != start.metadata["block_tower"]


@pytest.mark.slow
def test_bfloat16_rounds_the_step_and_not_the_weights(world, tmp_path):
    found, expected = (
        _operation(
            "ict",
            world,
            tmp_path / precision,
            precision=precision,
            set=["num_steps=1", "dropout=0"],
        ).run(verbose=0)
        for precision in ("bfloat16", "float32")
    )
    loss, wanted = (
        each.metadata["history"][0]["loss"] for each in (found, expected)
    )
    assert loss != wanted and loss == pytest.approx(wanted, rel=0.05)
    assert found.config == expected.config
    weights = [
        np.asarray(v)
        for v in model_directory.load(found).model.trainable_variables
    ]
    assert {weight.dtype.name for weight in weights} == {"float32"}
    weights = np.concatenate([weight.ravel() for weight in weights])
    rounded = weights.astype(ml_dtypes.bfloat16).astype("float32")
    assert np.mean(rounded != weights) > 0.5


def test_the_metadata_says_what_was_done(world, trained):
    kind, model = trained
    history = model.metadata["history"]
    assert set(history[0]) == METRICS[kind]
    assert model.counts["steps"] == NUM_STEPS[kind]
    expected = {
        name: artifact.read(world[name])["fingerprint"]
        for name in ("blocks", "model")
    }
    if kind == "dpr":
        for name, path in (("questions 0", "questions"), ("dev", "dev")):
            data = Path(world[path]).read_bytes()
            expected[name] = fingerprints.fingerprint(data)
    assert model.parents == expected
    assert model.parameters["max_block_length"] == 24
    shown = _operation(kind, world, model.path).report(model)
    assert f"{model.path}: " in shown and "accuracy" in shown
    assert ("run `realm embed` and `realm index`" in shown) == (kind == "dpr")
    assert sorted(os.listdir(model.path)) == [*training_runs.FILES]


@pytest.mark.slow
def test_stopped_and_resumed_the_weights_are_the_same(world, trained):
    """See test_resume.py for more, test_pretrain_killed.py for SIGKILL."""
    kind, model = trained
    again = _operation(kind, world, world["root"] / f"stopped-{kind}")
    stop = training_runs.Stop(4)
    with pytest.raises(KeyboardInterrupt):
        again.run(verbose=0, callbacks=[stop], every_seconds=0)
    assert not os.path.exists(again.output)
    kept = set(os.listdir(f"{again.output}.partial/run"))
    more = {"selection"} if kind == "dpr" else set()
    assert {"checkpoint"} | more <= kept

    # Neither another job nor a mistake takes the state away.
    with pytest.raises(InputError, match=r"seed=\d+ \(now 77\): give the same"):
        dataclasses.replace(again, set=(*again.set, "seed=77")).run()
    with pytest.raises(InputError, match="No"), again.write():
        raise InputError("No.")
    steps = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: steps.append(step)
    )
    result = again.run(verbose=0, callbacks=[count])
    assert len(steps) == NUM_STEPS[kind] - 3
    assert result.metadata["history"] == model.metadata["history"]
    assert result.fingerprint == model.fingerprint
    assert sorted(os.listdir(result.path)) == [*training_runs.FILES]


@pytest.mark.slow
def test_separate_towers_both_move_above_what_is_frozen(world, tmp_path):
    loaded = model_directory.load(world["model"])
    loaded.model = loaded.model.separate_towers()
    start = str(tmp_path / "separate")
    model_directory.save(loaded, start)
    frozen = ["freeze_word_embeddings=1", "num_frozen_layers=1"]
    operation = _operation(
        "ict",
        world,
        tmp_path / "trained",
        model=start,
        set=["num_steps=2", *frozen],
    )
    before = loaded.model
    after = model_directory.load(operation.run(verbose=0)).model
    assert not after.share_embedders
    for tower in ("query_embedder", "block_embedder"):
        moved = training_runs.moved(
            getattr(before, tower), getattr(after, tower)
        )
        assert {path.split("/")[0] for path in moved} == {
            "transformer_layer_1",
            "pooled_dense",
            "projection",
            "projection_layer_norm",
        }


@pytest.mark.parametrize(
    ("kind", "changes", "given", "message"),
    [
        ("ict", (), {"blocks": "model"}, "holds 'model', expected 'blocks'"),
        ("ict", ("batch_size=100",), {}, "fewer than one batch of 100"),
        (
            *("ict", ("max_block_length=513",), {}),
            "max_block_length of .* encoder takes 512",
        ),
        (
            *("dpr", ("max_query_length=513",), {}),
            "max_query_length of .* encoder takes 512",
        ),
        (
            *("dpr", ("batch_size=100",), {}),
            "8 examples an epoch: fewer than one batch of 100",
        ),
        ("ict", ("num_frozen_layers=9",), {}, "--set num_frozen_layers.*: .*9"),
        ("dpr", (), {"dev": "none.jsonl"}, "none.jsonl does not exist"),
        ("dpr", (), {"index": "x"}, "--index is not for a recipe of dpr"),
        ("dpr", (), {"teacher": "model"}, "--teacher is not for a recipe of"),
    ],
)
def test_what_does_not_match(world, tmp_path, kind, changes, given, message):
    given = {name: world.get(path, path) for name, path in given.items()}
    output = given.pop("output", tmp_path / "model")
    with pytest.raises(InputError, match=message):
        _operation(kind, world, output, set=changes, **given).run(verbose=0)
    assert not os.listdir(tmp_path)


def test_a_wrong_recipe_is_refused_before_anything_is_opened():
    given = {"model": "none", "blocks": "none", "output": "none"}
    with pytest.raises(InputError, match="from 0 to 1. .*learning_rate=nan"):
        InverseClozeTask(**given, set=["learning_rate=nan"])
    with pytest.raises(InputError, match="Received: 'best'"):
        FineTune(**given, questions=[], recipe="best")
    with pytest.raises(ValueError, match="`recipe` must be of"):
        InverseClozeTask(**given, recipe=dpr.RECIPES["dpr_tiny"])


def test_a_recipe_is_shown_by_its_name_and_what_differs(world, tmp_path):
    recipe = ict.RECIPES["tiny"].parse(["num_steps=3", "learning_rate=0.5"])
    operation = _operation("ict", world, tmp_path / "out", recipe=recipe)
    assert operation.settings == recipe
    assert operation.command_line().startswith(
        "realm ict --recipe tiny --set num_steps=3 --set learning_rate=0.5 "
        "--model "
    )
    again = cli.parse(
        InverseClozeTask, shlex.split(operation.command_line())[2:]
    )
    assert again == operation
    assert operation.parameters() == recipe.flat() | {"precision": "float32"}


@pytest.mark.slow
def test_training_stops_at_a_loss_that_is_not_finite(world, tmp_path):
    loaded = model_directory.load(world["model"])
    kernel = loaded.model.query_embedder.get_layer("projection").kernel
    kernel.assign(float("nan") * kernel)
    model_directory.save(loaded, str(tmp_path / "lost"))
    operation = _operation(
        "ict", world, tmp_path / "out", model=tmp_path / "lost"
    )
    with pytest.raises(Diverged, match="The loss of step 1 is nan, at a lear"):
        operation.run(verbose=0)
    assert not operation.result.is_complete
