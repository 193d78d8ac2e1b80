"""Weights of Hugging Face BERT checkpoints, by one mapping table."""

import dataclasses
import json
import re

import numpy as np

from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)

# Hugging Face's name: (our path, how to turn it into ours). `{i}` is the
# layer. PyTorch keeps a dense kernel as [out, in].
_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": ("token_embedding/embeddings", "as"),
    "embeddings.position_embeddings.weight": (
        "position_embedding/embeddings",
        "as",
    ),
    "embeddings.token_type_embeddings.weight": (
        "segment_embedding/embeddings",
        "as",
    ),
    "embeddings.LayerNorm.weight": ("embeddings_layer_norm/gamma", "as"),
    "embeddings.LayerNorm.bias": ("embeddings_layer_norm/beta", "as"),
    "pooler.dense.weight": ("pooled_dense/kernel", "transpose"),
    "pooler.dense.bias": ("pooled_dense/bias", "as"),
}
_LAYER = {
    "attention.self.query": "self_attention_layer/query",
    "attention.self.key": "self_attention_layer/key",
    "attention.self.value": "self_attention_layer/value",
    "attention.output.dense": "self_attention_layer/attention_output",
    "intermediate.dense": "feedforward_intermediate_dense",
    "output.dense": "feedforward_output_dense",
}
_LAYER_NORMS = {
    "attention.output.LayerNorm": "self_attention_layer_norm",
    "output.LayerNorm": "feedforward_layer_norm",
}
# The masked-LM head of a BERT or REALM.
_MASKED_LM = {
    "cls.predictions.transform.dense.weight": (
        "masked_lm_head/intermediate_dense/kernel",
        "transpose",
    ),
    "cls.predictions.transform.dense.bias": (
        "masked_lm_head/intermediate_dense/bias",
        "as",
    ),
    "cls.predictions.transform.LayerNorm.weight": (
        "masked_lm_head/intermediate_layer_norm/gamma",
        "as",
    ),
    "cls.predictions.transform.LayerNorm.bias": (
        "masked_lm_head/intermediate_layer_norm/beta",
        "as",
    ),
    "cls.predictions.bias": ("masked_lm_head/output_bias", "as"),
}
# Copies that some files hold and some do not: of the tensor they equal.
_MASKED_LM_TIED = {
    "cls.predictions.decoder.weight": "realm.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Our argument: Hugging Face's name.
_CONFIG_NAMES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}
_LAYER_NUMBER = re.compile(r"encoder\.layer\.(\d+)\.")
# Not weights: old versions saved the numbers 0 to 511.
_IGNORED = ("embeddings.position_ids",)


def bert_mapping(num_layers: int) -> dict:
    """Hugging Face's tensor names to `(our path, transform)`.

    Args:
        num_layers: int. Transformer layers of the target.

    Returns:
        dict. The transform is `"as"` (reshape only) or `"transpose"`.
    """
    mapping = dict(_EMBEDDINGS)
    for i in range(num_layers):
        source, target = f"encoder.layer.{i}", f"transformer_layer_{i}"
        for theirs, ours in _LAYER.items():
            mapping[f"{source}.{theirs}.weight"] = (
                f"{target}/{ours}/kernel",
                "transpose",
            )
            mapping[f"{source}.{theirs}.bias"] = (f"{target}/{ours}/bias", "as")
        for theirs, ours in _LAYER_NORMS.items():
            mapping[f"{source}.{theirs}.weight"] = (
                f"{target}/{ours}/gamma",
                "as",
            )
            mapping[f"{source}.{theirs}.bias"] = (f"{target}/{ours}/beta", "as")
    return mapping


def knowledge_augmented_encoder_mapping(num_layers: int) -> dict:
    """As `bert_mapping`, for REALM's BERT with the masked-LM head."""
    bert = bert_mapping(num_layers)
    return {
        **{f"realm.{name}": target for name, target in bert.items()},
        **_MASKED_LM,
    }


def assign_bert(encoder: BertEncoder, tensors: dict, *, source: str) -> None:
    """Fills an encoder from a Hugging Face BERT's tensors.

    Args:
        encoder: `BertEncoder`. It may have fewer layers than the source: the
            lowest ones are taken.
        tensors: dict of name to numpy array.
        source: str. Where they come from, for messages.

    Raises:
        InputError: if a tensor is missing, unknown or of another shape.
    """
    ignored = {*_IGNORED, *_higher_layers(tensors, encoder.num_layers)}
    _assign(
        encoder,
        bert_mapping(encoder.num_layers),
        {k: v for k, v in tensors.items() if k not in ignored},
        source=source,
        what="BERT",
    )


def assign_knowledge_augmented_encoder(
    model: KnowledgeAugmentedEncoder, tensors: dict, *, source: str
) -> None:
    """Fills a model from the tensors of a `RealmKnowledgeAugEncoder`.

    Args:
        model: `KnowledgeAugmentedEncoder`.
        tensors: dict of name to numpy array. The copies of tied tensors,
            `cls.predictions.decoder.*`, may be missing.
        source: str. Where they come from, for messages.

    Raises:
        InputError: if a tensor is missing, unknown or of another shape, or
            the head is not tied to the word embeddings.
    """
    tensors = {
        name: value
        for name, value in tensors.items()
        if name.removeprefix("realm.") not in _IGNORED
    }
    for copy, original in _MASKED_LM_TIED.items():
        if copy not in tensors or original not in tensors:
            continue
        if not np.array_equal(tensors.pop(copy), tensors[original]):
            raise InputError(
                f"{source}: {copy} differs from {original}. A head that is "
                "not tied to the word embeddings cannot be read."
            )
    _assign(
        model,
        knowledge_augmented_encoder_mapping(model.encoder.num_layers),
        tensors,
        source=source,
        what="a knowledge-augmented encoder",
    )


def _assign(model, mapping, tensors, *, source, what):
    """Fills every variable of a model, from every tensor."""
    variables = {
        v.path: v for v in model.variables if "seed_generator" not in v.path
    }
    unused = set(tensors) - set(mapping)
    if unused:
        raise InputError(
            f"{source} has tensors that no part of {what} takes: "
            f"{', '.join(sorted(unused))}."
        )
    for name, (path, transform) in mapping.items():
        if name not in tensors:
            raise InputError(f"{source} lacks the tensor {name}.")
        value = np.asarray(tensors[name])
        variable = variables.pop(path)
        expected = _flat_shape(path, variable.shape)
        if transform == "transpose":
            expected = expected[::-1]
        if value.shape != expected:
            raise InputError(
                f"{source}: {name} has the shape {value.shape}, expected "
                f"{expected}."
            )
        value = value.T if transform == "transpose" else value
        variable.assign(value.reshape(variable.shape))
    if variables:
        raise AssertionError(f"mapping leaves {sorted(variables)} unfilled")


def _flat_shape(path, shape):
    """A variable's shape without heads, which Keras keeps as a dimension."""
    if path.endswith("attention_output/kernel"):
        return (shape[0] * shape[1], shape[2])
    if path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        return (shape[0], shape[1] * shape[2])
    if path.endswith(("query/bias", "key/bias", "value/bias")):
        return (shape[0] * shape[1],)
    return tuple(shape)


def _higher_layers(tensors, num_layers):
    found = set()
    for name in tensors:
        match = _LAYER_NUMBER.match(name)
        if match and int(match[1]) >= num_layers:
            found.add(name)
    return found


@dataclasses.dataclass(frozen=True)
class BertCheckpoint:
    """A Hugging Face BERT as read from its files.

    Args:
        config: dict. Arguments of `BertEncoder`.
        tensors: dict of name to numpy array.
        source: str. Where it comes from, for messages.
    """

    config: dict
    tensors: dict
    source: str

    def encoder(self, *, num_layers: int | None = None) -> BertEncoder:
        """A `BertEncoder` with these weights, or with the lowest layers."""
        config = dict(self.config)
        if num_layers is not None:
            if not 1 <= num_layers <= config["num_layers"]:
                raise InputError(
                    f"{self.source} has {config['num_layers']} layers. "
                    f"Received: num_layers={num_layers}"
                )
            config["num_layers"] = num_layers
        encoder = BertEncoder(**config)
        assign_bert(encoder, self.tensors, source=self.source)
        return encoder


def encoder_config(config_json: str, *, source: str) -> dict:
    """The arguments of `BertEncoder` that a config.json asks for.

    Args:
        config_json: str. Content of a Hugging Face `config.json`.
        source: str. Where it comes from, for messages.

    Raises:
        InputError: if it is not JSON, lacks something or its activation is
            none of ours.
    """
    try:
        config = json.loads(config_json)
    except json.JSONDecodeError as error:
        raise InputError(f"{source} is not JSON ({error}).") from error
    missing = {"hidden_act", *_CONFIG_NAMES.values()} - set(config)
    if missing:
        raise InputError(
            f"{source} is no BERT's config.json: it lacks "
            f"{', '.join(sorted(missing))}."
        )
    activations = {
        "gelu": "gelu",
        "gelu_new": "gelu_approximate",
        "gelu_pytorch_tanh": "gelu_approximate",
    }
    if config["hidden_act"] not in activations:
        raise InputError(
            f"{source}: hidden_act {config['hidden_act']!r} is not one of "
            f"{sorted(activations)}."
        )
    return {
        "activation": activations[config["hidden_act"]],
        **{ours: config[theirs] for ours, theirs in _CONFIG_NAMES.items()},
    }
