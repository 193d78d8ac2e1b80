import json
import os
import shlex
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import training_runs

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.configs.pretrain import RECIPES
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.pretrain import Pretrain
from realm_tf.training import pretraining
from realm_tf.training.training_log import MASKED_LM_LOG
from realm_tf.training.training_log import read_log

TINY = RECIPES["tiny"]


class _Refreshes(keras.callbacks.Callback):
    """The index as each step searched it, and what the logs say of it."""

    def __init__(self):
        super().__init__()
        self.indices, self.ages = [], []

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.indices.append(np.array(self.model.index.embeddings))
        self.ages.append(logs["index_age"])


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir, annotated_dir):
    return {
        "root": tmp_path_factory.mktemp("pretrain"),
        "model": model_dir,
        "blocks": blocks_dir,
        "corpus": annotated_dir,
    }


def _operation(world, output, *changes, **given):
    given = {
        name: given.pop(name, world[name])
        for name in ("model", "blocks", "corpus")
    } | given
    return Pretrain(recipe="tiny", set=changes, output=str(output), **given)


@pytest.fixture(scope="module")
def trained(world):
    seen = _Refreshes()
    operation = _operation(world, world["root"] / "trained")
    return operation.run(verbose=0, callbacks=[seen]), seen


def test_towers_and_encoder_move_and_the_span_scorer_does_not(world, trained):
    start = model_directory.load(world["model"]).model
    end = model_directory.load(trained[0]).model
    assert end.share_embedders
    assert "projection/kernel" in training_runs.moved(
        start.query_embedder, end.query_embedder
    )
    moved = training_runs.moved(start.reader, end.reader)
    assert "token_embedding/embeddings" in moved
    assert all("span" not in path for path in moved)
    # One encoder with two heads.
    assert start.knowledge_augmented_encoder is None
    assert end.knowledge_augmented_encoder.encoder is end.reader.encoder
    # As the head starts, the bias is 0.
    head = end.knowledge_augmented_encoder.get_layer("masked_lm_head")
    values = {v.path.split("/")[-1]: np.asarray(v) for v in head.variables}
    assert np.abs(values["output_bias"]).max() > 0
    bare = end.without_masked_lm_head()
    assert bare.knowledge_augmented_encoder is None
    assert bare.reader is end.reader


def test_the_metadata_says_what_was_done(world, trained):
    metadata = trained[0].metadata
    assert set(metadata["history"][0]) == {
        *("loss", "mlm_accuracy", "retrieval_utility", "null_probability"),
        *("entropy", "article_recall", "answer_recall", "index_age"),
    }
    assert metadata["counts"]["steps"] == 6
    assert metadata["parents"] == {
        name: artifact.read(world[name])["fingerprint"]
        for name in ("model", "blocks", "corpus")
    }
    found = sorted(os.listdir(trained[0].path))
    assert found == [*training_runs.FILES]


def test_the_index_is_refreshed_between_steps(world, trained):
    _, seen = trained
    assert seen.ages == [0, 1, 0, 1, 0, 1]
    same = [
        np.array_equal(one, two)
        for one, two in zip(seen.indices, seen.indices[1:], strict=False)
    ]
    assert same == [True, False, True, False, True]


class _Weights(keras.callbacks.Callback):
    """Those of the query tower, by the steps done."""

    def __init__(self):
        super().__init__()
        self.after = {}

    def on_train_batch_end(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        step = int(np.asarray(self.model.optimizer.iterations))
        self.after[step] = training_runs.values(self.model.query_embedder)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(), (3, 2)])
def test_the_best_state_on_held_out_sentences_is_kept(world, tmp_path, stops):
    seen = _Weights()
    start = model_directory.load(world["model"]).model.query_embedder
    seen.after[0] = training_runs.values(start)
    changes = ("num_held_out=2", "log_every=1")
    operation = _operation(world, tmp_path / "model", *changes)
    for after in stops:
        stop = training_runs.Stop(after)
        with pytest.raises(KeyboardInterrupt):
            operation.run(verbose=0, every_seconds=0, callbacks=[stop, seen])
    end = operation.run(verbose=0, callbacks=[seen])
    found = end.metadata["held_out"]
    assert [row["step"] for row in found] == [0, 2, 4, 6]
    likelihoods = [row["held_out_log_likelihood"] for row in found]
    assert len(set(likelihoods)) == 4 and max(likelihoods) < 0
    best = found[int(np.argmax(likelihoods))]["step"]
    assert end.metadata["best_step"] == best
    kept = training_runs.values(model_directory.load(end).model.query_embedder)
    for path, value in seen.after[best].items():
        np.testing.assert_array_equal(kept[path], value)
    lines = {line["step"]: line for line in read_log(end.path)}
    for row in found[1:]:
        line = lines[row["step"]]
        for metric in ("log_likelihood", "retrieval_utility"):
            name = f"held_out_{metric}"
            assert line[name] == pytest.approx(row[name], rel=1e-5)
    if stops:
        whole = _operation(world, tmp_path / "whole", *changes)
        assert whole.run(verbose=0).metadata["held_out"] == found


def test_every_held_out_passage_is_measured(world, tmp_path):
    """Three of them, in batches of two."""
    run = pretraining.Pretraining(
        TINY.replace(num_held_out=3),
        model_directory.load(world["model"]),
        artifact.Stage(str(tmp_path), {}),
        blocks=Blocks(world["blocks"]),
        passages=Passages(world["corpus"]),
        fit={},
    )
    batches = run._held_out_batches()
    assert [len(batch["token_ids"]) for batch in batches] == [2, 2]
    measured = [
        int(block_id)
        for batch in batches
        for block_id, weights in zip(
            batch["block_id"], batch["mask_weights"], strict=True
        )
        if weights.any()
    ]
    assert len(measured) == len(set(measured)) == 3


@pytest.mark.slow
def test_the_command(world, capsys):
    """With all that `trained` goes without."""
    operation = _operation(
        world,
        world["root"] / "by-command",
        *("num_steps=4", "refresh=thread", "masked_lm_steps=3"),
        "log_every=1",
        *("masked_lm_batch_size=2", "masked_lm_window=15"),
        *("masked_lm_own_block=0.4", "masked_lm_answer_block=0.3"),
        "tensorboard=true",
    )
    output = operation.output
    assert cli.main(shlex.split(operation.command_line())[1:]) == 0
    shown = capsys.readouterr().out
    assert f"{output}: " in shown and "retrieval_utility" in shown
    metadata = operation.result.metadata
    # Without those that no sentence was given.
    assert (
        {"loss"}
        < set(metadata["masked_lm_history"][0])
        <= {
            "loss",
            "accuracy_null_block",
            "accuracy_own_block",
            "accuracy_answer_block",
            "accuracy_other_block",
        }
    )
    lines = read_log(output)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(0 <= line["index_age"] <= 3 for line in lines)
    lines = read_log(os.path.join(output, MASKED_LM_LOG))
    assert [line["step"] for line in lines] == [1, 2, 3]
    # Null where no sentence of these steps had its own block.
    assert all("accuracy_own_block" in line for line in lines)
    assert all(line["loss"] > 0 for line in lines)
    for directory, text in (
        ("log/train", b"epoch_retrieval_utility"),
        ("masked_lm_log/train", b"epoch_accuracy_own_block"),
        ("samples", b"p(z"),
    ):
        directory = os.path.join(output, "tensorboard", directory)
        events = [each.read_bytes() for each in Path(directory).iterdir()]
        assert any(text in each for each in events)


@pytest.mark.slow
def test_it_runs_without_tensorflow(world):
    """The packages of a JAX machine: keras, keras-hub and jax."""
    root = world["root"]
    operation = _operation(
        world,
        root / "jax-only",
        *("num_steps=3", "refresh_every=0", "log_every=1"),
    )
    training_runs.run_without_tensorflow(operation)
    lines = read_log(operation.output)
    # Never refreshed, it is as old as the step.
    assert [line["index_age"] for line in lines] == [0, 1, 2]
    assert all(np.isfinite(line["loss"]) for line in lines)


def test_wrong_inputs_leave_nothing(world, capsys):
    output = str(world["root"] / "wrong")
    arguments = ["pretrain", "--recipe", "tiny", "--model", world["model"]]
    arguments += ["--output", output, "--blocks"]
    for more, reason in (
        ([world["corpus"], "--corpus", world["corpus"]], "'blocks'"),
        ([world["blocks"], "--corpus", world["blocks"]], "annotated"),
        (
            [world["blocks"], "--corpus", world["corpus"]]
            + ["--set", "max_joint_length=4000"],
            "--set max_joint_length=N",
        ),
        (
            [world["blocks"], "--corpus", world["corpus"]]
            + ["--set", "batch_size=1000"],
            "fewer than one batch",
        ),
    ):
        assert cli.main([*arguments, *more]) == 2
        assert reason in capsys.readouterr().err
        assert not (world["root"] / "wrong").exists()
        assert not (world["root"] / "wrong.partial").exists()


def test_a_corpus_of_other_blocks_is_refused(world, tmp_path):
    corpus = tmp_path / "annotated"
    shutil.copytree(world["corpus"], corpus)
    metadata = json.loads((corpus / "metadata.json").read_text())
    metadata["parents"]["blocks"] = "another"
    (corpus / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="annotated from other blocks"):
        _operation(world, tmp_path / "output", corpus=corpus).run()


@pytest.mark.slow
def test_a_state_holds_no_table_of_the_corpus(world):
    operation = _operation(world, world["root"] / "state", "num_steps=4")
    with pytest.raises(KeyboardInterrupt):
        operation.run(
            verbose=0, callbacks=[training_runs.Stop(3)], every_seconds=0
        )
    (state,) = world["root"].glob("**/run/checkpoint/training_state.npz")
    with np.load(state) as arrays:
        lengths = {arrays[name].shape[:1] for name in arrays.files}
    num_blocks = Blocks(world["blocks"]).num_blocks
    assert (num_blocks,) not in lengths
    (run,) = {state.parent.parent}
    versions = [each.name for each in (run / "index").iterdir()]
    assert sorted(versions) == ["00000000.npy", "00000002.npy"]
