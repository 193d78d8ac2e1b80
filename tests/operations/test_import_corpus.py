"""`realm import` of texts and embeddings of blocks, against the goldens."""

import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import training_runs
from hugging_face_goldens import GOLDEN
from hugging_face_goldens import TOLERANCE
from hugging_face_goldens import copy_golden
from hugging_face_goldens import import_hf
from named_weights import save_tf

from realm_tf import cli
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import published
from realm_tf.checkpoints import tf1
from realm_tf.checkpoints.assignment import extract
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.tensor_files import open_safetensors
from realm_tf.checkpoints.tensor_files import open_torch_file
from realm_tf.errors import InputError
from realm_tf.models import model_directory

NUM_BLOCKS = 64


def test_the_blocks_are_the_records(open_qa):
    records = np.load(
        GOLDEN / "openqa" / "block_records.npy", allow_pickle=True
    )
    blocks = list(Blocks(open_qa["blocks"]).read())
    assert len(blocks) == NUM_BLOCKS
    for number, (block, record) in enumerate(zip(blocks, records, strict=True)):
        assert block.text == " ".join(record.decode("utf-8").split())
        assert block.title == "" and block.article_id == str(number)


def test_the_embeddings_are_the_published(open_qa):
    """And the block tower computes the same: nothing is said of a warning."""
    embeddings = Index(open_qa["index"]).embeddings
    with np.load(GOLDEN / "outputs.npz") as file:
        goldens = dict(file)
    assert not published.check_embeddings(
        Model(open_qa["model"]),
        Blocks(open_qa["blocks"]),
        hugging_face.open_source(str(GOLDEN / "openqa")).block_embeddings,
    )
    for case in range(4):
        question = goldens[f"openqa/{case}/out/question_projection"]
        np.testing.assert_allclose(
            (embeddings @ question.T)[:, 0],
            goldens[f"openqa/{case}/out/block_scores"],
            **TOLERANCE,
        )


def test_what_is_there_already_is_left_alone(open_qa):
    before = {
        name: (pathlib.Path(path) / "metadata.json").read_bytes()
        for name, path in open_qa.items()
    }
    lines = import_hf(
        ["openqa"],
        open_qa["model"],
        blocks=open_qa["blocks"],
        max_block_length=64,
        embeddings=open_qa["embeddings"],
        license="apache-2.0",
    )
    assert list(lines) == [
        f"{open_qa[name]}: there already"
        for name in ("model", "blocks", "embeddings")
    ]
    for name, path in open_qa.items():
        path = pathlib.Path(path) / "metadata.json"
        assert path.read_bytes() == before[name]
    # Another option is another import.
    with pytest.raises(InputError, match="model"):
        import_hf(["openqa"], open_qa["model"], license="mit")


def test_two_commands_from_the_hub(open_qa, hub, tmp_path, capsys):
    """The commands of docs/how_to/import_checkpoint.md, as of directories."""
    for name in ("openqa", "embedder"):
        hub.add(f"google/{name}", GOLDEN / name)
    paths = {n: str(tmp_path / n) for n in ("model", "blocks", "embeddings")}
    command = [
        *("import", "hf", "--source", "hf://google/openqa"),
        *("--block-tower", "hf://google/embedder", "--output", paths["model"]),
        *("--blocks", paths["blocks"], "--embeddings", paths["embeddings"]),
        *("--max-block-length", "64"),
    ]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert "reader: from hf://google/openqa" in printed
    assert "block tower: from hf://google/embedder" in printed
    # The embeddings are another tower's.
    assert "warning: 8 blocks embedded with the block tower differ" in printed
    assert not model_directory.load(paths["model"]).model.share_embedders
    assert "block_records.npy" in hub.files_sent()
    index = ["--embeddings", paths["embeddings"], "--kind", "brute_force"]
    assert cli.main(["index", *index, "--output", str(tmp_path / "index")]) == 0
    found = Index(tmp_path / "index").embeddings
    expected = Index(open_qa["index"]).embeddings
    np.testing.assert_array_equal(found, expected)
    blocks = Blocks(paths["blocks"])
    assert blocks.fingerprint == Blocks(open_qa["blocks"]).fingerprint
    # The same command, once more: what is there is left alone.
    assert cli.main(command) == 0
    assert "there already" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["model", "blocks", "embeddings"])
def test_what_is_there_of_something_else_is_refused(open_qa, tmp_path, name):
    paths = {n: str(tmp_path / n) for n in ("model", "blocks", "embeddings")}
    paths[name] = open_qa[name]
    texts = tmp_path / "block_records.npy"
    shutil.copy(GOLDEN / "openqa" / "block_records.npy", texts)
    with pytest.raises(InputError, match="was made with"):
        import_hf(
            ["openqa"],
            paths["model"],
            license="mit",
            blocks=paths["blocks"],
            # Embeddings know blocks by what is in them.
            max_block_length=40,
            texts=str(texts),
            embeddings=paths["embeddings"],
            block_tower=str(GOLDEN / "embedder"),
        )


def test_a_row_that_is_no_number_is_refused(tmp_path):
    rows = np.zeros((6, 3), "float32")
    rows[4, 1] = np.nan
    path = str(tmp_path / "model.safetensors")
    safetensors.numpy.save_file({"e": rows}, path)
    embeddings = BlockEmbeddings(open_safetensors(path), "e")
    assert len(embeddings) == 6
    np.testing.assert_array_equal(embeddings[1:4], rows[1:4])
    with pytest.raises(InputError, match="row 4 of e holds NaN"):
        embeddings[2:6]


def test_texts_that_do_not_belong_to_the_embeddings(tmp_path):
    source = copy_golden("openqa", tmp_path)
    path = source / "block_records.npy"
    records = np.load(path, allow_pickle=True)
    np.save(path, records[:-1], allow_pickle=True)
    with pytest.raises(InputError, match="holds 63 texts .* 64 embeddings"):
        import_hf(
            [str(source)],
            str(tmp_path / "model"),
            blocks=str(tmp_path / "blocks"),
        )
    assert not (tmp_path / "blocks").exists()


def _tf1_names(model):
    """A RealmForOpenQA as a fine-tuned checkpoint of the original has it."""
    found = {}
    for scope, part in (
        ("module/module/module/module/", model.query_embedder),
        ("reader/module/", model.reader),
    ):
        (layout,) = (each for each in tf1._NAMES.layouts if each.scope == scope)
        mapping = tf1._NAMES.mapping(layout, part.encoder.num_layers)
        found |= extract(part, mapping)
    return found


@pytest.mark.slow
def test_the_originals_files_give_the_same(open_qa, tmp_path, monkeypatch):
    """TF1 checkpoints, embeddings, texts and titles."""
    # The goldens' heads are narrower than those of a published BERT.
    monkeypatch.setattr(tf1, "_HEAD_DIM", 16)
    source = open_torch_file(str(GOLDEN / "openqa" / "pytorch_model.bin"))
    directory = tmp_path / "orqa"
    (directory / "encoded").mkdir(parents=True)
    expected = model_directory.load(open_qa["model"]).model
    arrays = _tf1_names(expected)
    assert arrays["reader/dense/kernel"].shape == (32, 64)
    arrays["global_step"] = np.int64(9)
    arrays["reader/dense/bias/adam_m"] = np.zeros(64, "float32")
    save_tf(directory / "model.ckpt-9", arrays)
    save_tf(
        directory / "encoded" / "encoded.ckpt",
        {"block_emb": source.read("block_emb")},
    )
    records = np.load(
        GOLDEN / "openqa" / "block_records.npy", allow_pickle=True
    )
    for name, texts in (
        ("blocks", records),
        ("titles", [f"Title {n}".encode() for n in range(NUM_BLOCKS)]),
    ):
        with tf.io.TFRecordWriter(str(directory / f"{name}.tfr")) as writer:
            for text in texts:
                writer.write(text)
    paths = {n: str(tmp_path / n) for n in ("model", "blocks", "embeddings")}
    command = [
        *("import", "tf1", "--source", str(directory)),
        *("--vocab", str(GOLDEN / "openqa" / "vocab.txt")),
        *("--output", paths["model"], "--blocks", paths["blocks"]),
        *("--embeddings", paths["embeddings"], "--max-block-length", "64"),
    ]
    assert cli.main(command) == 0
    model = model_directory.load(paths["model"]).model
    for part in ("query_embedder", "reader"):
        ours, theirs = (getattr(each, part) for each in (model, expected))
        assert not training_runs.moved(ours, theirs)
    blocks = zip(
        Blocks(paths["blocks"]).read(),
        Blocks(open_qa["blocks"]).read(),
        strict=True,
    )
    for number, (block, other) in enumerate(blocks):
        assert block.title == f"Title {number}" and block.text == other.text
        assert block.token_ids == other.token_ids
    np.testing.assert_array_equal(
        *(Embeddings(each["embeddings"]).read() for each in (paths, open_qa))
    )
