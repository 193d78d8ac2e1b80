"""Models of REALM's, ORQA's and BERT's TF1 checkpoints."""

import dataclasses
import functools
import os
import re

from realm_tf.checkpoints import assignment
from realm_tf.checkpoints import tf1_names
from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# google-research/bert, modeling.py. Names of variables do not tell it.
_HEAD_DIM = 64


def bert_config(
    tensors: Tensors, scope: str, num_heads: int | None = None
) -> dict:
    """The arguments of `BertEncoder` that variables' shapes tell.

    Args:
        tensors: `Tensors`.
        scope: str. Of a `Part`.
        num_heads: int. Attention heads. Defaults to `None`: one for each 64
            of the width, as in every BERT that Google published.

    Returns:
        dict.

    Raises:
        InputError: if a variable that tells a size is missing or no matrix, a
            layer is missing, or the heads do not divide the width.
    """
    word, position = (
        f"{scope}bert/embeddings/{kind}_embeddings"
        for kind in ("word", "position")
    )
    vocabulary_size, hidden_dim = _matrix_shape(tensors, word)
    max_sequence_length, _ = _matrix_shape(tensors, position)
    num_layers = _num_layers(tensors, scope)
    _, intermediate_dim = _matrix_shape(
        tensors, f"{scope}bert/encoder/layer_0/intermediate/dense/kernel"
    )
    if num_heads is None and hidden_dim % _HEAD_DIM:
        raise InputError(
            f"{tensors.source}: a width of {hidden_dim} is no multiple of "
            f"{_HEAD_DIM}, so it does not tell the attention heads. Give "
            "num_heads."
        )
    num_heads = hidden_dim // _HEAD_DIM if num_heads is None else num_heads
    if num_heads < 1 or hidden_dim % num_heads:
        raise InputError(
            f"{tensors.source}: num_heads must divide the width, {hidden_dim}. "
            f"Received: num_heads={num_heads}"
        )
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": max_sequence_length,
        # google-research/bert, modeling.py.
        "activation": "gelu_approximate",
        "layer_norm_epsilon": 1e-12,
        "dropout": 0.1,
    }


def make(
    tensors: Tensors,
    kind: str,
    *,
    scope: str | None = None,
    num_heads: int | None = None,
):
    """A part of a checkpoint, with its weights.

    The LayerNorm of an embedder's projection has the epsilon that its name
    tells: 1e-12 as `LayerNorm` (REALM), 1e-3 as `layer_normalization` (the
    public ICT code).

    Args:
        tensors: `Tensors`.
        kind: str. `"embedder"`, `"encoder"` (REALM's, or Google's BERT with
            its masked-LM head), `"reader"` or `"bert"` (that of a checkpoint
            without a head, or less its masked-LM head).
        scope: str. The `Part.scope` to read, where there are several.
            Defaults to `None`: the only one.
        num_heads: int. See `bert_config`.

    Returns:
        `Embedder`, `KnowledgeAugmentedEncoder`, `Reader` or `BertEncoder`.

    Raises:
        InputError: if there is none or more than one, or a variable is
            missing, unknown, misshapen or not finite.
    """
    part = _select(tensors, kind, scope)
    model = BertEncoder(**bert_config(tensors, part.scope, num_heads))
    if kind == "embedder":
        model = Embedder(
            model,
            projection_dim=_matrix_shape(
                tensors, f"{part.head_scope}dense/kernel"
            )[1],
            layer_norm_epsilon=tf1_names.EPSILONS[part.layer_norm],
        )
    elif kind == "reader":
        model = Reader(
            model,
            span_hidden_dim=_matrix_shape(
                tensors, f"{part.head_scope}dense_1/kernel"
            )[0],
            layer_norm_epsilon=tf1_names.EPSILONS[part.layer_norm],
        )
    elif kind == "encoder":
        model = KnowledgeAugmentedEncoder(model)
    what, _ = tf1_names.DESCRIPTIONS[kind]
    assignment.assign(
        model,
        tf1_names.mapping(part, _num_layers(tensors, part.scope)),
        tensors,
        what=what,
        ignored=tf1_names.ignored_names(tensors.names(), part),
    )
    return model


def open_source(source: str, num_heads: int | None = None) -> Source:
    """The parts of the checkpoints in a directory, or of one checkpoint.

    Args:
        source: str. A directory, searched by `find_checkpoints`, or the
            prefix of a checkpoint.
        num_heads: int. See `bert_config`.

    Returns:
        `Source`.

    Raises:
        InputError: if there is no part of a REALM or BERT, or one is there
            twice.
    """
    is_directory = os.path.isdir(source)
    prefixes = (
        tf_checkpoint.find_checkpoints(source) if is_directory else [source]
    )
    makers, files, ignored, rows = {}, [], {}, None
    for prefix in prefixes:
        tensors = tf_checkpoint.open_checkpoint(prefix)
        parts = tf1_names.classify(tensors.names())
        for part in parts:
            if part.kind == "block_emb":
                rows = BlockEmbeddings(tensors, f"{part.scope}block_emb")
                continue
            # What has a masked-LM head is a BERT, too.
            for kind in {part.kind, part.kind.replace(ENCODER, BERT)}:
                maker = functools.partial(
                    make, tensors, kind, scope=part.scope, num_heads=num_heads
                )
                add_maker(makers, kind, maker, source)
        files += tensors.files
        ignored |= tf1_names.ignored_names(tensors.names(), *parts)
    if not makers and rows is None:
        raise InputError(
            f"{source} holds no part of a REALM or BERT: expected TF1 "
            "checkpoints (*.index) with an embedder, an encoder, a reader, a "
            "BERT or block_emb."
        )
    return Source(
        source if is_directory else os.path.dirname(source),
        makers,
        tuple(files),
        ignored,
        rows,
    )


def _select(tensors, kind, scope):
    """The only part of a kind, or that of a scope."""
    present = tf1_names.classify(tensors.names())
    kinds = ("bert", "encoder") if kind == "bert" else (kind,)
    found = [
        part
        for part in present
        if part.kind in kinds and scope in (None, part.scope)
    ]
    what, expected = tf1_names.DESCRIPTIONS[kind]
    if not found:
        where = "" if scope is None else f" in the scope {scope!r}"
        listed = ", ".join(map(str, present)) or "nothing of REALM or BERT"
        raise InputError(
            f"{tensors.source} does not hold {what}{where}. Expected "
            f"variables: {expected}. Found: {listed}."
        )
    if len(found) > 1:
        raise InputError(
            f"{tensors.source} holds {what} more than once. Choose one of the "
            f"scopes {[part.scope for part in found]}."
        )
    return dataclasses.replace(found[0], kind=kind)


def _num_layers(tensors, scope):
    pattern = re.compile(re.escape(scope) + r"bert/encoder/layer_(\d+)/")
    found = {int(m[1]) for m in map(pattern.match, tensors.names()) if m}
    for layer in range(max(len(found), 1)):
        if layer not in found:
            raise InputError(
                f"{tensors.source} lacks the variables "
                f"{scope}bert/encoder/layer_{layer}/*."
            )
    return len(found)


def _matrix_shape(tensors, name):
    shape = tensors.shape(name)
    if len(shape) != 2 or 0 in shape:
        raise InputError(
            f"{tensors.source}: {name} has the shape {shape}, expected a "
            "matrix."
        )
    return shape
