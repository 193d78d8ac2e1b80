"""Models of REALM's, ORQA's and BERT's TF1 checkpoints."""

import functools
import os

from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.source import Names
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.checkpoints.source import bert_sizes
from realm_tf.checkpoints.source import make_part
from realm_tf.errors import InputError

# google-research/bert, modeling.py. Names of variables do not tell it.
_HEAD_DIM = 64
_NAMES = Names.of("tf1")


def open_source(source: str, num_heads: int = 0) -> Source:
    """The parts of the checkpoints in a directory, or of one checkpoint.

    Args:
        source: str. A directory, searched with all below it, or the prefix of
            a checkpoint.
        num_heads: int. Attention heads. Defaults to `0`: one for each 64 of
            the width, as in every BERT that Google published.

    Returns:
        `Source`.

    Raises:
        InputError: if there is no part of a REALM or BERT, one is there
            twice, or a variable is unknown.
    """
    make = functools.partial(_make, num_heads)
    found = [
        _NAMES.find(tf_checkpoint.open_checkpoint(prefix), make)
        for prefix in tf_checkpoint.find_checkpoints(source)
    ]
    makers = {}
    for each in found:
        for part, maker in each.makers.items():
            add_maker(makers, part, maker, source)
    rows = [each.block_embeddings for each in found if each.block_embeddings]
    if not makers and not rows:
        raise InputError(
            f"{source} holds no part of a REALM or BERT: expected TF1 "
            "checkpoints (*.index) with an embedder, an encoder, a reader, a "
            "BERT or block_emb."
        )
    return Source(
        source if os.path.isdir(source) else os.path.dirname(source),
        makers,
        sum((each.files for each in found), ()),
        sum((each.unread for each in found), ()),
        rows[0] if rows else None,
    )


def _make(num_heads, layout, mapping, tensors):
    sizes = bert_sizes(mapping, tensors)
    hidden_dim = sizes["hidden_dim"]
    if not num_heads and hidden_dim % _HEAD_DIM == 0:
        num_heads = hidden_dim // _HEAD_DIM
    if not num_heads or hidden_dim % num_heads:
        raise InputError(
            f"{tensors.source}: name the attention heads "
            "(realm init --set num_heads), which must divide the width, "
            f"{hidden_dim}. Received: num_heads={num_heads}"
        )
    config = sizes | {"num_heads": num_heads}
    return make_part(layout, mapping, tensors, config)
