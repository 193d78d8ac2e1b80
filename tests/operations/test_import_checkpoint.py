"""`realm import` of models, against what transformers 4.40.2 computed.

tests/golden/README.md says how the files were made.
"""

import pathlib

import numpy as np
import pytest
import safetensors.numpy
import training_runs
from hugging_face_goldens import GOLDEN
from hugging_face_goldens import TOLERANCE
from hugging_face_goldens import copy_golden
from hugging_face_goldens import import_hf

from realm_tf import cli
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts import fingerprints
from realm_tf.errors import InputError
from realm_tf.models import model_directory


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDEN / "outputs.npz") as file:
        return dict(file)


def _inputs(goldens, prefix, start=""):
    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
    }
    arrays = {k: goldens[f"{prefix}{start}{n}"] for k, n in names.items()}
    return {
        k: array.reshape(-1, array.shape[-1]).astype("int32")
        for k, array in arrays.items()
    }


def test_an_embedder(goldens, tmp_path):
    output = str(tmp_path / "model")
    lines = import_hf(["embedder"], output)
    model = model_directory.load(output).model
    assert model.share_embedders
    np.testing.assert_allclose(
        np.asarray(model.block_embedder(_inputs(goldens, "embedder/in/"))),
        goldens["embedder/out/projected_score"],
        **TOLERANCE,
    )
    assert f"{GOLDEN}/embedder: 6 tensors not read" in lines
    assert "reader: the BERT of the embedder, its head is random" in lines
    reader, tower = model.reader.encoder, model.query_embedder.encoder
    assert not training_runs.moved(reader, tower) and reader is not tower


def test_a_scorer_has_two_towers(goldens, tmp_path):
    output = str(tmp_path / "model")
    import_hf(["scorer"], output, vocab=str(GOLDEN / "embedder" / "vocab.txt"))
    model = model_directory.load(output).model
    assert not model.share_embedders
    queries = np.asarray(model.embed_queries(_inputs(goldens, "scorer/in/")))
    blocks = np.asarray(
        model.embed_blocks(_inputs(goldens, "scorer/in/", "candidate_"))
    ).reshape(2, 4, -1)
    for name, found in (
        ("query_score", queries),
        ("candidate_score", blocks),
        ("relevance_score", np.einsum("bd,bnd->bn", queries, blocks)),
    ):
        np.testing.assert_allclose(
            found, goldens[f"scorer/out/{name}"], **TOLERANCE
        )


def test_questions_are_answered_as_the_peer_does(open_qa, goldens, monkeypatch):
    # The peer's equal answers do not add up.
    monkeypatch.setattr(np, "logaddexp", np.maximum)
    corpus = Corpus.load(open_qa["model"], open_qa["blocks"], open_qa["index"])
    tokenizer = corpus.loaded.tokenizer
    questions = goldens["openqa/questions"].tolist()
    # The longest blocks are cut beside three of the questions.
    assert corpus.loaded.model.reader.max_joint_length == 72
    predictor = Predictor(corpus, num_candidates=5, num_reader_blocks=5)
    predictions = predictor.predict(questions)
    for case, found in enumerate(predictions):
        prefix = f"openqa/{case}/out"
        retrieved = goldens[f"{prefix}/retrieved_block_ids"]
        assert found.retrieved == retrieved.tolist()
        read = int(goldens[f"{prefix}/block_idx"])
        assert found.block_id == retrieved[read]
        answer = tokenizer.tokenize(found.answer).ids
        assert answer == goldens[f"{prefix}/predicted_answer_ids"].tolist()
        logits = goldens[f"{prefix}/span_logits"]
        np.testing.assert_allclose(found.score, logits.max(), **TOLERANCE)


def test_the_card_says_where_it_is_from(open_qa):
    card = (pathlib.Path(open_qa["model"]) / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    source = GOLDEN / "openqa" / "pytorch_model.bin"
    assert f"| {source} | {fingerprints.sha256(str(source))} |" in card
    weights = pathlib.Path(open_qa["model"]) / "model.weights.h5"
    assert f"| model.weights.h5 | {fingerprints.sha256(str(weights))} |" in card
    assert "tensors not read" in card
    # What is trained from it says so, too.
    loaded = model_directory.load(open_qa["model"])
    assert loaded.card.license == "apache-2.0"
    assert loaded.card.sources[0][0] == str(source)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["scorer"], "holds no vocab.txt"),
        (["embedder", "openqa"], "holds a second embedder"),
        (
            ["nothing"],
            "nothing holds no config.json: expected a directory with",
        ),
    ],
)
def test_sources_that_make_no_model(tmp_path, sources, message):
    with pytest.raises(InputError, match=message):
        import_hf(sources, str(tmp_path / "model"))
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_of_another_size(tmp_path):
    source = copy_golden("embedder", tmp_path)
    with (source / "vocab.txt").open("a") as file:
        file.write("another\n")
    with pytest.raises(InputError, match="1,001 wordpieces, the weights 1"):
        import_hf([str(source)], str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("is_whole", [False, True])
def test_damaged_weights_leave_nothing_behind(tmp_path, is_whole, capsys):
    source = copy_golden("embedder", tmp_path)
    path = source / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    name = "realm.encoder.layer.1.output.dense.weight"
    if is_whole:
        expected = f"{name} of type float32 holds NaN"
        tensors[name][3, 2] = np.nan
        safetensors.numpy.save_file(tensors, path)
    else:
        expected = "cannot be read as safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    output = str(tmp_path / "model")
    status = cli.main(
        ["import", "hf", "--source", str(source), "--output", output]
    )
    assert status == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not list(tmp_path.glob("model*"))
