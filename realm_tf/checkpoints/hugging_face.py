"""Hugging Face's BERT, MPNet and REALM checkpoints: names, settings, models."""

import dataclasses
import functools
import json
import os

import numpy as np

from realm_tf.artifacts import hubs
from realm_tf.checkpoints import sentence_transformers
from realm_tf.checkpoints import tensor_files
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import Names
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import make_part
from realm_tf.checkpoints.tokenizer_files import find_tokenizer
from realm_tf.configs.finetune import MAX_JOINT_LENGTH
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import MPNET_FIRST

# Files that are read beside the weights.
_BESIDE = (
    *("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("README.md", sentence_transformers.MODULES),
    *(sentence_transformers.PROMPTS, "*_Pooling/config.json"),
)
NAMES, MPNET_NAMES = Names.of("hugging_face"), Names.of("mpnet")

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
MPNET = "mpnet"
_MODEL_TYPES = ("bert", "realm", MPNET)
# Rows of MPNet's position table before that of the first wordpiece.
_BEFORE_POSITIONS = 2
_BUCKETS = "relative_attention_num_buckets"
# Of the names that give one, the first is the usual one.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
}


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
    if config.get("model_type", _MODEL_TYPES[0]) not in _MODEL_TYPES:
        raise InputError(
            f"{source} is of a {config['model_type']}, whose tensors may have a "
            f"BERT's names and mean something else: expected "
            f"{', '.join(_MODEL_TYPES[:-1])} or {_MODEL_TYPES[-1]}."
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
    arguments = {
        "activation": _ACTIVATIONS[config["hidden_act"]],
        **{ours: config[theirs] for ours, theirs in _CONFIG_NAMES.items()},
    }
    if config.get("model_type") == MPNET:
        arguments["num_relative_buckets"] = config.get(_BUCKETS, 32)
    return arguments


def from_encoder_config(config: dict) -> dict:
    """The inverse of `encoder_config`.

    Args:
        config: dict. `BertEncoder.get_config()`.
    """
    activations = list(_ACTIVATIONS.values())
    usual = activations.index(config["activation"])
    return {
        "hidden_act": list(_ACTIVATIONS)[usual],
        **{theirs: config[ours] for ours, theirs in _CONFIG_NAMES.items()},
    }


def open_source(source: str) -> Source:
    """The parts of a REALM or BERT in a directory or on the hub.

    Args:
        source: str. With config.json and weights: a local directory, or an
            address, see `artifacts.hubs`.

    Returns:
        `Source`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    directory = source
    if hubs.is_address(source):
        directory = hubs.fetch(source, [*_BESIDE, tensor_files.SAFETENSORS])
        weights = os.path.join(directory, tensor_files.SAFETENSORS)
        if not os.path.exists(weights):
            hubs.fetch(source, [tensor_files.PYTORCH])
    path = os.path.join(directory, "config.json")
    if not os.path.isfile(path):
        raise InputError(
            f"{source} holds no config.json: expected a directory with "
            "config.json, weights and vocab.txt, or the address of one, "
            "hf://OWNER/NAME."
        )
    with open(path, encoding="utf-8") as file:
        config = read_config(file.read(), source=path)
    tensors = tensor_files.open_directory(directory)
    if config.get("model_type") == MPNET:
        tokenizer = find_tokenizer([directory])
        config, tensors = mpnet_as_bert(config, tensors, tokenizer)
    return dataclasses.replace(
        source_of(config, tensors),
        directory=directory,
        name=source,
        embedding=sentence_transformers.read(directory),
    )


def mpnet_as_bert(config: dict, tensors: Tensors, tokenizer):
    """MPNet with the rows of BERT's vocabulary and positions from 0.

    Its [CLS], [PAD], [SEP] and [MASK] are `<s>`, `<pad>`, `</s>` and `<mask>`.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: `Tensors`.
        tokenizer: `Tokenizer`. Of its vocabulary (`bert_wordpieces`).

    Returns:
        The same two, changed.

    Raises:
        InputError: if the vocabulary is not that of the tensors.
    """
    first, size = len(MPNET_FIRST), tokenizer.vocabulary_size
    rows = np.arange(first, first + size)
    special = [tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id]
    rows[[*special, tokenizer.mask_id]] = 0, 1, 2, first + size
    arrays = dict(tensors.arrays)
    for name in tensors.names():
        if name.endswith(("word_embeddings.weight", "lm_head.bias")):
            if tensors.shape(name)[0] <= rows.max():
                raise InputError(
                    f"{tensors.source}: {name} has {tensors.shape(name)[0]:,} "
                    f"rows for {size + first + 1:,} wordpieces: expected "
                    "MPNet's vocabulary, <s> first and <mask> last."
                )
            arrays[name] = tensors.read(name)[rows]
        elif name.endswith("position_embeddings.weight"):
            arrays[name] = tensors.read(name, _BEFORE_POSITIONS)
    length = config["max_position_embeddings"] - _BEFORE_POSITIONS
    changes = {"vocab_size": size, "max_position_embeddings": length}
    return config | changes, dataclasses.replace(tensors, arrays=arrays)


def source_of(config: dict, tensors: Tensors) -> Source:
    """The parts of a REALM or BERT by their tensors; see `open_source`.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: `Tensors`.

    Returns:
        `Source` without a directory.
    """
    # The oldest files, such as bert-base-uncased's, have TensorFlow's endings.
    names = {
        name.replace(".gamma", ".weight").replace(".beta", ".bias"): name
        for name in tensors.names()
    }
    tensors = tensors.renamed(names)
    make = functools.partial(_make, config)
    library = MPNET_NAMES if config.get("model_type") == MPNET else NAMES
    source = library.find(tensors, make, config["num_hidden_layers"])
    if not source.makers:
        raise InputError(f"{tensors.source} holds no part of a BERT or REALM.")
    return source


def _make(config, layout, mapping, tensors):
    arguments = {}
    if layout.part in (EMBEDDER, QUERY_EMBEDDER):
        arguments["layer_norm_epsilon"] = config["layer_norm_eps"]
    elif layout.part == READER:
        arguments = {
            "max_span_width": config.get("max_span_width", 10),
            "layer_norm_epsilon": config.get("reader_layer_norm_eps", 1e-3),
            "max_joint_length": config.get("reader_seq_len", MAX_JOINT_LENGTH),
        }
    elif layout.part == ENCODER and not config.get("tie_word_embeddings", True):
        raise InputError(
            f"{tensors.source}: a masked-LM head that is not tied to the "
            "word embeddings cannot be read."
        )
    bert = encoder_config(config)
    return make_part(layout, mapping, tensors, bert, **arguments)
