"""The token classifier: its start, its loss, its directory."""

import shutil

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.configs.recipes import Freezing
from realm_tf.configs.tagger import TaggerRecipe
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.tagging import tagger_directory
from realm_tf.tagging import token_classifier
from realm_tf.tagging.sentence_batches import SHAPES

LABELS = ["O", "B-PER", "I-PER"]


def _save(tagger, output):
    with artifact.write(output, kind="tagger") as stage:
        tagger_directory.write_files(tagger, stage)


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    padding_mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], "int32")
    return {
        "token_ids": random.integers(5, 40, (2, 6)).astype("int32")
        * padding_mask,
        "shape_ids": random.integers(1, len(SHAPES), (2, 6)).astype("int32")
        * padding_mask,
        "padding_mask": padding_mask,
    }


def _tagger(model_dir, **arguments):
    recipe = TaggerRecipe(max_length=32, freezing=Freezing(**arguments))
    loaded = model_directory.load(model_dir)
    return tagger_directory.from_model(loaded, LABELS, recipe)


def _randomize(model, seed=0):
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(random.normal(scale=0.5, size=variable.shape))


def test_it_starts_from_what_the_encoder_was(model_dir, batch):
    """Shapes add nothing yet: W h + b with the encoder's own h."""
    encoder = model_directory.load(model_dir).model.block_embedder.encoder
    tagger = _tagger(model_dir)
    hidden = encoder.predict_on_batch(
        {
            "token_ids": batch["token_ids"],
            "segment_ids": np.zeros_like(batch["token_ids"]),
            "padding_mask": batch["padding_mask"],
        }
    )["sequence_output"]
    kernel, bias = map(np.asarray, tagger.model.get_layer("labels").weights)
    np.testing.assert_allclose(
        tagger.model.predict_on_batch(batch), hidden @ kernel + bias, atol=1e-5
    )
    assert not np.asarray(
        tagger.model.get_layer("shape_embedding").embeddings
    ).any()


def test_shapes_are_seen_by_the_words_around(model_dir, batch):
    tagger = _tagger(model_dir)
    _randomize(tagger.model)
    before = tagger.model.predict_on_batch(batch)
    other = {**batch, "shape_ids": batch["shape_ids"].copy()}
    other["shape_ids"][0, 2] = (batch["shape_ids"][0, 2] % 8) + 1
    after = tagger.model.predict_on_batch(other)
    moved = np.abs(after - before).max(axis=-1) > 1e-4
    assert moved[0].all() and not moved[1].any()


def test_the_loss_against_numpy():
    random = np.random.default_rng(0)
    logits = random.normal(scale=3.0, size=(3, 5, 4))
    logits[0, 0] = [1e3, -1e3, 0.0, 0.0]
    labels = random.integers(0, 4, (3, 5))
    weights = (random.random((3, 5)) < 0.4).astype("float32")
    weights[0, 0] = 1.0
    # A row that decides no word.
    weights[2] = 0.0
    expected, count = 0.0, 0
    for i, j in np.argwhere(weights):
        row = logits[i, j] - logits[i, j].max()
        expected += np.log(np.exp(row).sum()) - row[labels[i, j]]
        count += 1
    loss = token_classifier.word_loss()
    found = loss(labels, logits.astype("float32"), sample_weight=weights)
    assert float(found) == pytest.approx(expected / count, rel=1e-5)
    # Nothing to learn from is no division by zero.
    found = loss(labels, logits.astype("float32"), sample_weight=0.0 * weights)
    assert float(found) == 0.0


def test_what_is_frozen_does_not_learn(model_dir):
    def learned(**arguments):
        variables = _tagger(model_dir, **arguments).model.trainable_variables
        return {variable.path.split("/")[0] for variable in variables}

    everything = learned()
    tables = {
        "token_embedding",
        "position_embedding",
        "segment_embedding",
        "embeddings_layer_norm",
    }
    assert everything == tables | {
        "shape_embedding",
        "transformer_layer_0",
        "transformer_layer_1",
        "labels",
    }
    assert learned(freeze_word_embeddings=True) == everything - tables
    assert learned(num_frozen_layers=1) == everything - {"transformer_layer_0"}


def test_more_positions_than_the_model_has_are_refused(model_dir):
    with pytest.raises(InputError, match="max_length=513 .* 512 positions"):
        tagger_directory.from_model(
            model_directory.load(model_dir),
            LABELS,
            TaggerRecipe(max_length=513),
        )


def test_a_word_without_a_wordpiece_is_outside(model_dir):
    tagger = _tagger(model_dir)
    kernel, bias = tagger.model.get_layer("labels").weights
    kernel.assign(0.0 * kernel)
    bias.assign([0.0, 1.0, 0.0])
    rows = tagger.sentence_encoder().encode_words(
        [("Nile", "\u200b", "is"), ("\u200b",), ("a",)]
    )
    assert tagger.predict_tags(rows, [3, 1, 1], batch_size=2) == [
        ["B-PER", "O", "B-PER"],
        ["O"],
        ["B-PER"],
    ]
    assert tagger.predict_tags([], [1, 0], batch_size=2) == [["O"], []]


@pytest.fixture(scope="module")
def saved(model_dir, tmp_path_factory):
    tagger = _tagger(model_dir)
    _randomize(tagger.model)
    output = str(tmp_path_factory.mktemp("taggers") / "tagger")
    _save(tagger, output)
    return tagger, output


def test_what_is_saved_comes_back(saved, batch, tmp_path):
    tagger, output = saved
    found = tagger_directory.load(output)
    np.testing.assert_array_equal(
        found.model.predict_on_batch(batch),
        tagger.model.predict_on_batch(batch),
    )
    assert found.labels == tuple(LABELS)
    assert found.max_length == 32
    assert found.tokenizer.vocabulary == tagger.tokenizer.vocabulary
    assert found.tokenizer.lowercase == tagger.tokenizer.lowercase
    # The same again has the same fingerprint, another has not.
    again, other = str(tmp_path / "again"), str(tmp_path / "other")
    _save(found, again)
    _randomize(found.model, seed=1)
    _save(found, other)
    fingerprints = [
        artifact.read(path, kind="tagger")["fingerprint"]
        for path in (output, again, other)
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_damage_is_one_clear_line(saved, model_dir, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved[1], copy)
    weights = copy / model_directory.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="model.weights.h5 is damaged"):
        tagger_directory.load(str(copy))
    with pytest.raises(InputError, match="holds 'model', expected 'tagger'"):
        tagger_directory.load(model_dir)
