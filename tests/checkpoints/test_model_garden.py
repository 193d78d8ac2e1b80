"""Checkpoints that the Model Garden wrote; tests/golden/README.md says how."""

import pathlib

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


def _make(prefix):
    return model_garden.open_source(str(prefix)).makers[BERT]()


@pytest.mark.parametrize("name", ["functional-1", "trainer-1"])
def test_outputs_are_those_of_the_model_garden(name):
    with np.load(GOLDEN / "outputs.npz") as file:
        outputs = dict(file)
    model = _make(GOLDEN / name)
    names = ("token_ids", "segment_ids", "padding_mask")
    found = model({name: outputs[f"in/{name}"] for name in names})
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found[key]),
            outputs[f"out/{key}"],
            atol=1e-5,
        )
    assert (model.num_heads, model.max_sequence_length) == (2, 12)
    assert (model.activation, model.dropout) == ("gelu_approximate", 0.1)
    assert model.layer_norm_epsilon == 1e-12


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
    pretrainer = garden.models.BertPretrainerV2(encoder)
    pretrainer(pretrainer.inputs)
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


# What follows the path of an object in the name of a variable.
KEY = "/.ATTRIBUTES/VARIABLE_VALUE"


def _write(arrays, prefix):
    """The prefix of a checkpoint of objects with variables at some paths."""
    root = tf.Module()
    for path, value in arrays.items():
        node = root
        *names, last = path.split("/")
        for name in names:
            if not hasattr(node, name):
                setattr(node, name, tf.Module())
            node = getattr(node, name)
        setattr(node, last, tf.Variable(value))
    return tf.train.Checkpoint(encoder=root).write(str(prefix))


@pytest.fixture
def arrays():
    """Of the golden encoder: paths of its objects to values."""
    reader = tf.train.load_checkpoint(str(GOLDEN / "trainer-1"))
    start = "encoder/"
    arrays = {
        key.removeprefix(start).removesuffix(KEY): reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
        if key.startswith(start) and "SLOT" not in key
    }
    words = reader.get_tensor(f"masked_lm/embedding_table{KEY}")
    return {**arrays, "_embedding_layer/embeddings": words}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"_pooler_layer/bias": None},
            "lacks tensors .*: encoder/_pooler_layer/bias",
        ),
        ({"_rezero": 1.0}, "no part of the model takes: encoder/_rezero"),
        ({"_pool_strides/x": 1.0}, "no encoders"),
        (
            {"_embedding_layer/embeddings": np.ones((50, 4), "float32")},
            "has the shape .50, 4., expected",
        ),
    ],
)
def test_other_encoders_are_refused(arrays, tmp_path, changes, message):
    _make(_write(arrays, tmp_path / "as it is"))
    changed = {**arrays, **changes}
    left = {k: v for k, v in changed.items() if v is not None}
    with pytest.raises(InputError, match=message):
        _make(_write(left, tmp_path / "m"))


def test_norm_first_is_refused_where_it_is_told(arrays, tmp_path):
    prefix = _write(arrays, tmp_path / "m")
    text = "bert:\n    norm_first: {}\n    num_layers: 2\n"
    (tmp_path / "params.yaml").write_text(text.format("false"))
    model_garden.open_source(prefix)
    (tmp_path / "params.yaml").write_text(text.format("true"))
    with pytest.raises(InputError, match=r"LayerNorm before .*norm_first in"):
        model_garden.open_source(prefix)


def test_no_encoder_and_two(tmp_path):
    prefix = _write({"w": 1.0}, tmp_path / "m")
    with pytest.raises(InputError, match="no encoders"):
        model_garden.open_source(prefix)
    parts = ("_embedding_layer/w", "_transformer_layers/w")
    two = {f"{name}/{part}": 1.0 for name in "ab" for part in parts}
    prefix = _write(two, tmp_path / "m")
    with pytest.raises(InputError, match="2 encoders"):
        model_garden.open_source(prefix)
    with pytest.raises(InputError, match="must hold one checkpoint"):
        model_garden.open_source(str(GOLDEN))


def test_a_checkpoint_of_tf1(tmp_path):
    tensors = {"bert/pooler/dense/bias": np.ones(3)}
    prefix = save_tf(tmp_path / "model.ckpt", tensors)
    with pytest.raises(
        InputError, match="lacks the tensor _CHECKPOINTABLE_OBJECT"
    ):
        model_garden.open_source(prefix)
