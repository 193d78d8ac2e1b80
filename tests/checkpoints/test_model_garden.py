"""Checkpoints that the Model Garden wrote; tests/golden/README.md says how."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from named_weights import save_tf

from realm_tf.checkpoints import model_garden
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.errors import InputError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "model_garden"
SIZES = {
    "vocab_size": 11,
    "hidden_size": 6,
    "num_layers": 2,
    "num_attention_heads": 3,
    "inner_dim": 10,
    "max_sequence_length": 13,
}


@pytest.fixture(scope="module")
def garden():
    reason = "needs tf-models-official: pip install 'realm-tf[garden]'"
    return pytest.importorskip("official.nlp.modeling", reason=reason)


@pytest.fixture(scope="module")
def outputs():
    with np.load(GOLDEN / "outputs.npz") as arrays:
        return dict(arrays)


def _inputs(outputs, *more):
    names = ("token_ids", "segment_ids", "padding_mask", *more)
    return {name: outputs[f"in/{name}"] for name in names}


def _make(prefix, part=BERT):
    return model_garden.open_source(str(prefix)).makers[part]()


@pytest.mark.parametrize("name", ["functional-1", "trainer-1"])
def test_outputs_are_those_of_the_model_garden(garden, outputs, name):
    model = _make(GOLDEN / name)
    found = model(_inputs(outputs))
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found[key]),
            outputs[f"out/{key}"],
            atol=1e-5,
        )
    assert (model.num_heads, model.max_sequence_length) == (2, 12)
    assert (model.activation, model.dropout) == ("gelu_approximate", 0.1)
    assert model.layer_norm_epsilon == 1e-12


def test_logits_are_those_of_the_model_garden(garden, outputs):
    model = _make(GOLDEN / "trainer-1", ENCODER)
    logits = model(_inputs(outputs, "mask_positions"))
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(logits), outputs["out/mlm_logits"], atol=1e-5
    )


def _pretrainer(garden, encoder):
    pretrainer = garden.models.BertPretrainerV2(encoder)
    pretrainer(pretrainer.inputs)
    return pretrainer


# The checkpoint of an encoder, or of a pretrainer over it.
WAYS = {
    "alone": lambda e, p: tf.train.Checkpoint(encoder=e),
    "model": lambda e, p: tf.train.Checkpoint(model=e),
    "root": lambda e, p: tf.train.Checkpoint(e),
    "nested": lambda e, p: tf.train.Checkpoint(model=p),
    "trainer": lambda e, p: tf.train.Checkpoint(
        model=p, global_step=tf.Variable(7), **p.checkpoint_items
    ),
}


# Of the pretrainer over a functional encoder, which does not take positions.
@pytest.mark.filterwarnings("ignore:(?s).*did not match any model input")
@pytest.mark.parametrize("kind", ["BertEncoderV2", "BertEncoder"])
@pytest.mark.parametrize("way", WAYS)
def test_ways_of_saving(garden, tmp_path, kind, way):
    arguments = {} if kind == "BertEncoderV2" else {"dict_outputs": True}
    encoder = getattr(garden.networks, kind)(**SIZES, **arguments)
    encoder(encoder.inputs)
    pretrainer = _pretrainer(garden, encoder)
    random = np.random.default_rng(3)
    for variable in pretrainer.variables:
        variable.assign(random.normal(0.0, 0.5, variable.shape))
    prefix = WAYS[way](encoder, pretrainer).write(str(tmp_path / "model-1"))
    words = random.integers(0, 11, (2, 5)).astype("int32")
    theirs = {
        "input_word_ids": words,
        "input_type_ids": words % 2,
        "input_mask": np.ones_like(words),
    }
    ours = {
        "token_ids": words,
        "segment_ids": words % 2,
        "padding_mask": np.ones_like(words),
    }
    expected = encoder(theirs)
    source = model_garden.open_source(prefix)
    found = source.makers[BERT]()(ours)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    assert (ENCODER in source.makers) == (way in ("nested", "trainer"))
    if ENCODER in source.makers:
        positions = {"masked_lm_positions": words[:, :2] % 5}
        expected = pretrainer({**theirs, **positions})["mlm_logits"]
        logits = source.makers[ENCODER]()(
            {**ours, "mask_positions": words[:, :2] % 5}
        )
        # The head has no activation unless told.
        assert logits.shape == expected.shape
        found = source.makers[ENCODER]().encoder.get_weights()
        for ours_, other in zip(
            found, source.makers[BERT]().get_weights(), strict=True
        ):
            np.testing.assert_array_equal(ours_, other)


@pytest.fixture
def encoder(garden):
    encoder = garden.networks.BertEncoderV2(**SIZES)
    encoder(encoder.inputs)
    return encoder


def test_a_missing_variable_is_named(encoder, tmp_path):
    prefix = tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "m"))
    reader = tf.train.load_checkpoint(prefix)
    tensors = {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "_pooler_layer/bias" not in name
    }
    save_tf(prefix, tensors)
    with pytest.raises(InputError, match="m does not fit .*_pooler_layer/bias"):
        _make(prefix)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("_rezero", tf.Variable(1.0), "no BertEncoderV2 has: encoder/_rezero/"),
        ("_pool_strides", tf.Module(), "pool the sequence"),
    ],
)
def test_other_encoders_are_refused(
    encoder, tmp_path, attribute, value, message
):
    setattr(encoder, attribute, value)
    prefix = tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "m"))
    with pytest.raises(InputError, match=message):
        _make(prefix)


def test_embeddings_that_are_narrower_are_refused(garden, tmp_path):
    encoder = garden.networks.BertEncoderV2(**SIZES, embedding_width=4)
    encoder(encoder.inputs)
    prefix = tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "m"))
    with pytest.raises(InputError, match="does not fit a BertEncoderV2"):
        _make(prefix)


def test_norm_first_is_refused_where_it_is_told(encoder, tmp_path):
    prefix = tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "m"))
    text = "bert:\n    norm_first: {}\n    num_layers: 2\n"
    (tmp_path / "params.yaml").write_text(text.format("false"))
    model_garden.open_source(prefix)
    (tmp_path / "params.yaml").write_text(text.format("true"))
    with pytest.raises(InputError, match=r"LayerNorm before .*norm_first in"):
        model_garden.open_source(prefix)


# Refused before tf-models-official is needed.


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "official.nlp.modeling", None)
    with pytest.raises(InputError, match=r"pip install 'realm-tf\[garden\]'"):
        model_garden.open_source(str(GOLDEN / "functional-1"))


def _net(**parts):
    root = tf.Module()
    for name, part in parts.items():
        setattr(root, name, part)
    return root


def test_no_encoder_and_two(tmp_path):
    path = str(tmp_path / "m")
    net = _net(w=tf.Variable(1.0))
    prefix = tf.train.Checkpoint(net=net).write(path)
    with pytest.raises(InputError, match=r"no encoders \(net"):
        model_garden.open_source(prefix)
    parts = {"_embedding_layer": net, "_transformer_layers": net}
    two = tf.train.Checkpoint(a=_net(**parts), b=_net(**parts))
    prefix = two.write(path)
    with pytest.raises(InputError, match=r"2 encoders \(a, b\)"):
        model_garden.open_source(prefix)
    with pytest.raises(InputError, match="must hold one checkpoint"):
        model_garden.open_source(str(GOLDEN))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"bert/pooler/dense/bias": np.ones(3)}, "no graph of objects .*TF1"),
        ({"_CHECKPOINTABLE_OBJECT_GRAPH": b"\xff\xff"}, "GRAPH is damaged"),
    ],
)
def test_other_checkpoints(tmp_path, tensors, message):
    prefix = save_tf(tmp_path / "model.ckpt", tensors)
    with pytest.raises(InputError, match=message):
        model_garden.open_source(prefix)
