"""MPNet: retriever, reader and masked-LM start, against transformers."""

import json
import math
import pathlib
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
from init_runs import init
from named_weights import weights

from realm_tf.artifacts.objects import Model
from realm_tf.checkpoints import hugging_face
from realm_tf.configs.tagger import RECIPES as TAGGERS
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.transformer_encoder import RelativePositionBias
from realm_tf.operations.push import Push
from realm_tf.tagging import tagger_directory

TESTS = pathlib.Path(__file__).parents[1]
GOLDEN = TESTS / "golden" / "hf_mpnet"
BERT = TESTS / "golden" / "hf_bert"
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
# MPNet's ids of BERT's vocabulary, of which the first five are special.
IDS = np.arange(4, 64)
IDS[[0, 2, 3, 4]] = 1, 0, 2, 64


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDEN / "outputs.npz") as file:
        found = dict(file)
    ours = np.zeros(65, "int32")
    ours[IDS] = np.arange(60)
    found["inputs"] = {
        "token_ids": ours[found["token_ids"].astype("int32")],
        "segment_ids": np.zeros(found["token_ids"].shape, "int32"),
        "padding_mask": found["padding_mask"].astype("int32"),
    }
    return found


@pytest.fixture(scope="module")
def source():
    return hugging_face.open_source(str(GOLDEN))


def _copy(tmp_path, rename=lambda name: name, **more):
    """The checkpoint with other names and more tensors."""
    directory = tmp_path / "source"
    shutil.copytree(GOLDEN, directory)
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    named = {rename(name): value for name, value in tensors.items()}
    named.pop(None, None)
    safetensors.numpy.save_file(named | more, path)
    return directory


def test_masked_words_are_the_originals(goldens, tmp_path):
    """Of a model that was written and read, whose ids are BERT's."""
    loaded = init(GOLDEN, tmp_path / "model")
    words = (BERT / "vocab.txt").read_text().splitlines()
    assert loaded.tokenizer.vocabulary == words and loaded.tokenizer.lowercase
    model = loaded.model
    is_word = goldens["padding_mask"] == 1
    for encoder in (model.query_embedder.encoder, model.reader.encoder):
        found = np.asarray(encoder(goldens["inputs"])["sequence_output"])
        np.testing.assert_allclose(
            found[is_word], goldens["sequence_output"][is_word], **TOLERANCE
        )
    logits = model.knowledge_augmented_encoder(
        {
            **goldens["inputs"],
            "mask_positions": goldens["mask_positions"].astype("int32"),
        }
    )
    expected = goldens["logits"][..., IDS]
    np.testing.assert_allclose(np.asarray(logits), expected, **TOLERANCE)


@pytest.mark.parametrize("is_dot", [False, True])
def test_embeddings_are_the_originals(goldens, tmp_path, is_dot):
    """all-mpnet's: mean and norm 1; multi-qa's: the first, as it is."""

    def bare(name):
        return None if "lm_head" in name else name.removeprefix("mpnet.")

    directory = _copy(tmp_path, bare)
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * (not is_dot)
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{kind}" if i else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    mode = "pooling_mode_cls_token" if is_dot else "pooling_mode_mean_tokens"
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling/config.json").write_text(json.dumps({mode: True}))
    changes = ["--set", "dot=true"] if is_dot else []
    loaded = init(directory, tmp_path / "model", *changes)
    tower = loaded.model.query_embedder
    found = np.asarray(tower(goldens["inputs"]))
    sequence = goldens["sequence_output"]
    if is_dot:
        expected = sequence[:, 0]
    else:
        expected = sequence.sum(1) / goldens["padding_mask"].sum(1)[:, None]
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    assert loaded.model.score_scale == (1 if is_dot else 20)


def test_a_reader_beside_a_bert(goldens, tmp_path):
    """MPNetForQuestionAnswering; both read the wordpieces of BERT."""
    random = np.random.default_rng(3)
    kernel = random.normal(size=(2, 16)).astype("float32")
    head = {"qa_outputs.weight": kernel, "qa_outputs.bias": np.ones(2, "f4")}
    directory = _copy(
        tmp_path, lambda name: None if "lm_head" in name else name, **head
    )
    loaded = init(BERT, tmp_path / "model", "--reader", str(directory))
    reader = loaded.model.reader
    scores = np.asarray(reader(goldens["inputs"]))
    starts, ends = np.moveaxis(goldens["sequence_output"] @ kernel.T, -1, 0)
    width = scores.shape[2]
    assert width == 32
    for row, length in enumerate(goldens["padding_mask"].sum(1)):
        null = starts[row, 0] + ends[row, 0]
        for start in range(length):
            limit = min(length, start + width)
            np.testing.assert_allclose(
                scores[row, start, : limit - start],
                starts[row, start] + ends[row, start:limit] - null,
                atol=1e-4,
            )


def test_each_distance_has_the_originals_bucket():
    """By the formula of modeling_mpnet.py, in float64."""
    layer = RelativePositionBias(32, 1)
    layer.build((None, 600))
    layer.embeddings.assign(np.arange(32.0)[:, None])
    (found,) = np.asarray(layer(np.zeros((1, 600), "int32")))
    for query, key in ((0, 599), (599, 0), (300, 300)):
        assert found[query, key] == {0: 31, 599: 15, 300: 0}[query]
    for distance in range(600):
        bucket = distance
        if distance >= 8:
            share = math.log(distance / 8) / math.log(128 / 8)
            bucket = min(8 + int(share * 8 + 1e-9), 15)
        # Keys before the query, and after it.
        assert found[distance, 0] == bucket
        assert found[0, distance] == bucket + 16 * (distance > 0)


def test_the_bias_learns(source):
    """Alike with checkpointing, and no longer if it is frozen."""
    inputs = {
        name: np.array(
            [[2, 7, 9, 11, 8, 3]] if name == "token_ids" else [[1] * 6]
        )
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    moved = {}
    for recompute in (False, True):
        # The pooled output's layer is random.
        keras.utils.set_random_seed(0)
        encoder = source.makers["bert"]()
        encoder.set_dropout(0.0)
        encoder.set_recompute(recompute)
        outputs = encoder(encoder.input)["pooled_output"]
        model = keras.Model(encoder.input, outputs)
        before = weights(encoder)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.train_on_batch(inputs, np.zeros((1, 16), "float32"))
        moved[recompute] = {
            path: value - before[path]
            for path, value in weights(encoder).items()
        }
    bias = "relative_position_embedding/embeddings"
    # Distances of one to five, in both directions, and none.
    assert np.abs(moved[False][bias]).max(axis=1).nonzero()[0].tolist() == [
        *range(6),
        *range(17, 22),
    ]
    for path, change in moved[False].items():
        np.testing.assert_allclose(moved[True][path], change, atol=1e-6)
    encoder.freeze(embeddings=True)
    assert "embedding" not in {
        v.path.split("/")[0].rpartition("_")[2]
        for v in encoder.trainable_variables
    }


def test_fingerprints_of_berts_towers_are_of_their_configuration(source):
    assert source.makers["bert"]().get_config()["num_relative_buckets"] == 32
    bert = BertEncoder(9, 1, 1, 4, 8)
    assert "num_relative_buckets" not in bert.get_config()
    assert bert.num_relative_buckets == 0


def test_another_vocabulary_is_refused(tmp_path):
    directory = _copy(tmp_path)
    (directory / "vocab.txt").write_text((BERT / "vocab.txt").read_text() + "x")
    with pytest.raises(InputError, match=r"has 65 rows for 66 wordpieces: exp"):
        hugging_face.open_source(str(directory))


def test_what_only_a_bert_can_be(tmp_path):
    loaded = init(GOLDEN, tmp_path / "model", "--set", "cosine=true")
    model = Model(str(tmp_path / "model"))
    for format in ("sentence-transformers", "keras-hub"):
        with pytest.raises(InputError, match="of MPNet's shape: --format"):
            Push(model=model, to=str(tmp_path / "to"), format=format).run()
    with pytest.raises(InputError, match="A tagger begins with a BERT"):
        tagger_directory.from_model(loaded, ["O"], TAGGERS["laptop"])
