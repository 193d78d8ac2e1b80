"""Models of REALM's, ORQA's and BERT's TF1 checkpoints."""

import dataclasses
import functools
import os
import re

from realm_tf.checkpoints import tf1_names
from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
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
        InputError: if a variable that tells a size is missing, or the heads
            do not divide the width.
    """
    embeddings = f"{scope}bert/embeddings"
    vocabulary_size, hidden_dim = tensors.shape(f"{embeddings}/word_embeddings")
    max_sequence_length, _ = tensors.shape(f"{embeddings}/position_embeddings")
    _, intermediate_dim = tensors.shape(
        f"{scope}bert/encoder/layer_0/intermediate/dense/kernel"
    )
    pattern = re.compile(re.escape(scope) + r"bert/encoder/(layer_\d+)/")
    layers = {m[1] for m in map(pattern.match, tensors.names()) if m}
    if num_heads is None and hidden_dim % _HEAD_DIM == 0:
        num_heads = hidden_dim // _HEAD_DIM
    if not num_heads or num_heads < 1 or hidden_dim % num_heads:
        raise InputError(
            f"{tensors.source}: give --num-heads, which must divide the width, "
            f"{hidden_dim}. Received: num_heads={num_heads}"
        )
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": len(layers),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": max_sequence_length,
        # google-research/bert, modeling.py.
        "activation": "gelu_approximate",
        "layer_norm_epsilon": 1e-12,
        "dropout": 0.1,
    }


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
            if part.kind == tf1_names.BLOCK_EMB:
                rows = BlockEmbeddings(tensors, f"{part.scope}block_emb")
                continue
            others = [other for other in parts if other != part]
            own = tf1_names.names_beside(tensors.names(), others)
            # What has a masked-LM head is a BERT, too.
            for kind in {part.kind, part.kind.replace(ENCODER, BERT)}:
                maker = functools.partial(
                    _make,
                    tensors.renamed({name: name for name in own}),
                    dataclasses.replace(part, kind=kind),
                    num_heads,
                )
                add_maker(makers, kind, maker, source)
        files += tensors.files
        ignored |= tf1_names.ignored_names(tensors.names(), parts)
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


def _make(tensors, part, num_heads):
    """A model of a part, whose variables `tensors` are.

    The LayerNorm of a head has the epsilon that its name tells: 1e-12 as
    `LayerNorm` (REALM), 1e-3 as `layer_normalization` (the public ICT code).
    """
    config = bert_config(tensors, part.scope, num_heads)
    model = BertEncoder(**config)
    if part.kind == EMBEDDER:
        _, projection_dim = tensors.shape(f"{part.head_scope}dense/kernel")
        model = Embedder(
            model,
            projection_dim=projection_dim,
            layer_norm_epsilon=tf1_names.EPSILONS[part.layer_norm],
        )
    elif part.kind == READER:
        span_hidden_dim, _ = tensors.shape(f"{part.head_scope}dense_1/kernel")
        model = Reader(
            model,
            span_hidden_dim=span_hidden_dim,
            layer_norm_epsilon=tf1_names.EPSILONS[part.layer_norm],
        )
    elif part.kind == ENCODER:
        model = KnowledgeAugmentedEncoder(model)
    assign(
        model,
        tf1_names.mapping(part, config["num_layers"]),
        tensors,
        ignored=tf1_names.ignored_names(tensors.names(), [part]),
    )
    return model
