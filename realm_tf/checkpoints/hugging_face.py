"""Models of Hugging Face's BERT and REALM checkpoints."""

import functools
import os

from realm_tf.checkpoints import tensor_files
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.hugging_face_names import HEAD
from realm_tf.checkpoints.hugging_face_names import encoder_config
from realm_tf.checkpoints.hugging_face_names import mapping
from realm_tf.checkpoints.hugging_face_names import read_config
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.source import Source
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# Embeddings of all blocks, in a RealmForOpenQA: no weight of the model.
BLOCK_EMBEDDINGS = "block_emb"

# What a part can have before the names of its BERT: REALM's classes, a BERT
# with heads, and one without.
_BERT_PREFIXES = ("realm.", "bert.", "")
_WORDS = "embeddings.word_embeddings.weight"
# Of TensorFlow's names in the oldest files, such as bert-base-uncased's.
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

CONFIG = "config.json"


def open_source(directory: str) -> Source:
    """The parts of a REALM or BERT in a directory.

    Args:
        directory: str. Local, with config.json and weights.

    Returns:
        `Source`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    path = os.path.join(directory, CONFIG)
    if not os.path.isfile(path):
        raise InputError(
            f"{path} is missing, and nothing is downloaded: fetch the model, "
            f"such as by `hf download {directory} --local-dir DIR`, and name "
            f"the directory with {CONFIG}, weights and vocab.txt."
        )
    with open(path, encoding="utf-8") as file:
        config = read_config(file.read(), source=path)
    return source_of(config, tensor_files.open_directory(directory), directory)


def source_of(config: dict, tensors: Tensors, directory: str) -> Source:
    """The parts of a REALM or BERT by their tensors.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: `Tensors`.
        directory: str. See `Source`.

    Returns:
        `Source`. Its makers add to its `ignored` what they leave out.

    Raises:
        InputError: if a tensor is of no known part.
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
    if BERT in prefixes and f"{HEAD}bias" in names:
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
    model = BertEncoder(**encoder_config(config))
    # Beginnings of names to reasons.
    ignored = {HEAD: f"no {kind} reads its head"}
    if kind == EMBEDDER:
        model = Embedder(
            model,
            projection_dim=tensors.shape("cls.dense.weight")[0],
            layer_norm_epsilon=config["layer_norm_eps"],
        )
    elif kind == READER:
        model = Reader(
            model,
            span_hidden_dim=tensors.shape("qa_outputs.dense_output.weight")[1],
            max_span_width=config.get("max_span_width", 10),
            layer_norm_epsilon=config.get("reader_layer_norm_eps", 1e-3),
        )
    elif kind == ENCODER:
        model = KnowledgeAugmentedEncoder(model)
        if not config.get("tie_word_embeddings", True):
            raise InputError(
                f"{tensors.source}: a masked-LM head that is not tied to the "
                "word embeddings cannot be read."
            )
        ignored = {
            f"{HEAD}decoder.": "a copy of the word embeddings and the bias",
            "cls.seq_relationship.": "REALM has no next-sentence head",
        }
    else:
        ignored = {"cls.": "the encoder alone was asked for"} if bert else {}
    reasons = {}
    for name in tensors.names():
        if name.endswith("embeddings.position_ids"):
            reasons[name] = "only the numbers from 0"
        for start, reason in ignored.items():
            if name.startswith(start):
                reasons[name] = reason
    table = mapping(kind, config["num_hidden_layers"], bert)
    assign(model, table, tensors, ignored=reasons)
    # Two towers have tensors of the same names.
    all_ignored.update({prefix + name: why for name, why in reasons.items()})
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
