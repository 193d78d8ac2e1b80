"""Hugging Face's names of BERT's and REALM's tensors and settings."""

import json

from realm_tf.checkpoints.assignment import BERT_LAYERS
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.errors import InputError

HEAD = "cls.predictions."
_HEADS = {
    BERT: {},
    EMBEDDER: {
        "projection": "cls.dense",
        "projection_layer_norm": "cls.LayerNorm",
    },
    ENCODER: {
        "masked_lm_head/intermediate_dense": f"{HEAD}transform.dense",
        "masked_lm_head/intermediate_layer_norm": f"{HEAD}transform.LayerNorm",
    },
    READER: {
        "span_scorer/endpoints": "qa_outputs.dense_intermediate",
        "span_scorer/score": "qa_outputs.dense_output",
        "span_scorer/layer_norm": "qa_outputs.layer_normalization",
    },
}
# A dense layer is {weight, bias} there and {kernel, bias} here, a LayerNorm
# {weight, bias} and {gamma, beta}; PyTorch keeps a dense kernel as [out, in].
_ENDINGS = {
    **dict.fromkeys(("embeddings", "kernel", "gamma"), ".weight"),
    **dict.fromkeys(("bias", "beta"), ".bias"),
}

# Our argument of `BertEncoder`: the name in config.json.
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
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
}


def mapping(part: str, num_layers: int, prefix: str = "realm.") -> dict:
    """The mapping of a part, for `assign`.

    Args:
        part: str. `BERT`, `EMBEDDER`, `ENCODER` or `READER`.
        num_layers: int. Transformer layers.
        prefix: str. Of the names of the BERT's tensors. Defaults to that of
            REALM's classes.

    Returns:
        dict of tensor name to `(our path, transform)`.
    """
    layers = {
        ours: prefix
        + theirs.removeprefix("bert/")
        .replace("layer_{i}", "layer.{i}")
        .replace("/", ".")
        for ours, theirs in BERT_LAYERS.items()
    }
    layers |= _HEADS[part]
    found = expand(layers, num_layers, endings=_ENDINGS, kernel="transpose")
    if part == ENCODER:
        found[f"{HEAD}bias"] = ("masked_lm_head/output_bias", "as")
    return found


def read_config(text: str, *, source: str) -> dict:
    """The content of a config.json.

    Raises:
        InputError: if it is not JSON or not that of a BERT.
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source} is not JSON ({error}).") from error
    needed = {"hidden_act", *_CONFIG_NAMES.values()}
    missing = needed - set(config if isinstance(config, dict) else ())
    if missing:
        raise InputError(
            f"{source} is no BERT's config.json: it lacks "
            f"{', '.join(sorted(missing))}."
        )
    if config["hidden_act"] not in _ACTIVATIONS:
        raise InputError(
            f"{source}: hidden_act {config['hidden_act']!r} is not one of "
            f"{sorted(_ACTIVATIONS)}."
        )
    return config


def encoder_config(config: dict) -> dict:
    """The arguments of `BertEncoder` that a config.json asks for.

    Args:
        config: dict. As `read_config` gives it.
    """
    return {
        "activation": _ACTIVATIONS[config["hidden_act"]],
        **{ours: config[theirs] for ours, theirs in _CONFIG_NAMES.items()},
    }


def from_encoder_config(config: dict) -> dict:
    """The inverse of `encoder_config`.

    Args:
        config: dict. `BertEncoder.get_config()`.
    """
    # The first name that gives it is the usual one.
    activation = next(
        theirs
        for theirs, ours in _ACTIVATIONS.items()
        if ours == config["activation"]
    )
    return {
        "hidden_act": activation,
        **{theirs: config[ours] for ours, theirs in _CONFIG_NAMES.items()},
    }
