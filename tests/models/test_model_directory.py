"""Model directories: what is saved comes back, and is told from others."""

import json
import shutil

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.embedder import Embedder
from realm_tf.models.model_directory import LoadedModel
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.text.tokenizer import Tokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Nile", "##s"]


def _loaded(make_encoder, randomize, *, shared):
    def encoder(**arguments):
        return make_encoder(
            vocabulary_size=len(VOCABULARY),
            activation="gelu",
            dropout=0.2,
            **arguments,
        )

    def tower(seed):
        tower = Embedder(
            encoder(),
            pooling="mean",
            projection_dim=4,
            normalize=True,
            layer_norm_epsilon=1e-3,
        )
        randomize(tower, seed=seed)
        return tower

    reader = Reader(
        encoder(num_layers=1),
        span_hidden_dim=6,
        max_span_width=3,
        layer_norm_epsilon=1e-4,
        none_span=True,
    )
    randomize(reader, seed=3)
    query_embedder = tower(1)
    block_embedder = query_embedder if shared else tower(2)
    return LoadedModel(
        OpenQa(query_embedder, block_embedder, reader, score_scale=20.0),
        Tokenizer(VOCABULARY, lowercase=False),
        block_segment_ids=(0, 0),
    )


@pytest.fixture(params=[True, False], ids=["shared", "separate"])
def loaded(request, make_encoder, randomize):
    return _loaded(make_encoder, randomize, shared=request.param)


@pytest.fixture(scope="module")
def inputs():
    return {
        "token_ids": np.array([[2, 5, 6, 3, 0]]),
        "segment_ids": np.array([[0, 0, 1, 1, 0]]),
        "padding_mask": np.array([[1, 1, 1, 1, 0]]),
    }


def test_what_is_saved_comes_back(loaded, inputs, tmp_path):
    output = str(tmp_path / "model")
    model_directory.save(loaded, output, parameters={"from": "test"})
    found = model_directory.load(output)
    assert found.model.share_embedders == loaded.model.share_embedders
    for function in ("embed_queries", "embed_blocks", "reader"):
        np.testing.assert_array_equal(
            np.asarray(getattr(found.model, function)(inputs)),
            np.asarray(getattr(loaded.model, function)(inputs)),
        )
    for part in ("query_embedder", "block_embedder", "reader"):
        ours, theirs = (getattr(m.model, part) for m in (found, loaded))
        assert _config(ours) == _config(theirs)
        assert _config(ours.encoder) == _config(theirs.encoder)
    assert found.model.score_scale == 20.0
    assert found.block_segment_ids == (0, 0)
    assert found.tokenizer.vocabulary == VOCABULARY
    assert not found.tokenizer.lowercase
    assert found.tokenizer.tokenize("Niles nile").ids == [5, 6, 1]
    metadata = found.metadata
    assert metadata["parameters"] == {"from": "test"}
    assert metadata["tokenizer"] == loaded.tokenizer.fingerprint()
    assert metadata["block_tower"] == loaded.block_tower_fingerprint()
    assert found.block_tower_fingerprint() == loaded.block_tower_fingerprint()


def _config(part):
    config = part.get_config()
    return {k: v for k, v in config.items() if k not in ("name", "encoder")}


def _fingerprints(loaded, path):
    model_directory.save(loaded, str(path))
    metadata = artifact.read(str(path), kind="model")
    return metadata["fingerprint"], metadata["block_tower"]


def test_the_block_tower_comes_back_alone(loaded, inputs, tmp_path):
    path = str(tmp_path / "model")
    model_directory.save(loaded, path)
    alone = model_directory.load(path, only_block_tower=True).model
    expected = loaded.model.block_embedder
    np.testing.assert_array_equal(
        alone.block_embedder(inputs), expected(inputs)
    )
    assert len(alone.weights) == len(expected.weights)


def test_changes_show_in_fingerprints(make_encoder, randomize, tmp_path):
    def changed(name, change):
        loaded = _loaded(make_encoder, randomize, shared=False)
        change(loaded)
        return _fingerprints(loaded, tmp_path / name)

    def shift(part):
        variable = part.trainable_variables[-1]
        variable.assign(variable + 1e-6)

    whole, tower = changed("same", lambda loaded: None)
    assert changed("again", lambda loaded: None) == (whole, tower)
    # Neither query tower nor reader nor scale moves a block's embedding.
    for name in ("query_embedder", "reader"):
        found = changed(name, lambda x, n=name: shift(getattr(x.model, n)))
        assert found[0] != whole and found[1] == tower, name
    found = changed("scale", lambda x: setattr(x.model, "score_scale", 1.0))
    assert found[0] != whole and found[1] == tower
    for name, change in (
        ("block", lambda x: shift(x.model.block_embedder)),
        ("segments", lambda x: setattr(x, "block_segment_ids", (0, 1))),
        ("cased", lambda x: setattr(x, "tokenizer", Tokenizer(VOCABULARY))),
    ):
        found = changed(name, change)
        assert found[0] != whole and found[1] != tower, name


@pytest.fixture(scope="module")
def directory(make_encoder, randomize, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("models") / "model")
    model_directory.save(_loaded(make_encoder, randomize, shared=True), output)
    return output


def test_damaged_weights_are_one_clear_line(directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    path = copy / model_directory.WEIGHTS
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="model.weights.h5 is damaged"):
        model_directory.load(str(copy))
    # The weights of another model, and a head that has none.
    config = json.loads((copy / "config.json").read_text())
    config["reader"]["span_hidden_dim"] = 7
    (copy / "config.json").write_text(json.dumps(config))
    shutil.copy(f"{directory}/{model_directory.WEIGHTS}", path)
    with pytest.raises(InputError, match="model.weights.h5 is damaged"):
        model_directory.load(str(copy))
    config["reader"]["span_hidden_dim"] = 6
    config["masked_lm_head"] = True
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="model.weights.h5 is damaged"):
        model_directory.load(str(copy))


CRAFTED = [
    ("reader", None),
    ("reader", "DELETED"),
    ("query_embedder", ["x"]),
    ("reader.encoder", 3),
    ("reader.encoder.num_heads", 0),
    ("reader.encoder.activation", {"class_name": "Lambda", "config": {}}),
    ("reader.encoder.num_layers", 10**9),
    ("reader.span_hidden_dim", 10**9),
    ("query_embedder.encoder.vocabulary_size", 10**9),
    ("query_embedder.pooling", {}),
    ("block_segment_ids", 7),
    ("share_embedders", "DELETED"),
]


@pytest.mark.parametrize("name, value", CRAFTED)
def test_a_crafted_configuration_is_one_sentence(
    directory, tmp_path, name, value
):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    config = json.loads((copy / "config.json").read_text())
    *parents, last = name.split(".")
    part = config
    for each in parents:
        part = part[each]
    part[last] = value
    if value == "DELETED":
        del part[last]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json"):
        model_directory.load(str(copy))


def test_what_is_no_model_directory_is_refused(directory, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        model_directory.load(str(tmp_path / "none"))
    with pytest.raises(InputError, match="exists already"):
        model_directory.save(model_directory.load(directory), directory)
