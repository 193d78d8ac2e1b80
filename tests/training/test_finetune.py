"""Fine-tuning end to end on the tiny world, with a model of one layer."""

import os
import shutil

import keras
import numpy as np
import pytest
import training_runs

from realm_tf import cli
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import random_weights
from realm_tf.configs.finetune import get_recipe
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.embed import Embed
from realm_tf.training import fine_tuning
from realm_tf.training.fine_tuning import make_trainer
from realm_tf.training.finetune import finetune
from realm_tf.training.training_log import read_log

# Two epochs of one batch each.
RECIPE = get_recipe("tiny", ["batch_size=8"])
# Only the reader's head learns.
HEAD_ONLY = [
    "num_epochs=1",
    "train_query_tower=false",
    "freeze_word_embeddings=true",
    "num_frozen_layers=1",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory, vocabulary_path, blocks_dir, questions_path):
    """Paths of a model of one layer, its indexes, blocks and questions."""
    root = tmp_path_factory.mktemp("finetune")
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
    paths = {name: str(root / name) for name in ("model", "exact", "scann")}
    model_directory.save(loaded, paths["model"])
    Embed(
        model=paths["model"], blocks=blocks_dir, output=str(root / "embeddings")
    ).run()
    # ScaNN's op needs the TensorFlow backend.
    is_tensorflow = keras.backend.backend() == "tensorflow"
    for name, kind in (
        ("exact", "brute_force"),
        ("scann", "scann" if is_tensorflow else "brute_force"),
    ):
        BuildIndex(
            embeddings=str(root / "embeddings"), output=paths[name], kind=kind
        ).run()
    return {
        **paths,
        "blocks": blocks_dir,
        "questions": questions_path,
        "root": root,
    }


def _finetune(world, name, *, model=None, index="exact", **arguments):
    output = str(world["root"] / name)
    rows = finetune(
        model or world["model"],
        world["blocks"],
        world[index],
        world["questions"],
        output,
        **{"recipe": RECIPE, "verbose": 0, **arguments},
    )
    return output, rows


@pytest.fixture(scope="module")
def tuned(world):
    return _finetune(world, "tuned")


def test_the_command_with_the_same_seed_makes_the_same_model(
    world, tuned, capsys
):
    output, rows = tuned
    again = str(world["root"] / "again")
    arguments = ["finetune", "--recipe", "tiny", "--set", "batch_size=8"]
    for name, value in (
        ("model", "model"),
        ("blocks", "blocks"),
        ("index", "exact"),
        ("questions", "questions"),
    ):
        arguments += [f"--{name}", world[value]]
    # Whatever was drawn before.
    keras.utils.set_random_seed(77)
    assert cli.main([*arguments, "--output", again]) == 0
    assert f"{again}: " in capsys.readouterr().out
    first, second = (model_directory.load(path) for path in (output, again))
    assert second.metadata["history"] == rows
    assert not training_runs.moved(first.model, second.model)
    assert first.metadata["fingerprint"] == second.metadata["fingerprint"]


def test_query_tower_and_reader_move_and_the_block_tower_does_not(world, tuned):
    start = model_directory.load(world["model"])
    end = model_directory.load(tuned[0])
    assert start.model.share_embedders and not end.model.share_embedders
    assert not training_runs.moved(
        start.model.block_embedder, end.model.block_embedder
    )
    for part in ("query_embedder", "reader"):
        moved = training_runs.moved(
            getattr(start.model, part), getattr(end.model, part)
        )
        assert "token_embedding/embeddings" in moved
        assert "transformer_layer_0/self_attention_layer/query/kernel" in moved
    assert end.metadata["block_tower"] == start.metadata["block_tower"]
    assert end.metadata["fingerprint"] != start.metadata["fingerprint"]


def test_the_metadata_says_what_was_done(world, tuned):
    output, rows = tuned
    metadata = artifact.read(output, kind="model")
    assert metadata["history"] == rows and len(rows) == 2
    for row in rows:
        assert row["loss"] == pytest.approx(
            row["retriever_loss"] + row["reader_loss"], abs=1e-5
        )
        assert row["candidates_recall"] >= row["top_block_recall"]
    assert metadata["counts"] == {
        "questions": 8,
        "united": 0,
        "patterns": 0,
        "without_answer": 0,
        "steps": 2,
    }
    # What only the run needed is gone.
    assert sorted(os.listdir(output)) == [
        "COMPLETED",
        "README.md",
        "config.json",
        "log.jsonl",
        "metadata.json",
        "model.weights.h5",
        "vocab.txt",
    ]
    (line,) = read_log(output)
    assert line["step"] == 2 and line["examples_per_second"] > 0
    # The first epoch's and the second's, of one batch each.
    mean = sum(row["loss"] for row in rows) / 2
    assert line["loss"] == pytest.approx(mean, abs=1e-5)
    assert metadata["parameters"]["batch_size"] == 8
    parents = metadata["parents"]
    model = artifact.read(world["model"], kind="model")
    index = artifact.read(world["exact"], kind="index")
    assert parents["model"] == model["fingerprint"]
    assert parents["index"] == index["fingerprint"]
    assert parents["questions"] == fingerprints.fingerprint(
        Path(world["questions"]).read_bytes()
    )


@pytest.mark.slow
def test_the_index_still_belongs_to_a_tuned_model(world, tuned):
    """Tuned again, over the other index, with much of it frozen."""
    Corpus.load(tuned[0], world["blocks"], world["scann"])
    output = str(world["root"] / "twice")
    rows = finetune(
        tuned[0],
        world["blocks"],
        world["scann"],
        # Two files, learned from one after the other.
        [world["questions"]] * 2,
        output,
        recipe=get_recipe(
            "tiny",
            [
                "batch_size=8",
                "num_epochs=1",
                "freeze_word_embeddings=true",
                "num_frozen_layers=1",
            ],
        ),
        verbose=0,
    )
    first, second = (model_directory.load(path) for path in (tuned[0], output))
    assert len(rows) == 2 and second.metadata["counts"]["questions"] == 16
    assert not training_runs.moved(
        first.model.block_embedder, second.model.block_embedder
    )
    assert second.metadata["block_tower"] == first.metadata["block_tower"]
    Corpus.load(output, world["blocks"], world["exact"])
    moved = {
        part: {
            path.split("/")[0]
            for path in training_runs.moved(
                getattr(first.model, part), getattr(second.model, part)
            )
        }
        for part in ("query_embedder", "reader")
    }
    assert moved == {
        "query_embedder": {
            "transformer_layer_0",
            "pooled_dense",
            "projection",
            "projection_layer_norm",
        },
        "reader": {"span_scorer"},
    }


@pytest.mark.parametrize(
    ("changes", "tower", "reader"),
    [
        ([], True, {"token_embedding", "transformer_layer_0", "span_scorer"}),
        (
            ["train_query_tower=false"],
            False,
            {"token_embedding", "transformer_layer_0", "span_scorer"},
        ),
        (
            ["train_query_tower=false", "freeze_word_embeddings=true"],
            False,
            {"transformer_layer_0", "span_scorer"},
        ),
        (HEAD_ONLY, False, {"span_scorer"}),
    ],
)
def test_a_recipe_says_what_learns(world, changes, tower, reader):
    corpus = Corpus.load(world["model"], world["blocks"], world["exact"])
    trainer = make_trainer(corpus, None, get_recipe("tiny", changes))
    model = trainer.open_qa
    assert bool(model.query_embedder.trainable_variables) == tower
    assert model.share_embedders != tower
    assert not model.block_embedder.trainable_variables
    found = {v.path.split("/")[0] for v in model.reader.trainable_variables}
    embeddings = {
        "token_embedding",
        "position_embedding",
        "segment_embedding",
        "embeddings_layer_norm",
    }
    assert found - (embeddings - {"token_embedding"}) == reader
    assert len(trainer.trainable_variables) == len(
        model.query_embedder.trainable_variables
    ) + len(model.reader.trainable_variables)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_model(world, tmp_path):
    """With dev, two files and patterns; stopped in the second file."""
    arguments = {
        "recipe": get_recipe("tiny", ["batch_size=4"]),
        "questions": [world["questions"]] * 2,
        "dev": world["questions"],
    }

    def run(name, **more):
        return finetune(
            world["model"],
            world["blocks"],
            world["exact"],
            output=str(tmp_path / name),
            verbose=0,
            **arguments,
            **more,
        )

    expected = run("whole")
    # Two epochs of two steps a file.
    assert len(expected) == 4
    with pytest.raises(KeyboardInterrupt):
        run("stopped", callbacks=[training_runs.Stop(6)], save_every_steps=1)
    assert not os.path.exists(tmp_path / "stopped")
    # Six steps are done; the state of the fifth is saved.
    rows = run("stopped")
    assert rows == expected
    first, second = (
        model_directory.load(str(tmp_path / name))
        for name in ("whole", "stopped")
    )
    assert first.metadata["fingerprint"] == second.metadata["fingerprint"]
    assert first.metadata["best_epoch"] == second.metadata["best_epoch"]
    best = max(row["dev_exact_match"] for row in rows)
    assert first.metadata["best"] == {"exact_match": best}
    assert rows[first.metadata["best_epoch"] - 1]["dev_exact_match"] == best


@pytest.mark.slow
def test_the_best_epoch_is_kept_and_training_stops_in_time(
    world, tmp_path, monkeypatch
):
    """With the matches of dev given: 0.2, 0.5, 0.4, 0.1, and no fifth."""
    given = iter([0.2, 0.5, 0.4, 0.1, 0.9])
    states = []

    class Told(fine_tuning.SelectBest):
        def __init__(self, evaluate, weights, directory, **kwargs):
            super().__init__(self._tell, weights, directory, **kwargs)
            self._evaluate_really = evaluate

        def _tell(self):
            assert 0 <= self._evaluate_really()["exact_match"] <= 1
            states.append(training_runs.values(self._weights.reader))
            return {"exact_match": next(given)}

    monkeypatch.setattr(fine_tuning, "SelectBest", Told)
    output = str(tmp_path / "model")
    rows = finetune(
        world["model"],
        world["blocks"],
        world["exact"],
        world["questions"],
        output,
        recipe=get_recipe("tiny", ["num_epochs=9", "patience=2"]),
        dev=world["questions"],
        verbose=0,
    )
    assert [row["dev_exact_match"] for row in rows] == [0.2, 0.5, 0.4, 0.1]
    metadata = artifact.read(output, kind="model")
    assert metadata["best_epoch"] == 2
    kept = training_runs.values(model_directory.load(output).model.reader)
    assert kept.keys() == states[1].keys()
    for path, value in kept.items():
        np.testing.assert_array_equal(value, states[1][path])
    assert any(
        not np.array_equal(value, states[3][path])
        for path, value in kept.items()
    )


def test_patterns_are_learned_from(world, tmp_path):
    """Alone, the question whose answer is a pattern; an invalid one beside."""
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"question": "When was the fire in the city?", '
        '"answer": ["(16", "16\\\\d\\\\d"], "answer_type": "regex"}\n'
        '{"question": "Who?", "answer": ["q+"], "answer_type": "regex"}\n'
    )
    output, rows = _finetune(
        {**world, "questions": str(path), "root": tmp_path}, "model"
    )
    metadata = artifact.read(output, kind="model")
    assert metadata["counts"]["patterns"] == 1
    # 1669 stands in one block, which is among the eight that are found.
    assert rows[0]["candidates_recall"] == 1.0
    assert rows[0]["retriever_loss"] > 0
    assert rows[-1]["loss"] < rows[0]["loss"]


@pytest.mark.slow
def test_other_retrievers_blocks_are_read(world, tmp_path):
    bm25 = ["retriever=bm25", "train_query_tower=false", "num_candidates=3"]
    output, rows = _finetune(
        {**world, "root": tmp_path},
        "model",
        recipe=get_recipe("tiny", bm25),
        dev=world["questions"],
    )
    start = model_directory.load(world["model"])
    end = model_directory.load(output)
    assert not training_runs.moved(
        start.model.query_embedder, end.model.query_embedder
    )
    assert training_runs.moved(start.model.reader, end.model.reader)
    # The same share of questions in each epoch: nothing moves the blocks.
    assert rows[0]["candidates_recall"] == rows[1]["candidates_recall"] > 0.5
    with pytest.raises(InputError, match="add --set train_query_tower=false"):
        _finetune(world, "other", recipe=get_recipe("tiny", bm25[:1]))


@pytest.mark.slow
def test_a_refreshed_index_follows_the_shared_tower(world, tmp_path):
    recipe = get_recipe("tiny", ["refresh_every=1", "batch_size=4"])
    output, _ = _finetune({**world, "root": tmp_path}, "model", recipe=recipe)
    start = model_directory.load(world["model"])
    end = model_directory.load(output)
    assert end.model.share_embedders
    assert end.metadata["block_tower"] != start.metadata["block_tower"]
    with pytest.raises(InputError, match="not made from the block tower of"):
        Corpus.load(output, world["blocks"], world["exact"])
    # Embedded anew before every step but the first.
    assert read_log(output)[-1]["index_age"] == 0.0
    with pytest.raises(InputError, match="needs one tower"):
        _finetune(
            world,
            "other",
            recipe=get_recipe(
                "tiny", ["refresh_every=1", "train_query_tower=false"]
            ),
        )


def test_what_does_not_belong_together_is_refused(
    world, model_dir, tuned, tmp_path
):
    with pytest.raises(InputError, match="not made from the block tower of"):
        _finetune(world, "other", model=model_dir)
    with pytest.raises(InputError, match="exists already"):
        _finetune(world, "tuned")
    copy = tmp_path / "half"
    shutil.copytree(world["model"], copy)
    os.remove(copy / "COMPLETED")
    with pytest.raises(InputError, match="half is not complete"):
        _finetune(world, "other", model=str(copy))
    assert not os.path.exists(world["root"] / "other")
    assert not os.path.exists(world["root"] / "other.partial")


def test_questions_that_teach_nothing_are_refused(world, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"question": "When?", "answer": ["q+"], "answer_type": "regex"}\n'
    )
    with pytest.raises(InputError, match="a pattern that matches nothing or"):
        _finetune({**world, "questions": str(path)}, "other")
    assert not os.path.exists(world["root"] / "other.partial")
