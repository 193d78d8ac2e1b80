"""What the options of a fine-tuning recipe do."""

import json
import shutil

import numpy as np
import pytest
import training_runs
from fine_tuning_runs import operation

from realm_tf.answering.corpus import Corpus
from realm_tf.configs.finetune import RECIPES
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.retrieve import Retrieve
from realm_tf.retrieval.bm25 import Bm25
from realm_tf.training import fine_tuning
from realm_tf.training.fine_tuning import make_trainer
from realm_tf.training.index_refresh import IndexRefresh
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


@pytest.mark.slow
def test_blocks_of_a_ranking_are_read(open_qa_world, tmp_path, monkeypatch):
    """Those of BM25 in a file are BM25's; where there are fewer, no others."""
    given = {name: open_qa_world[name] for name in ("model", "blocks")}
    (questions,) = open_qa_world["questions"]
    fixed = ("train_query_tower=false", "num_candidates=5000", "num_epochs=1")
    ranking, others = tmp_path / "found.json", tmp_path / "others.json"
    Retrieve(
        **given,
        index=open_qa_world["exact"],
        questions=questions,
        retriever="bm25",
        form="dpr",
        output=str(ranking),
    ).run()
    asked = json.loads(ranking.read_text())
    for each in asked:
        each["ctxs"] = [c for c in each["ctxs"] if not c["has_answer"]][:1]
    others.write_text(json.dumps(asked))
    # Few of the 5,000 candidates of the recipe are kept.
    kept, search = [], Bm25.search
    monkeypatch.setattr(fine_tuning, "_KEPT_BLOCKS", 3)
    monkeypatch.setattr(
        Bm25, "search", lambda *args: kept.append(args[2]) or search(*args)
    )
    trained = []
    for name, options in (
        ("bm25", {}),
        ("file", {"ranking": str(ranking)}),
        ("file", {"ranking": str(others)}),
    ):
        output = tmp_path / str(len(trained))
        settings = (*fixed, f"retriever={name}")
        job = operation(open_qa_world, output, *settings, **options)
        model = job.run(verbose=0)
        (row,) = model.metadata["history"]
        trained.append(
            (
                training_runs.values(model_directory.load(model).model.reader),
                row,
            )
        )
    (own, own_row), (read, row), (_, least) = trained
    assert set(kept) == {3}
    assert row == own_row and row["candidates_recall"] > 0.5
    for name, value in own.items():
        np.testing.assert_array_equal(read[name], value)
    assert least["candidates_recall"] == least["loss"] == 0


@pytest.mark.slow
def test_a_refreshed_index_follows_the_shared_tower(open_qa_world, tmp_path):
    job = operation(open_qa_world, tmp_path / "model", "refresh_every=1")
    end = model_directory.load(job.run(verbose=0))
    start = model_directory.load(open_qa_world["model"])
    assert end.model.share_embedders
    assert end.metadata["block_tower"] != start.metadata["block_tower"]
    with pytest.raises(InputError, match="not made from the block tower of"):
        Corpus.load(job.output, open_qa_world["blocks"], open_qa_world["exact"])
    # Embedded again before every step but the first.
    assert read_log(job.output)[-1]["index_age"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("refresh", ["thread", "process"])
def test_others_embed_the_blocks_beside_the_steps(
    open_qa_world, tmp_path, monkeypatch, refresh
):
    end_of_step = IndexRefresh.on_train_batch_end
    swaps = []

    def with_the_builder(self, batch, logs=None):
        end_of_step(self, batch, logs)
        if self._thread is not None:
            self._thread.join()
        swaps[:] = self.swaps

    monkeypatch.setattr(IndexRefresh, "on_train_batch_end", with_the_builder)
    job = operation(
        open_qa_world,
        tmp_path / "model",
        *ONE_BATCH,
        *("refresh_every=1", f"refresh={refresh}", "num_epochs=4"),
    )
    end = model_directory.load(job.run(verbose=0))
    # Copied before each step but the first, taken before the next.
    assert swaps == [(2, 1), (3, 2)]
    lines = read_log(job.output)
    assert [line["index_age"] for line in lines] == [0, 1, 1, 1]
    assert end.model.share_embedders


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
        (["train_reader=false"], True, set()),
    ],
)
def test_a_recipe_says_what_learns(open_qa_world, changes, tower, reader):
    corpus = Corpus.load(
        open_qa_world["model"], open_qa_world["blocks"], open_qa_world["exact"]
    )
    trainer = make_trainer(corpus, None, RECIPES["tiny"].parse(changes))
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
    assert ("none" in found) == bool(reader)
    assert found - (embeddings - {"token_embedding"}) - {"none"} == reader
    assert len(trainer.trainable_variables) == len(
        model.query_embedder.trainable_variables
    ) + len(model.reader.trainable_variables)


def test_the_query_tower_learns_alone(open_qa_world, tmp_path):
    """The reader's metrics are not there, and its length stays as it was."""
    job = operation(
        open_qa_world,
        tmp_path / "model",
        *("train_reader=false", "max_joint_length=40", *ONE_BATCH),
        dev=open_qa_world["questions"][0],
    )
    end = model_directory.load(job.run(verbose=0))
    start = model_directory.load(open_qa_world["model"])
    assert training_runs.moved(
        start.model.query_embedder, end.model.query_embedder
    )
    assert not training_runs.moved(start.model.reader, end.model.reader)
    reader = end.model.reader
    assert reader.max_joint_length == start.model.reader.max_joint_length
    assert reader.trainable_variables
    for row in end.metadata["history"]:
        assert row["loss"] == pytest.approx(row["retriever_loss"], abs=1e-6)
        assert {"candidates_recall", "dev_exact_match"} < row.keys()
        assert not row.keys() & {"reader_loss", "span_accuracy"}


@pytest.mark.parametrize(
    ("changes", "with_teacher", "message"),
    [
        ("train_reader=false train_query_tower=false", False, "nothing learns"),
        ("train_reader=false read_titles=true", False, "does not learn to use"),
        ("train_reader=false", True, "--teacher is not for --set"),
        ("gold=read", False, "add --set read_an_answer=true"),
        ("near_miss_share=0.2", False, "none_weight=0 does not teach"),
        ("retriever=bm25", False, "add --set train_query_tower=false"),
        (
            "retriever=file train_query_tower=false",
            False,
            "give both or neither",
        ),
        ("refresh_every=1 train_query_tower=false", False, "needs one tower"),
    ],
)
def test_what_contradicts_itself_is_refused(
    open_qa_world, tmp_path, changes, with_teacher, message
):
    teachers = (open_qa_world["model"],) if with_teacher else ()
    with pytest.raises(InputError, match=message):
        operation(
            open_qa_world,
            tmp_path / "model",
            *changes.split(),
            teacher=teachers,
        ).run(verbose=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_another_models_reader_teaches(open_qa_world, tmp_path):
    teacher = open_qa_world["model"]
    job = operation(
        open_qa_world,
        tmp_path / "model",
        *ONE_BATCH,
        *("none_weight=0.5", "teacher_temperature=2"),
        teacher=[teacher, teacher],
    )
    rows = job.run(verbose=0).metadata["history"]
    for row in rows:
        assert row["loss"] == pytest.approx(
            row["retriever_loss"]
            + 0.25 * (row["reader_loss"] + row["none_loss"]) / 2
            + 0.75 * row["teacher_loss"],
            abs=1e-4,
        )
    # Before it has moved, dropout alone sets it apart.
    assert rows[0]["teacher_loss"] > 0
    parents = job.result.metadata["parents"]
    assert parents["teacher 0"] == parents["teacher 1"] == parents["model"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tokenizer", "0" * 64, "has another vocabulary than"),
        ("reads_titles", True, "reads titles, and .* add --set read_titles"),
        ("max_sequence_length", 64, "can be 320 wordpieces .* takes 64: "),
    ],
)
def test_a_teacher_of_other_inputs_is_refused(
    open_qa_world, tmp_path, name, value, message
):
    teacher = tmp_path / "teacher"
    shutil.copytree(open_qa_world["model"], teacher)
    for path in (teacher / "config.json", teacher / "metadata.json"):
        found = json.loads(path.read_text())
        reader = found.get("reader", {"encoder": {}})
        for part in (found, reader, reader["encoder"]):
            if name in part:
                part[name] = value
        path.write_text(json.dumps(found))
    job = operation(open_qa_world, tmp_path / "model", teacher=str(teacher))
    with pytest.raises(InputError, match=message):
        job.run(verbose=0)
    assert not (tmp_path / "model").exists()
