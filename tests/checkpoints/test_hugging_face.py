"""A synthetic checkpoint in which every tensor is different."""

import json

import numpy as np
import pytest

from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.assignment import ArrayTensors
from realm_tf.errors import InputError

HIDDEN, INNER, VOCABULARY, POSITIONS = 6, 10, 11, 13
CONFIG = {
    "hidden_act": "gelu_new",
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "hidden_dropout_prob": 0.1,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
}
# Names and shapes as PyTorch's BertModel has them: a kernel is [out, in].
EMBEDDINGS = {
    "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
    "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
    "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    "embeddings.LayerNorm.weight": (HIDDEN,),
    "embeddings.LayerNorm.bias": (HIDDEN,),
    "pooler.dense.weight": (HIDDEN, HIDDEN),
    "pooler.dense.bias": (HIDDEN,),
}
LAYER = {
    "attention.self.query.weight": (HIDDEN, HIDDEN),
    "attention.self.query.bias": (HIDDEN,),
    "attention.self.key.weight": (HIDDEN, HIDDEN),
    "attention.self.key.bias": (HIDDEN,),
    "attention.self.value.weight": (HIDDEN, HIDDEN),
    "attention.self.value.bias": (HIDDEN,),
    "attention.output.dense.weight": (HIDDEN, HIDDEN),
    "attention.output.dense.bias": (HIDDEN,),
    "attention.output.LayerNorm.weight": (HIDDEN,),
    "attention.output.LayerNorm.bias": (HIDDEN,),
    "intermediate.dense.weight": (INNER, HIDDEN),
    "intermediate.dense.bias": (INNER,),
    "output.dense.weight": (HIDDEN, INNER),
    "output.dense.bias": (HIDDEN,),
    "output.LayerNorm.weight": (HIDDEN,),
    "output.LayerNorm.bias": (HIDDEN,),
}


@pytest.fixture
def tensors():
    shapes = dict(EMBEDDINGS)
    for layer in range(2):
        for name, shape in LAYER.items():
            shapes[f"encoder.layer.{layer}.{name}"] = shape
    random = np.random.default_rng(0)
    return {
        name: random.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def _checkpoint(tensors):
    return hugging_face.Checkpoint(
        CONFIG, ArrayTensors(tensors), "file.safetensors"
    )


def _values(encoder):
    return {
        v.path: np.asarray(v)
        for v in encoder.variables
        if "seed_generator" not in v.path
    }


def test_every_value_lands_where_it_belongs(tensors):
    values = _values(_checkpoint(tensors).encoder())
    assert len(values) == len(tensors)

    def equal(path, expected):
        np.testing.assert_array_equal(values.pop(path), expected)

    for ours, theirs in (
        ("token_embedding/embeddings", "word_embeddings.weight"),
        ("position_embedding/embeddings", "position_embeddings.weight"),
        ("segment_embedding/embeddings", "token_type_embeddings.weight"),
        ("embeddings_layer_norm/gamma", "LayerNorm.weight"),
        ("embeddings_layer_norm/beta", "LayerNorm.bias"),
    ):
        equal(ours, tensors[f"embeddings.{theirs}"])
    equal("pooled_dense/kernel", tensors["pooler.dense.weight"].T)
    equal("pooled_dense/bias", tensors["pooler.dense.bias"])
    for layer in range(2):
        ours = f"transformer_layer_{layer}"
        theirs = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            weight = tensors[f"{theirs}.attention.self.{name}.weight"]
            bias = tensors[f"{theirs}.attention.self.{name}.bias"]
            path = f"{ours}/self_attention_layer/{name}"
            # PyTorch views the output as (heads, head_dim).
            equal(
                f"{path}/kernel",
                weight.reshape(3, 2, HIDDEN).transpose(2, 0, 1),
            )
            equal(f"{path}/bias", bias.reshape(3, 2))
        output = tensors[f"{theirs}.attention.output.dense.weight"]
        path = f"{ours}/self_attention_layer/attention_output"
        equal(f"{path}/kernel", output.reshape(HIDDEN, 3, 2).transpose(1, 2, 0))
        equal(f"{path}/bias", tensors[f"{theirs}.attention.output.dense.bias"])
        for name, dense in (
            ("feedforward_intermediate_dense", "intermediate.dense"),
            ("feedforward_output_dense", "output.dense"),
        ):
            equal(
                f"{ours}/{name}/kernel", tensors[f"{theirs}.{dense}.weight"].T
            )
            equal(f"{ours}/{name}/bias", tensors[f"{theirs}.{dense}.bias"])
        for name, norm in (
            ("self_attention_layer_norm", "attention.output.LayerNorm"),
            ("feedforward_layer_norm", "output.LayerNorm"),
        ):
            equal(f"{ours}/{name}/gamma", tensors[f"{theirs}.{norm}.weight"])
            equal(f"{ours}/{name}/beta", tensors[f"{theirs}.{norm}.bias"])
    assert not values


def test_the_mapping_takes_each_tensor_once():
    mapping = hugging_face.bert_mapping(2)
    assert set(mapping) == set(EMBEDDINGS) | {
        f"encoder.layer.{layer}.{name}" for layer in range(2) for name in LAYER
    }
    paths = [path for path, _ in mapping.values()]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    "name", ["pooler.dense.bias", "encoder.layer.1.output.LayerNorm.weight"]
)
def test_a_missing_tensor_is_named(tensors, name):
    del tensors[name]
    with pytest.raises(
        InputError, match=f"file.safetensors lacks the tensor {name}"
    ):
        _checkpoint(tensors).encoder()


@pytest.mark.parametrize(
    "name",
    ["cls.predictions.bias", "encoder.layer.0.adapter.bias", "encoder.layer.x"],
)
def test_a_tensor_too_many_is_named(tensors, name):
    tensors[name] = np.zeros(2, "float32")
    with pytest.raises(InputError, match=f"no part of a BERT takes: {name}"):
        _checkpoint(tensors).encoder()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embeddings.position_embeddings.weight", (POSITIONS + 1, HIDDEN)),
        # As many numbers, in another order.
        ("embeddings.word_embeddings.weight", (HIDDEN, VOCABULARY)),
        ("encoder.layer.0.intermediate.dense.weight", (HIDDEN, INNER)),
        ("encoder.layer.1.attention.self.key.bias", (3, 2)),
        ("encoder.layer.1.attention.self.value.weight", (3, 2, HIDDEN)),
        ("encoder.layer.1.output.LayerNorm.bias", (1, HIDDEN)),
    ],
)
def test_a_misshapen_tensor_is_named(tensors, name, shape):
    expected = str(tensors[name].shape)
    tensors[name] = np.zeros(shape, "float32")
    with pytest.raises(InputError) as caught:
        _checkpoint(tensors).encoder()
    assert str(caught.value) == (
        f"file.safetensors: {name} has the shape {shape}, expected {expected}."
    )


def test_the_numbers_of_the_positions_are_no_weights(tensors):
    plain = _values(_checkpoint(tensors).encoder())
    tensors["embeddings.position_ids"] = np.arange(POSITIONS)[None]
    found = _values(_checkpoint(tensors).encoder())
    for path, value in plain.items():
        np.testing.assert_array_equal(found[path], value)


@pytest.fixture
def realm_tensors(tensors):
    """As `RealmKnowledgeAugEncoder` names them."""
    random = np.random.default_rng(1)
    transform = "cls.predictions.transform"
    shapes = {
        f"{transform}.dense.weight": (HIDDEN, HIDDEN),
        f"{transform}.dense.bias": (HIDDEN,),
        f"{transform}.LayerNorm.weight": (HIDDEN,),
        f"{transform}.LayerNorm.bias": (HIDDEN,),
        "cls.predictions.bias": (VOCABULARY,),
    }
    return {
        **{f"realm.{name}": value for name, value in tensors.items()},
        **{
            name: random.normal(size=shape).astype("float32")
            for name, shape in shapes.items()
        },
    }


def _filled(realm_tensors):
    checkpoint = _checkpoint(realm_tensors)
    return _values(checkpoint.knowledge_augmented_encoder())


@pytest.mark.parametrize("with_copies", [False, True])
def test_a_masked_lm_head_lands_beside_its_bert(
    tensors, realm_tensors, with_copies
):
    if with_copies:
        # As pytorch_model.bin has them.
        words = realm_tensors["realm.embeddings.word_embeddings.weight"]
        realm_tensors["cls.predictions.decoder.weight"] = words
        realm_tensors["cls.predictions.decoder.bias"] = realm_tensors[
            "cls.predictions.bias"
        ]
        realm_tensors["realm.embeddings.position_ids"] = np.arange(9)[None]
    values = _filled(dict(realm_tensors))
    for path, value in _values(_checkpoint(tensors).encoder()).items():
        np.testing.assert_array_equal(values.pop(path), value)
    transform = "cls.predictions.transform"
    head = "masked_lm_head/intermediate"
    for path, value in {
        f"{head}_dense/kernel": realm_tensors[f"{transform}.dense.weight"].T,
        f"{head}_dense/bias": realm_tensors[f"{transform}.dense.bias"],
        f"{head}_layer_norm/gamma": realm_tensors[
            f"{transform}.LayerNorm.weight"
        ],
        f"{head}_layer_norm/beta": realm_tensors[f"{transform}.LayerNorm.bias"],
        "masked_lm_head/output_bias": realm_tensors["cls.predictions.bias"],
    }.items():
        np.testing.assert_array_equal(values.pop(path), value)
    assert not values


def test_a_head_that_is_not_tied_is_refused(realm_tensors):
    words = realm_tensors["realm.embeddings.word_embeddings.weight"]
    realm_tensors["cls.predictions.decoder.weight"] = words + 1.0
    with pytest.raises(InputError, match="differs from realm.embeddings.word"):
        _filled(realm_tensors)


def test_a_head_is_not_taken_in_part(realm_tensors):
    del realm_tensors["cls.predictions.bias"]
    with pytest.raises(InputError, match="lacks the tensor cls.predictions"):
        _filled(realm_tensors)


HF_CONFIG = {
    "hidden_act": "gelu",
    "vocab_size": 30522,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "hidden_dropout_prob": 0.2,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-7,
    "model_type": "bert",
}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_approximate"),
        ("gelu_pytorch_tanh", "gelu_approximate"),
    ],
)
def test_a_config_becomes_the_encoders_arguments(theirs, ours):
    text = json.dumps({**HF_CONFIG, "hidden_act": theirs})
    config = hugging_face.read_config(text, source="config.json")
    assert hugging_face.encoder_config(config) == {
        "vocabulary_size": 30522,
        "num_layers": 6,
        "num_heads": 12,
        "hidden_dim": 384,
        "intermediate_dim": 1536,
        "activation": ours,
        "dropout": 0.2,
        "max_sequence_length": 512,
        "layer_norm_epsilon": 1e-7,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"hidden_act": ', "config.json is not JSON"),
        (
            json.dumps({**HF_CONFIG, "hidden_act": "relu"}),
            "hidden_act 'relu' is not one of",
        ),
        (
            json.dumps({"hidden_act": "gelu", "model_type": "t5"}),
            "it lacks hidden_dropout_prob, hidden_size, .*, vocab_size",
        ),
    ],
)
def test_another_config_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        hugging_face.read_config(text, source="config.json")
