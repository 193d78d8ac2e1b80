"""Fine-tuning end to end on the tiny world, with a model of one layer."""

import os
import shlex
import shutil

import keras
import numpy as np
import pytest
import tiny_models
import training_runs

from realm_tf import cli
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.configs.finetune import get_recipe
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.embed import Embed
from realm_tf.operations.fine_tune import FineTune
from realm_tf.training import fine_tuning
from realm_tf.training.fine_tuning import make_trainer
from realm_tf.training.training_log import read_log

# Two epochs of one batch each.
ONE_BATCH = ("batch_size=8",)
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
    paths = {name: str(root / name) for name in ("model", "exact", "scann")}
    tiny_models.save(vocabulary_path, paths["model"], seed=1)
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
        "questions": [questions_path],
        "root": root,
    }


def _operation(world, output, *changes, index="exact", **given):
    given = {
        name: given.pop(name, world[name])
        for name in ("model", "blocks", "questions")
    } | given
    return FineTune(
        recipe="tiny",
        set=changes,
        index=world[index],
        output=str(output),
        **given,
    )


@pytest.fixture(scope="module")
def tuned(world):
    return _operation(world, world["root"] / "tuned", *ONE_BATCH).run(verbose=0)


def test_the_command_with_the_same_seed_makes_the_same_model(
    world, tuned, capsys
):
    again = _operation(world, world["root"] / "again", *ONE_BATCH)
    # Whatever was drawn before.
    keras.utils.set_random_seed(77)
    assert cli.main(shlex.split(again.command_line())[1:]) == 0
    assert f"{again.output}: " in capsys.readouterr().out
    first, second = tuned.load(), again.result.load()
    assert second.metadata["history"] == first.metadata["history"]
    assert not training_runs.moved(first.model, second.model)
    assert again.result.fingerprint == tuned.fingerprint


def test_query_tower_and_reader_move_and_the_block_tower_does_not(world, tuned):
    start = model_directory.load(world["model"])
    end = tuned.load()
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
    metadata, rows = tuned.metadata, tuned.metadata["history"]
    assert len(rows) == 2
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
    assert sorted(os.listdir(tuned.path)) == [
        "COMPLETED",
        "README.md",
        "config.json",
        "log.jsonl",
        "metadata.json",
        "model.weights.h5",
        "vocab.txt",
    ]
    (line,) = read_log(tuned.path)
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
        Path(*world["questions"]).read_bytes()
    )


@pytest.mark.slow
def test_the_index_still_belongs_to_a_tuned_model(world, tuned):
    """Tuned again, over the other index, with much of it frozen."""
    Corpus.load(tuned.path, world["blocks"], world["scann"])
    operation = _operation(
        world,
        world["root"] / "twice",
        *("batch_size=8", "num_epochs=1"),
        *("freeze_word_embeddings=true", "num_frozen_layers=1"),
        model=tuned,
        index="scann",
        # Two files, learned from one after the other.
        questions=world["questions"] * 2,
    )
    again = operation.run(verbose=0)
    first, second = tuned.load(), again.load()
    assert len(second.metadata["history"]) == 2
    assert second.metadata["counts"]["questions"] == 16
    assert not training_runs.moved(
        first.model.block_embedder, second.model.block_embedder
    )
    assert second.metadata["block_tower"] == first.metadata["block_tower"]
    Corpus.load(again.path, world["blocks"], world["exact"])
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

    def run(name, **fit):
        operation = _operation(
            world,
            tmp_path / name,
            questions=world["questions"] * 2,
            dev=world["questions"][0],
        )
        return operation.run(verbose=0, **fit)

    expected = run("whole")
    # Two epochs of two steps a file.
    assert len(expected.metadata["history"]) == 4
    with pytest.raises(KeyboardInterrupt):
        run("stopped", callbacks=[training_runs.Stop(6)], every_steps=1)
    assert not os.path.exists(tmp_path / "stopped")
    # Six steps are done; the state of the fifth is saved.
    resumed = run("stopped")
    for name in ("history", "fingerprint", "best_epoch", "best"):
        assert resumed.metadata[name] == expected.metadata[name]
    rows = expected.metadata["history"]
    best = max(row["dev_exact_match"] for row in rows)
    assert expected.metadata["best"] == {"exact_match": best}
    best_epoch = expected.metadata["best_epoch"]
    assert rows[best_epoch - 1]["dev_exact_match"] == best


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
    operation = _operation(
        world,
        tmp_path / "model",
        *("num_epochs=9", "patience=2"),
        dev=world["questions"][0],
    )
    model = operation.run(verbose=0)
    metadata = model.metadata
    found = [row["dev_exact_match"] for row in metadata["history"]]
    assert found == [0.2, 0.5, 0.4, 0.1]
    assert metadata["best_epoch"] == 2
    kept = training_runs.values(model.load().model.reader)
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
    operation = _operation(
        world, tmp_path / "model", *ONE_BATCH, questions=[path]
    )
    model = operation.run(verbose=0)
    assert model.counts["patterns"] == 1
    rows = model.metadata["history"]
    # 1669 occurs in one block, which is among the eight that are found.
    assert rows[0]["candidates_recall"] == 1.0
    assert rows[0]["retriever_loss"] > 0
    assert rows[-1]["loss"] < rows[0]["loss"]


@pytest.mark.slow
def test_other_retrievers_blocks_are_read(world, tmp_path):
    bm25 = ["retriever=bm25", "train_query_tower=false", "num_candidates=3"]
    operation = _operation(
        world, tmp_path / "model", *bm25, dev=world["questions"][0]
    )
    end = operation.run(verbose=0).load()
    rows = end.metadata["history"]
    start = model_directory.load(world["model"])
    assert not training_runs.moved(
        start.model.query_embedder, end.model.query_embedder
    )
    assert training_runs.moved(start.model.reader, end.model.reader)
    # The same share of questions in each epoch: nothing moves the blocks.
    assert rows[0]["candidates_recall"] == rows[1]["candidates_recall"] > 0.5
    with pytest.raises(InputError, match="add --set train_query_tower=false"):
        _operation(world, tmp_path / "other", *bm25[:1]).run()


@pytest.mark.slow
def test_a_refreshed_index_follows_the_shared_tower(world, tmp_path):
    operation = _operation(world, tmp_path / "model", "refresh_every=1")
    end = operation.run(verbose=0).load()
    start = model_directory.load(world["model"])
    assert end.model.share_embedders
    assert end.metadata["block_tower"] != start.metadata["block_tower"]
    with pytest.raises(InputError, match="not made from the block tower of"):
        Corpus.load(operation.output, world["blocks"], world["exact"])
    # Embedded again before every step but the first.
    assert read_log(operation.output)[-1]["index_age"] == 0.0
    with pytest.raises(InputError, match="needs one tower"):
        _operation(
            world,
            tmp_path / "other",
            *("refresh_every=1", "train_query_tower=false"),
        ).run()


def test_what_does_not_match_is_refused(world, model_dir, tuned, tmp_path):
    output = tmp_path / "out" / "model"
    with pytest.raises(InputError, match="not made from the block tower of"):
        _operation(world, output, model=model_dir).run()
    with pytest.raises(InputError, match="exists already"):
        _operation(world, tuned.path).run()
    copy = tmp_path / "half"
    shutil.copytree(world["model"], copy)
    os.remove(copy / "COMPLETED")
    with pytest.raises(InputError, match="half is not complete"):
        _operation(world, output, model=copy).run()
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"question": "When?", "answer": ["q+"], "answer_type": "regex"}\n'
    )
    with pytest.raises(InputError, match="a pattern that matches nothing or"):
        _operation(world, output, questions=[path]).run()
    assert not output.parent.exists() or not os.listdir(output.parent)
