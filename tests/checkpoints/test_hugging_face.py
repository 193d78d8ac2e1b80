"""A synthetic checkpoint in which every tensor is different."""

import json

import numpy as np
import pytest
from named_weights import ATTENTION
from named_weights import HEADS
from named_weights import HIDDEN
from named_weights import INNER
from named_weights import LAYER
from named_weights import POSITIONS
from named_weights import VOCABULARY
from named_weights import assert_filled
from named_weights import random_arrays
from named_weights import weights

from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import hugging_face_names
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.errors import InputError

CONFIG = {
    "hidden_act": "gelu_new",
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "hidden_dropout_prob": 0.1,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
}
LAYER_NAMES = dict(
    zip(
        LAYER,
        (
            *(f"attention.self.{name}" for name in ("query", "key", "value")),
            *("attention.output.dense", "attention.output.LayerNorm"),
            *("intermediate.dense", "output.dense", "output.LayerNorm"),
        ),
        strict=True,
    )
)


def _shapes():
    """Names and shapes as PyTorch's BertModel has them: [out, in]."""
    shapes = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
        "pooler.dense.bias": (HIDDEN,),
    }
    for layer in range(2):
        for ours, theirs in LAYER_NAMES.items():
            name = f"encoder.layer.{layer}.{theirs}"
            width = INNER if "intermediate" in ours else HIDDEN
            inputs = INNER if "output_dense" in ours else HIDDEN
            is_norm = ours.endswith("norm")
            shapes[f"{name}.weight"] = (width,) if is_norm else (width, inputs)
            shapes[f"{name}.bias"] = (width,)
    return shapes


@pytest.fixture
def tensors():
    return random_arrays(_shapes())


def _checkpoint(tensors):
    return hugging_face.Checkpoint(CONFIG, Tensors(tensors, "file.safetensors"))


def _expected(tensors):
    """Our paths to the values of a BERT."""
    names = {
        "embeddings_layer_norm": "embeddings.LayerNorm",
        "pooled_dense": "pooler.dense",
        **{
            f"transformer_layer_{i}/{ours}": f"encoder.layer.{i}.{theirs}"
            for i in range(2)
            for ours, theirs in LAYER_NAMES.items()
        },
    }
    expected = {
        f"{ours}_embedding/embeddings": tensors[f"embeddings.{theirs}.weight"]
        for ours, theirs in (
            ("token", "word_embeddings"),
            ("position", "position_embeddings"),
            ("segment", "token_type_embeddings"),
        )
    }
    for ours, theirs in names.items():
        weight, bias = tensors[f"{theirs}.weight"], tensors[f"{theirs}.bias"]
        if ours.endswith("norm"):
            expected |= {f"{ours}/gamma": weight, f"{ours}/beta": bias}
        else:
            expected |= {f"{ours}/kernel": weight.T, f"{ours}/bias": bias}
    return expected


def test_every_value_lands_where_it_belongs(tensors):
    encoder = _checkpoint(tensors).bert()
    assert_filled(encoder, _expected(tensors))
    # PyTorch views the output as (heads, head_dim).
    name = "self_attention_layer/query"
    assert name in ATTENTION
    kernel = weights(encoder)[f"transformer_layer_1/{name}/kernel"]
    weight = tensors["encoder.layer.1.attention.self.query.weight"]
    np.testing.assert_array_equal(
        kernel, weight.reshape(HEADS, -1, HIDDEN).transpose(2, 0, 1)
    )


@pytest.mark.parametrize(
    "name", ["pooler.dense.bias", "encoder.layer.1.output.LayerNorm.weight"]
)
def test_a_missing_tensor_is_named(tensors, name):
    del tensors[name]
    with pytest.raises(
        InputError, match=f"file.safetensors lacks the tensor {name}"
    ):
        _checkpoint(tensors).bert()


@pytest.mark.parametrize(
    "name",
    ["cls.predictions.bias", "encoder.layer.0.adapter.bias", "encoder.layer.x"],
)
def test_a_tensor_too_many_is_named(tensors, name):
    tensors[name] = np.zeros(2, "float32")
    with pytest.raises(InputError, match=f"no part of a BERT takes: {name}"):
        _checkpoint(tensors).bert()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embeddings.position_embeddings.weight", (POSITIONS + 1, HIDDEN)),
        # As many numbers, in another order.
        ("embeddings.word_embeddings.weight", (HIDDEN, VOCABULARY)),
        ("encoder.layer.0.intermediate.dense.weight", (HIDDEN, INNER)),
        ("encoder.layer.1.attention.self.key.bias", (3, 2)),
    ],
)
def test_a_misshapen_tensor_is_named(tensors, name, shape):
    expected = str(tensors[name].shape)
    tensors[name] = np.zeros(shape, "float32")
    with pytest.raises(InputError) as caught:
        _checkpoint(tensors).bert()
    assert str(caught.value) == (
        f"file.safetensors: {name} has the shape {shape}, expected {expected}."
    )


def test_the_numbers_of_the_positions_are_no_weights(tensors):
    numbers = {"embeddings.position_ids": np.arange(POSITIONS)[None]}
    encoder = _checkpoint({**tensors, **numbers}).bert()
    assert_filled(encoder, _expected(tensors))


TRANSFORM = "cls.predictions.transform"


@pytest.fixture
def realm_tensors(tensors):
    """As `RealmKnowledgeAugEncoder` names them."""
    shapes = {
        f"{TRANSFORM}.dense.weight": (HIDDEN, HIDDEN),
        f"{TRANSFORM}.dense.bias": (HIDDEN,),
        f"{TRANSFORM}.LayerNorm.weight": (HIDDEN,),
        f"{TRANSFORM}.LayerNorm.bias": (HIDDEN,),
        "cls.predictions.bias": (VOCABULARY,),
    }
    return {
        **{f"realm.{name}": value for name, value in tensors.items()},
        **random_arrays(shapes, seed=1),
    }


@pytest.mark.parametrize("with_copies", [False, True])
def test_a_masked_lm_head_lands_beside_its_bert(
    tensors, realm_tensors, with_copies
):
    copies = {}
    if with_copies:
        # As pytorch_model.bin has them.
        words = realm_tensors["realm.embeddings.word_embeddings.weight"]
        copies = {
            "cls.predictions.decoder.weight": words,
            "cls.predictions.decoder.bias": realm_tensors[
                "cls.predictions.bias"
            ],
            "realm.embeddings.position_ids": np.arange(9)[None],
        }
    checkpoint = _checkpoint({**realm_tensors, **copies})
    head = "masked_lm_head/intermediate"
    norm = f"{TRANSFORM}.LayerNorm"
    assert_filled(
        checkpoint.knowledge_augmented_encoder(),
        {
            **_expected(tensors),
            f"{head}_dense/kernel": realm_tensors[
                f"{TRANSFORM}.dense.weight"
            ].T,
            f"{head}_dense/bias": realm_tensors[f"{TRANSFORM}.dense.bias"],
            f"{head}_layer_norm/gamma": realm_tensors[f"{norm}.weight"],
            f"{head}_layer_norm/beta": realm_tensors[f"{norm}.bias"],
            "masked_lm_head/output_bias": realm_tensors["cls.predictions.bias"],
        },
    )
    assert len(checkpoint.ignored) == len(copies)


def test_a_head_that_is_not_tied_is_refused(realm_tensors):
    words = realm_tensors["realm.embeddings.word_embeddings.weight"]
    realm_tensors["cls.predictions.decoder.weight"] = words + 1.0
    with pytest.raises(InputError, match="differs from realm.embeddings.word"):
        _checkpoint(realm_tensors).knowledge_augmented_encoder()


def test_a_head_is_not_taken_in_part(realm_tensors):
    del realm_tensors["cls.predictions.bias"]
    with pytest.raises(InputError, match="lacks the tensor cls.predictions"):
        _checkpoint(realm_tensors).knowledge_augmented_encoder()


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
    config = hugging_face_names.read_config(text, source="config.json")
    assert hugging_face_names.encoder_config(config) == {
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
        hugging_face_names.read_config(text, source="config.json")
