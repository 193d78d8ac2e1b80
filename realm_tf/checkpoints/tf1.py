"""Models of REALM's, ORQA's and BERT's TF1 checkpoints.

Kernels are as Keras has them. The embeddings of all blocks are `block_emb`.

References:
    Original code: google-research/language, language/realm and language/orqa;
    google-research/bert, modeling.py and run_pretraining.py.
"""

import functools
import os

from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import BERT_LAYERS
from realm_tf.checkpoints.assignment import KERAS_ENDINGS
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import Layout
from realm_tf.checkpoints.source import Names
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.checkpoints.source import bert_sizes
from realm_tf.checkpoints.source import make_part
from realm_tf.configs.finetune import MAX_JOINT_LENGTH
from realm_tf.errors import InputError

# The name of a LayerNorm and its epsilon: tf.contrib.layers.layer_norm (REALM)
# makes the first, Keras (the public ICT code) the second.
_CONTRIB = ("LayerNorm", 1e-12)
_KERAS = ("layer_normalization", 1e-3)
# google-research/bert, modeling.py. Names of variables do not tell it.
_HEAD_DIM = 64


def _embedder(scope, head, norm):
    name, epsilon = norm
    layers = {
        "projection": f"{head}dense",
        "projection_layer_norm": f"{head}{name}",
    }
    return Layout(EMBEDDER, scope, layers, {"layer_norm_epsilon": epsilon})


def _encoder(scope):
    head = f"{scope}cls/predictions"
    layers = {
        "masked_lm_head/intermediate_dense": f"{head}/transform/dense",
        "masked_lm_head/intermediate_layer_norm": f"{head}/transform/LayerNorm",
        "masked_lm_head/output_bias": f"{head}/output_bias",
    }
    return Layout(ENCODER, scope, layers)


_READER = Layout(
    READER,
    "reader/module/",
    {
        "span_scorer/endpoints": "reader/dense",
        "span_scorer/layer_norm": "reader/layer_normalization",
        "span_scorer/score": "reader/dense_1",
    },
    {"max_joint_length": MAX_JOINT_LENGTH},
)
_NAMES = Names(
    # A TF-Hub module that wraps a network puts `module/` before its names.
    layouts=(
        _READER,
        # REALM, fine-tuned and pre-trained.
        _embedder("module/module/module/module/", "module/" * 3, _CONTRIB),
        _embedder("module/module/module/", "module/" * 2, _CONTRIB),
        # The public ICT code, fine-tuned, as a module and as a model.
        _embedder("module/module/", "module/", _KERAS),
        _embedder("module/", "module/", _KERAS),
        _embedder("module/", "", _KERAS),
        # REALM's masked-LM encoder, and BERT.
        _encoder("module/"),
        _encoder(""),
        Layout(BERT, "module/"),
        Layout(BERT, ""),
    ),
    bert=BERT_LAYERS,
    endings={**KERAS_ENDINGS, "embeddings": ""},
    # States of REALM's optimizer and of TF1's Adam, and heads of BERT.
    unread=r"(.*/)?(adam_m|adam_v|Adam|Adam_1|beta1_power|beta2_power)"
    r"|global_step"
    r"|(.*/)?cls/(seq_relationship/.*|predictions/(transform/.*|output_bias))",
)


def bert_config(mapping: dict, tensors: Tensors, num_heads: int = 0) -> dict:
    """The arguments of `BertEncoder` that variables' shapes tell.

    Args:
        mapping: dict. See `assign`.
        tensors: `Tensors`.
        num_heads: int. Attention heads. Defaults to `0`: one for each 64 of
            the width, as in every BERT that Google published.

    Returns:
        dict. The others are as BERT has them by default.

    Raises:
        InputError: if a variable that tells a size is missing, or the heads
            do not divide the width.
    """
    sizes = bert_sizes(mapping, tensors)
    hidden_dim = sizes["hidden_dim"]
    if not num_heads and hidden_dim % _HEAD_DIM == 0:
        num_heads = hidden_dim // _HEAD_DIM
    if not num_heads or hidden_dim % num_heads:
        raise InputError(
            f"{tensors.source}: name the attention heads (import: --num-heads, init: "
            f"--set num_heads), which must divide the width, "
            f"{hidden_dim}. Received: num_heads={num_heads}"
        )
    return sizes | {"num_heads": num_heads}


def open_source(source: str, num_heads: int = 0) -> Source:
    """The parts of the checkpoints in a directory, or of one checkpoint.

    Args:
        source: str. A directory, searched with all below it, or the prefix of
            a checkpoint.
        num_heads: int. See `bert_config`.

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
    config = bert_config(mapping, tensors, num_heads)
    return make_part(layout, mapping, tensors, config)
