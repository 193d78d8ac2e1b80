"""Fine-tuning end to end on the tiny world, with a model of one layer."""

import os
import shutil

import pytest
import training_runs
from fine_tuning_runs import operation

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.training.training_log import read_log

# Two epochs of one batch each.
ONE_BATCH = ("batch_size=8", "num_reader_blocks=1")


@pytest.fixture(scope="module")
def tuned(open_qa_world):
    return operation(
        open_qa_world, open_qa_world["root"] / "tuned", *ONE_BATCH
    ).run(verbose=0)


def test_query_tower_and_reader_move_and_block_tower_not(open_qa_world, tuned):
    start = model_directory.load(open_qa_world["model"])
    end = model_directory.load(tuned)
    assert start.model.share_embedders and not end.model.share_embedders
    assert end.model.reader.is_trained and not start.model.reader.is_trained
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


def test_the_metadata_says_what_was_done(open_qa_world, tuned):
    metadata, rows = tuned.metadata, tuned.metadata["history"]
    assert len(rows) == 2
    for row in rows:
        assert row["loss"] == pytest.approx(
            row["retriever_loss"] + row["reader_loss"], abs=1e-5
        )
        assert row["candidates_recall"] >= row["top_block_recall"]
    assert metadata["counts"] == {
        "questions": 8,
        "patterns": 0,
        "without_answer": 0,
        "steps": 2,
    }
    # What only the run needed is gone.
    assert sorted(os.listdir(tuned.path)) == [*training_runs.FILES]
    # The first epoch's and the second's, of one batch each.
    lines = read_log(tuned.path)
    assert [line["step"] for line in lines] == [1, 2]
    assert [line["loss"] for line in lines] == [row["loss"] for row in rows]
    assert metadata["parameters"]["batch_size"] == 8
    parents = metadata["parents"]
    model = artifact.read(open_qa_world["model"], kind="model")
    index = artifact.read(open_qa_world["exact"], kind="index")
    assert parents["model"] == model["fingerprint"]
    assert parents["index"] == index["fingerprint"]
    assert parents["questions 0"] == fingerprints.fingerprint(
        Path(*open_qa_world["questions"]).read_bytes()
    )


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_model(open_qa_world, tmp_path):
    """With dev, two files and patterns; stopped in the second file."""

    def run(name, **fit):
        job = operation(
            open_qa_world,
            tmp_path / name,
            "log_every=1",
            questions=open_qa_world["questions"] * 2,
            dev=open_qa_world["questions"][0],
        )
        return job.run(verbose=0, **fit)

    expected = run("whole")
    # Two epochs of two steps a file.
    assert len(expected.metadata["history"]) == 4
    with pytest.raises(KeyboardInterrupt):
        run("stopped", callbacks=[training_runs.Stop(6)], every_seconds=0)
    assert not os.path.exists(tmp_path / "stopped")
    # Six steps are done; the state of the fifth is saved.
    resumed = run("stopped")
    for name in ("history", "fingerprint", "best_step", "best"):
        assert resumed.metadata[name] == expected.metadata[name]
    rows = expected.metadata["history"]
    best = max(row["dev_exact_match"] for row in rows)
    assert expected.metadata["best"] == {"dev_exact_match": best}
    epoch, rest = divmod(expected.metadata["best_step"], 2)
    assert rows[epoch - 1]["dev_exact_match"] == best and not rest


def test_dev_is_not_what_is_learned_from(open_qa_world, tmp_path):
    """So a run that was stopped goes on with neither in place of the other."""
    (path,) = open_qa_world["questions"]
    with_dev, without = (
        operation(open_qa_world, tmp_path / "model", **given).parents()
        for given in ({"dev": path}, {"questions": [path, path]})
    )
    assert with_dev != without
    assert with_dev["dev"] and "dev" not in without


def test_what_does_not_match(open_qa_world, model_dir, tuned, tmp_path):
    output = tmp_path / "out" / "model"
    with pytest.raises(InputError, match="not made from the block tower of"):
        operation(open_qa_world, output, model=model_dir).run()
    with pytest.raises(InputError, match="exists already"):
        operation(open_qa_world, tuned.path).run()
    copy = tmp_path / "half"
    shutil.copytree(open_qa_world["model"], copy)
    os.remove(copy / "COMPLETED")
    with pytest.raises(InputError, match="half is not complete"):
        operation(open_qa_world, output, model=copy).run()
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"question": "When?", "answer": ["q+"], "answer_type": "regex"}\n'
    )
    with pytest.raises(InputError, match="a pattern that matches nothing or"):
        operation(open_qa_world, output, questions=[path]).run()
    assert not output.parent.exists() or not os.listdir(output.parent)
