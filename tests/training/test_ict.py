import os
import subprocess
import sys

import keras
import pytest
import training_runs

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.artifacts.paths import Path
from realm_tf.configs.ict import RECIPES
from realm_tf.configs.ict import get_recipe
from realm_tf.errors import InputError
from realm_tf.training.ict import ict

TINY = get_recipe("tiny")


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir):
    root = tmp_path_factory.mktemp("ict")
    pack_blocks(blocks_dir, str(root / "packed"))
    return {
        "root": root,
        "model": model_dir,
        "blocks": blocks_dir,
        "packed": str(root / "packed"),
    }


@pytest.fixture(scope="module")
def trained(world):
    output = str(world["root"] / "trained")
    rows = ict(world["model"], world["packed"], output, recipe=TINY, verbose=0)
    return output, rows


def test_the_shared_tower_moves_and_the_reader_does_not(world, trained):
    start, end = (
        model_directory.load(path) for path in (world["model"], trained[0])
    )
    assert end.model.share_embedders
    moved = training_runs.moved(
        start.model.query_embedder, end.model.query_embedder
    )
    assert "token_embedding/embeddings" in moved
    assert "projection/kernel" in moved
    assert not training_runs.moved(start.model.reader, end.model.reader)
    assert end.metadata["block_tower"] != start.metadata["block_tower"]


def test_the_metadata_says_what_was_done(world, trained):
    output, rows = trained
    metadata = artifact.read(output, kind="model")
    assert metadata["history"] == rows
    assert set(rows[0]) == {
        "loss",
        "accuracy",
        "accuracy_removed",
        "accuracy_left",
    }
    assert metadata["counts"]["steps"] == 7
    blocks = artifact.read(world["blocks"], kind="blocks")
    model = artifact.read(world["model"], kind="model")
    assert metadata["parents"] == {
        "blocks": blocks["fingerprint"],
        "model": model["fingerprint"],
    }
    assert metadata["parameters"]["max_block_length"] == 24
    assert sorted(each.name for each in Path(output).iterdir()) == [
        "COMPLETED",
        "README.md",
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "vocab.txt",
    ]


def test_the_command_packs_blocks_and_makes_the_same_model(
    world, trained, capsys
):
    output = str(world["root"] / "again")
    # Whatever was drawn before.
    keras.utils.set_random_seed(77)
    status = cli.main(
        ["ict", "--recipe", "tiny", "--model", world["model"]]
        + ["--blocks", world["blocks"], "--output", output]
    )
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert f"{output}: " in shown.out and "accuracy_removed" in shown.out
    assert (
        artifact.read_metadata(output)["fingerprint"]
        == artifact.read_metadata(trained[0])["fingerprint"]
    )
    assert len(sorted(each.name for each in Path(output).iterdir())) == 6


@pytest.mark.slow
def test_killed_and_resumed_the_weights_are_the_same(world, trained):
    """With SIGKILL, in a process of its own; see test_resume.py for more."""
    output = str(world["root"] / "killed")
    code = f"""
from realm_tf.configs.ict import get_recipe
from realm_tf.training.ict import ict

ict({world["model"]!r}, {world["blocks"]!r}, {output!r},
    recipe=get_recipe("tiny"), verbose=0, callbacks=[Stop(5, kill=True)],
    save_every_steps=2)
"""
    training_runs.run_and_kill(code)
    assert not os.path.exists(output)
    assert "checkpoint" in os.listdir(f"{output}.partial")
    steps = training_runs.Steps()
    # Packed or not, they are the same blocks: the run goes on.
    rows = ict(
        world["model"],
        world["packed"],
        output,
        recipe=TINY,
        verbose=0,
        callbacks=[steps],
    )
    assert steps.count == 3
    assert rows == trained[1]
    assert (
        artifact.read_metadata(output)["fingerprint"]
        == artifact.read_metadata(trained[0])["fingerprint"]
    )
    assert len(sorted(each.name for each in Path(output).iterdir())) == 6


@pytest.mark.slow
def test_separate_towers_both_move_above_what_is_frozen(world):
    loaded = model_directory.load(world["model"])
    loaded.model = loaded.model.separate_towers()
    start = str(world["root"] / "separate")
    model_directory.save(loaded, start)
    output = str(world["root"] / "separate-trained")
    recipe = get_recipe(
        "tiny",
        ["num_steps=2", "freeze_word_embeddings=1", "num_frozen_layers=1"],
    )
    ict(start, world["packed"], output, recipe=recipe, verbose=0)
    before, after = (model_directory.load(p).model for p in (start, output))
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


# Pre-training without it is in the default run.
@pytest.mark.slow
def test_it_runs_without_tensorflow(world):
    """The packages of a JAX machine: keras, keras-hub and jax."""
    output = str(world["root"] / "jax-only")
    code = f"""
import sys
for name in ("tensorflow", "tensorflow_text", "tf_keras"):
    sys.modules[name] = None
from realm_tf.configs.ict import get_recipe
from realm_tf.training.ict import ict
rows = ict({world["model"]!r}, {world["packed"]!r}, {output!r},
    recipe=get_recipe("tiny", ["num_steps=1"]), verbose=0)
print(rows[0]["loss"] > 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert done.stdout == "True\n", done.stderr[-2000:]


def test_what_does_not_belong_together_is_refused(world, tmp_path):
    output = str(tmp_path / "model")

    def run(blocks=world["packed"], overrides=()):
        recipe = get_recipe("tiny", list(overrides))
        ict(world["model"], blocks, output, recipe=recipe, verbose=0)

    with pytest.raises(InputError, match="holds 'model', expected 'blocks'"):
        run(blocks=world["model"])
    with pytest.raises(InputError, match="fewer than one batch of 100"):
        run(overrides=["batch_size=100"])
    with pytest.raises(
        InputError, match="take 512 wordpieces. Received: max_b"
    ):
        run(overrides=["max_block_length=513"])
    with pytest.raises(InputError, match="not on a local disk"):
        ict(world["model"], world["packed"], "gs://b/m", recipe=TINY)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_can_be_had_by_name(name):
    assert get_recipe(name) == RECIPES[name]


def test_the_numbers_of_the_paper():
    paper = get_recipe("paper")
    assert (paper.num_steps, paper.batch_size) == (100_000, 4096)
    assert (paper.learning_rate, paper.bias_correction) == (1e-4, False)
    assert (paper.max_query_length, paper.max_block_length) == (64, 288)
    assert paper.remove_probability == 0.9


@pytest.mark.parametrize(
    "override",
    ["num_steps=0", "batch_size=1", "max_query_length=2", "seed=-1"]
    + ["remove_probability=1.1"],
)
def test_numbers_out_of_range_are_named(override):
    with pytest.raises(InputError, match=override.split("=")[0]):
        get_recipe("tiny", [override])
