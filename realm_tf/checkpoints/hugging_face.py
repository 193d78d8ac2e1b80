"""Hugging Face's BERT and REALM checkpoints: names, settings and models."""

import dataclasses
import functools
import glob
import json
import os

from realm_tf.artifacts import hubs
from realm_tf.checkpoints import sentence_transformers
from realm_tf.checkpoints import tensor_files
from realm_tf.checkpoints.assignment import BERT_LAYERS
from realm_tf.checkpoints.assignment import POOLER
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import TOKENIZER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import make_part
from realm_tf.configs.finetune import MAX_JOINT_LENGTH
from realm_tf.errors import InputError

# Files that are read beside the weights.
_BESIDE = (
    *("config.json", "vocab.txt", TOKENIZER, "tokenizer_config.json"),
    *("README.md", sentence_transformers.MODULES),
    *(sentence_transformers.PROMPTS, "*_Pooling/config.json"),
)
# Embeddings of all blocks, in a RealmForOpenQA: no weight of the model.
BLOCK_EMBEDDINGS = "block_emb"

_HEAD = "cls.predictions."
_HEADS = {
    BERT: {},
    EMBEDDER: {
        "projection": "cls.dense",
        "projection_layer_norm": "cls.LayerNorm",
    },
    ENCODER: {
        "masked_lm_head/intermediate_dense": f"{_HEAD}transform.dense",
        "masked_lm_head/intermediate_layer_norm": f"{_HEAD}transform.LayerNorm",
        "masked_lm_head/output_bias": f"{_HEAD}bias",
    },
    READER: {
        "span_scorer/endpoints": "qa_outputs.dense_intermediate",
        "span_scorer/score": "qa_outputs.dense_output",
        "span_scorer/layer_norm": "qa_outputs.layer_normalization",
    },
}
# Beginnings of names that a part does not read, to reasons.
_IGNORED = {
    BERT: {"cls.": "the encoder alone was asked for"},
    EMBEDDER: {_HEAD: "no embedder reads its head"},
    ENCODER: {
        f"{_HEAD}decoder.": "a copy of the word embeddings and the bias",
        "cls.seq_relationship.": "REALM has no next-sentence head",
    },
    READER: {_HEAD: "no reader reads its head"},
}
# A dense layer is {weight, bias} there and {kernel, bias} here, a LayerNorm
# {weight, bias} and {gamma, beta}; PyTorch keeps a dense kernel as [out, in].
_ENDINGS = {
    **dict.fromkeys(("embeddings", "kernel", "gamma"), ".weight"),
    **dict.fromkeys(("bias", "beta"), ".bias"),
}
# Of TensorFlow's names in the oldest files, such as bert-base-uncased's.
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

# What a part can have before the names of its BERT: REALM's classes, a BERT
# with heads, and one without.
_BERT_PREFIXES = ("realm.", "bert.", "")
_WORDS = "embeddings.word_embeddings.weight"

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
_MODEL_TYPES = ("bert", "realm")
# Of the names that give one, the first is the usual one.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
}


def mapping(
    part: str,
    num_layers: int,
    prefix: str = "realm.",
    *,
    has_pooler: bool = True,
) -> dict:
    """The mapping of a part, for `assign`.

    Args:
        part: str. `BERT`, `EMBEDDER`, `ENCODER` or `READER`.
        num_layers: int. Transformer layers.
        prefix: str. Of the names of the BERT's tensors. Defaults to that of
            REALM's classes.
        has_pooler: bool. Whether there is a dense layer above [CLS]. Defaults
            to `True`.

    Returns:
        dict of tensor name to `(our path, whether it is transposed)`.
    """
    layers = {
        ours: prefix
        + theirs.removeprefix("bert/")
        .replace("layer_{i}", "layer.{i}")
        .replace("/", ".")
        for ours, theirs in BERT_LAYERS.items()
        if has_pooler or ours != POOLER
    }
    layers |= _HEADS[part]
    return expand(layers, num_layers, endings=_ENDINGS, transposed=True)


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
            f"{' or '.join(_MODEL_TYPES)}."
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
    activations = list(_ACTIVATIONS.values())
    usual = activations.index(config["activation"])
    return {
        "hidden_act": list(_ACTIVATIONS)[usual],
        **{theirs: config[ours] for ours, theirs in _CONFIG_NAMES.items()},
    }


def _fetch(address):
    """Fetches the files of a repository that are read, safetensors if any."""
    directory = hubs.fetch(address, [*_BESIDE, "model*.safetensors*"])
    if not glob.glob(os.path.join(directory, "model*.safetensors*")):
        hubs.fetch(address, ["pytorch_model*.bin*"])
    return directory


def open_source(source: str) -> Source:
    """The parts of a REALM or BERT in a directory or on the hub.

    Args:
        source: str. With config.json and weights: a local directory, or an
            address, see `artifacts.hubs`.

    Returns:
        `Source`. Its makers add to its `ignored` what they leave out.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    directory = source
    if hubs.is_address(source):
        directory = _fetch(source)
    path = os.path.join(directory, "config.json")
    if not os.path.isfile(path):
        raise InputError(
            f"{source} holds no config.json: expected a directory with "
            "config.json, weights and vocab.txt, or the address of one, "
            f"hf://OWNER/NAME.{hubs.suggestion(source)}"
        )
    with open(path, encoding="utf-8") as file:
        config = read_config(file.read(), source=path)
    tensors = tensor_files.open_directory(directory)
    opened = source_of(config, tensors, directory)
    return dataclasses.replace(
        opened, name=source, embedding=sentence_transformers.read(directory)
    )


def source_of(config: dict, tensors: Tensors, directory: str) -> Source:
    """The parts of a REALM or BERT by their tensors; see `open_source`.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: `Tensors`.
        directory: str. See `Source`.
    """
    names = set(tensors.names())
    prefixes = {}
    for prefix in ("", "embedder.", "query_embedder.", "reader."):
        part = _part(names, prefix)
        if part:
            prefixes[part] = prefix
    unknown = {
        name
        for name in names - {BLOCK_EMBEDDINGS}
        if not name.startswith(tuple(prefixes.values()))
    }
    if unknown or not prefixes:
        some = ", ".join(sorted(unknown)[:5]) or "no tensor"
        raise InputError(
            f"{tensors.source} holds what is no part of a BERT or REALM: "
            f"{some}."
        )
    if BERT in prefixes and f"{_HEAD}bias" in names:
        prefixes[ENCODER] = prefixes[BERT]
    ignored = {}
    makers = {
        part: functools.partial(_make, part, config, tensors, prefix, ignored)
        for part, prefix in prefixes.items()
    }
    rows = None
    if BLOCK_EMBEDDINGS in names:
        rows = BlockEmbeddings(tensors, BLOCK_EMBEDDINGS)
    return Source(directory, makers, tensors.files, ignored, rows)


def _part(names, prefix):
    """What the tensors with a prefix are, or `None`."""
    if f"{prefix}qa_outputs.dense_output.weight" in names:
        return READER
    if f"{prefix}cls.dense.weight" in names:
        return QUERY_EMBEDDER if prefix == "query_embedder." else EMBEDDER
    if prefix:
        return None
    if f"realm.{_WORDS}" in names:
        return ENCODER
    return BERT if {_WORDS, f"bert.{_WORDS}"} & names else None


def _make(part, config, tensors, prefix, all_ignored):
    """A model of a part with its weights.

    Raises:
        InputError: see `assign`; also if a masked-LM head is not tied to the
            word embeddings.
    """
    kind = EMBEDDER if part == QUERY_EMBEDDER else part
    tensors = _without_prefix(tensors, prefix)
    # A REALM's, if it is none: then the names that it lacks are told.
    bert = next(
        (p for p in _BERT_PREFIXES if f"{p}{_WORDS}" in tensors.arrays),
        _BERT_PREFIXES[0],
    )
    head = {}
    if kind == EMBEDDER:
        head = {
            "projection_dim": tensors.shape("cls.dense.weight")[0],
            "layer_norm_epsilon": config["layer_norm_eps"],
        }
    elif kind == READER:
        _, span_hidden_dim = tensors.shape("qa_outputs.dense_output.weight")
        head = {
            "span_hidden_dim": span_hidden_dim,
            "max_span_width": config.get("max_span_width", 10),
            "layer_norm_epsilon": config.get("reader_layer_norm_eps", 1e-3),
            "max_joint_length": config.get("reader_seq_len", MAX_JOINT_LENGTH),
        }
    elif kind == ENCODER and not config.get("tie_word_embeddings", True):
        raise InputError(
            f"{tensors.source}: a masked-LM head that is not tied to the "
            "word embeddings cannot be read."
        )
    positions = {f"{bert}embeddings.position_ids": "only the numbers from 0"}
    ignored = {
        name: reason
        for start, reason in {**positions, **_IGNORED[kind]}.items()
        for name in tensors.names()
        if name.startswith(start)
    }
    own = {name: name for name in tensors.names() if name not in ignored}
    # A tower of REALM's reads it; a BERT for masked words has none.
    has_pooler = kind not in (BERT, ENCODER) or any(
        name.startswith(f"{bert}pooler.") for name in own
    )
    model = make_part(
        kind,
        encoder_config(config),
        mapping(kind, config["num_hidden_layers"], bert, has_pooler=has_pooler),
        tensors.renamed(own),
        **head,
    )
    # Two towers have tensors of the same names.
    all_ignored.update({prefix + name: why for name, why in ignored.items()})
    return model


def _without_prefix(tensors, prefix):
    """The tensors of a part, without its prefix, by their new names."""
    names = {}
    for name in tensors.names():
        if name.startswith(prefix) and name != BLOCK_EMBEDDINGS:
            stem, dot, ending = name[len(prefix) :].rpartition(".")
            ending = _OLD_ENDINGS.get(dot + ending, dot + ending)
            names[stem + ending] = name
    return tensors.renamed(names)
