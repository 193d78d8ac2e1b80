import json
import os

import keras
import numpy as np
import pytest
import training_runs

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.paths import Path
from realm_tf.configs.dpr import get_recipe
from realm_tf.errors import InputError
from realm_tf.training import dense_retrieval
from realm_tf.training.dpr import train_dpr

TINY = get_recipe("tiny")
# Of the questions of the tiny world.
COUNTS = {
    "questions": 8,
    "dropped_evidence_in_no_block": 0,
    "dropped_no_answer_retrieved": 0,
    "positives_of_evidence": 0,
    "without_hard_negative": 3,
}
DEV = [
    {"question": "Where was Ada in 1843?", "answer": ["London"]},
    {"question": "Who wrote music in the city?", "answer": ["Bach"]},
    {"question": "What is red?", "answer": ["fire"]},
    {"question": "Is the Moon cold?", "answer": ["19\\d\\d"]}
    | {"answer_type": "regex"},
]
FILES = [
    "COMPLETED",
    "README.md",
    "config.json",
    "metadata.json",
    "model.weights.h5",
    "vocab.txt",
]


def _write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory, model_dir, blocks_dir, questions_path):
    root = tmp_path_factory.mktemp("dpr")
    return {
        "root": root,
        "model": model_dir,
        "blocks": blocks_dir,
        "questions": questions_path,
        "dev": _write(root / "dev.jsonl", DEV),
    }


def _train(world, output, *, recipe=TINY, **arguments):
    arguments = {
        name: arguments.pop(name, world[name])
        for name in ("model", "blocks", "questions")
    } | arguments
    return train_dpr(output=str(output), recipe=recipe, verbose=0, **arguments)


@pytest.fixture(scope="module")
def trained(world):
    output = str(world["root"] / "trained")
    return output, _train(world, output, dev=world["dev"])


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
    # So an index of the old tower is refused.
    assert end.metadata["block_tower"] != start.metadata["block_tower"]


def test_the_metadata_says_what_was_done(world, trained):
    output, rows = trained
    metadata = artifact.read(output, kind="model")
    assert metadata["history"] == rows and len(rows) == 3
    names = {"loss", "accuracy", "rank"}
    assert set(rows[0]) == names | {f"dev_{name}" for name in names}
    # 8 questions are 2 batches of 3.
    assert metadata["counts"] == COUNTS | {"questions_an_epoch": 6, "steps": 6}
    assert metadata["dev_counts"]["questions"] == 4
    assert metadata["parents"] == {
        "blocks": artifact.read(world["blocks"], kind="blocks")["fingerprint"],
        "model": artifact.read(world["model"], kind="model")["fingerprint"],
        "questions": fingerprints.fingerprint(
            Path(world["questions"]).read_bytes()
        ),
        "dev": fingerprints.fingerprint(Path(world["dev"]).read_bytes()),
    }
    assert metadata["parameters"]["retriever_loss"] == "dpr"
    assert metadata["parameters"]["num_retrieved"] == 100
    assert sorted(each.name for each in Path(output).iterdir()) == FILES


def _embed(loaded, texts, towers, max_length):
    """Embeddings of tuples of texts, one by one and without padding."""
    found = []
    for segments in texts:
        ids, numbers = [loaded.tokenizer.cls_id], [0]
        for number, text in enumerate(segments):
            pieces = loaded.tokenizer.tokenize(text).ids
            pieces = pieces[: max_length - 1 - len(segments)]
            ids += [*pieces, loaded.tokenizer.sep_id]
            numbers += [number] * (len(pieces) + 1)
        inputs = {
            "token_ids": [ids],
            "segment_ids": [numbers],
            "padding_mask": [[1] * len(ids)],
        }
        found.append(
            towers(
                {k: keras.ops.convert_to_tensor(v) for k, v in inputs.items()}
            )
        )
    return np.concatenate([np.asarray(e, "float64") for e in found])


@pytest.mark.slow
def test_the_best_epoch_on_dev_is_the_one_that_is_written(world, tmp_path):
    """Its two questions' blocks are found among both, here from the texts."""
    dev = _write(tmp_path / "dev.jsonl", [DEV[0], DEV[2]])
    recipe = get_recipe("tiny", ["num_hard_negatives=0", "num_epochs=6"])
    rows = _train(world, tmp_path / "model", recipe=recipe, dev=dev)
    metadata = artifact.read(str(tmp_path / "model"), kind="model")
    found = [row["dev_accuracy"] for row in rows]
    assert metadata["best_epoch"] == 1 + found.index(max(found))
    best = rows[metadata["best_epoch"] - 1]
    assert metadata["best"] == {
        name: best[f"dev_{name}"] for name in ("loss", "accuracy", "rank")
    }
    # Not the weights that the run ended with.
    assert best["dev_loss"] != rows[-1]["dev_loss"]
    loaded = model_directory.load(str(tmp_path / "model"))
    queries = _embed(
        loaded,
        [(DEV[0]["question"],), (DEV[2]["question"],)],
        loaded.model.query_embedder,
        recipe.lengths.max_query_length,
    )
    blocks = _embed(
        loaded,
        [
            ("Ada", "Ada was in London. Ada wrote numbers in 1843."),
            ("Etna", "Etna is a hill of fire. The fire of Etna is red."),
        ],
        loaded.model.block_embedder,
        recipe.lengths.max_block_length,
    )
    scores = queries @ blocks.T
    loss = np.mean(
        [np.log(np.exp(row - row[n]).sum()) for n, row in enumerate(scores)]
    )
    assert metadata["best"]["loss"] == pytest.approx(loss, rel=1e-4)
    accuracy = np.mean(scores.argmax(1) == np.arange(2))
    assert metadata["best"]["accuracy"] == accuracy


@pytest.mark.slow
def test_without_dev_it_learns_its_questions(world, tmp_path):
    recipe = get_recipe("tiny", ["num_epochs=40", "dropout=0", "batch_size=4"])
    rows = _train(world, tmp_path / "model", recipe=recipe)
    assert set(rows[0]) == {"loss", "accuracy", "rank"}
    # Epochs of two steps go up and down.
    loss, accuracy, rank = (
        np.array([row[name] for row in rows])
        for name in ("loss", "accuracy", "rank")
    )
    assert loss[-10:].mean() < 0.5 * loss[:2].mean()
    assert accuracy[-10:].mean() > accuracy[:2].mean() + 0.25
    assert rank[-10:].mean() < rank[:2].mean() - 1
    metadata = artifact.read(str(tmp_path / "model"), kind="model")
    assert "best_epoch" not in metadata
    assert set(metadata["parents"]) == {"blocks", "model", "questions"}


@pytest.mark.slow
def test_the_command_makes_the_same_model(world, trained, capsys):
    output = str(world["root"] / "again")
    # Whatever was drawn before.
    keras.utils.set_random_seed(77)
    status = cli.main(
        ["finetune", "--retriever-loss", "dpr", "--recipe", "tiny"]
        + ["--model", world["model"], "--blocks", world["blocks"]]
        + ["--questions", world["questions"], "--dev", world["dev"]]
        + ["--output", output]
    )
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert f"{output}: " in shown.out and "dev_accuracy" in shown.out
    assert "run `realm embed` and `realm index`" in shown.out
    assert (
        artifact.read_metadata(output)["fingerprint"]
        == artifact.read_metadata(trained[0])["fingerprint"]
    )


@pytest.mark.slow
def test_killed_and_resumed_the_weights_are_the_same(
    world, trained, monkeypatch
):
    """With SIGKILL, in a process of its own, in the midst of an epoch."""
    output = str(world["root"] / "killed")
    code = f"""
from realm_tf.configs.dpr import get_recipe
from realm_tf.training import dense_retrieval
from realm_tf.training.dpr import train_dpr

train_dpr({world["model"]!r}, {world["blocks"]!r}, {world["questions"]!r},
    {output!r}, dev={world["dev"]!r}, recipe=get_recipe("tiny"), verbose=0,
    callbacks=[Stop(4, kill=True)], save_every_steps=1)
"""
    training_runs.run_and_kill(code)
    assert not os.path.exists(output)
    kept = os.listdir(f"{output}.partial/run")
    assert {"checkpoint", "selection", "retrieved.npy"} <= set(kept)

    def search(*_):
        raise AssertionError("BM25 was asked again.")

    monkeypatch.setattr(dense_retrieval, "Bm25", search)
    steps = training_runs.Steps()
    rows = _train(world, output, dev=world["dev"], callbacks=[steps])
    assert steps.count == 3
    assert rows == trained[1]
    assert (
        artifact.read_metadata(output)["fingerprint"]
        == artifact.read_metadata(trained[0])["fingerprint"]
    )
    assert sorted(each.name for each in Path(output).iterdir()) == FILES


@pytest.mark.slow
def test_separate_towers_both_move_above_what_is_frozen(world):
    loaded = model_directory.load(world["model"])
    loaded.model = loaded.model.separate_towers()
    start = str(world["root"] / "separate")
    model_directory.save(loaded, start)
    output = str(world["root"] / "separate-trained")
    recipe = get_recipe(
        "tiny",
        ["num_epochs=1", "freeze_word_embeddings=1", "num_frozen_layers=1"],
    )
    _train(world, output, model=start, recipe=recipe)
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


@pytest.mark.slow
def test_several_files_are_mixed_and_what_is_dropped_is_told(
    world, tmp_path, capsys
):
    more = [
        # Its evidence holds the answer, but is no block that BM25 puts first.
        {
            "question": "What is the river of Rome?",
            "answer": ["brown"],
            "evidence": {
                "title": "Rome",
                "sentence": "The water of the Tiber is brown.",
            },
        },
        {
            "question": "Where was Ada?",
            "answer": ["London"],
            "evidence": {"title": "Ada", "sentence": "Not in the corpus."},
        },
        {"question": "Where was Ada?", "answer": ["Leipzig"]},
    ]
    paths = [world["questions"], _write(tmp_path / "more.jsonl", more)]
    recipe = get_recipe("tiny", ["num_epochs=1"])
    _train(world, tmp_path / "model", questions=paths, recipe=recipe)
    told = capsys.readouterr().err
    assert (
        "2 of 11 questions to learn from are dropped: 1 have no answer in "
        "BM25's 100 best blocks, 1 name evidence that no block holds." in told
    )
    counts = artifact.read(str(tmp_path / "model"), kind="model")["counts"]
    assert counts == COUNTS | {
        "questions": 11,
        "dropped_evidence_in_no_block": 1,
        "dropped_no_answer_retrieved": 1,
        "positives_of_evidence": 1,
        "questions_an_epoch": 9,
        "steps": 3,
    }


def test_what_does_not_belong_together_is_refused(world, tmp_path):
    output = str(tmp_path / "out" / "model")
    os.makedirs(tmp_path / "out")
    nowhere = [{"question": "Where was Ada?", "answer": ["Leipzig"]}]
    nowhere = _write(tmp_path / "nowhere.jsonl", nowhere)

    def run(overrides=(), **arguments):
        recipe = get_recipe("tiny", list(overrides))
        _train(world, output, recipe=recipe, **arguments)

    with pytest.raises(InputError, match="holds 'model', expected 'blocks'"):
        run(blocks=world["model"])
    with pytest.raises(InputError, match="8 questions .* one batch of 100"):
        run(["batch_size=100"])
    with pytest.raises(InputError, match="512 wordpieces. Received: max_q"):
        run(["max_query_length=513"])
    with pytest.raises(InputError, match="None of the 1 questions to learn"):
        run(questions=nowhere)
    with pytest.raises(InputError, match="None of the 1 questions of --dev"):
        run(dev=nowhere)
    with pytest.raises(InputError, match="none.jsonl does not exist"):
        run(dev=str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="not on a local disk"):
        _train(world, "gs://bucket/model")
    assert not os.listdir(tmp_path / "out")
