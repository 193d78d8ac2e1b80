"""Weights of Keras Hub's BERT presets; its names are ours."""

import functools

import numpy as np

from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.assignment import variables_by_path
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.text.tokenizer import Tokenizer

# Ours and the backbone's.
_ARGUMENTS = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
)


def load(preset: str):
    """The BERT of a preset and its tokenizer.

    Args:
        preset: str. A name that Keras Hub knows, which it downloads, or a
            directory that it wrote.

    Returns:
        `(function that makes a BertEncoder, Tokenizer)`. The backbone has the
        tanh GELU and a LayerNorm epsilon of 1e-12, whatever it was converted
        from.

    Raises:
        InputError: if there is no such preset or it is no BERT.
    """
    import keras_hub

    try:
        backbone = keras_hub.models.BertBackbone.from_preset(preset)
        tokenizer = keras_hub.models.BertTokenizer.from_preset(preset)
    except Exception as error:  # Whatever loaders of many hosts raise.
        raise InputError(
            f"--source {preset}: Keras Hub could not load it as a BERT "
            f"({type(error).__name__}: {error})."
        ) from error
    vocabulary = tokenizer.get_vocabulary()
    return (
        functools.partial(_make_bert, backbone, preset),
        Tokenizer(vocabulary, lowercase=tokenizer.lowercase),
    )


def _make_bert(backbone, preset):
    config = backbone.get_config()
    encoder = BertEncoder(**{name: config[name] for name in _ARGUMENTS})
    arrays = {k: np.asarray(v) for k, v in variables_by_path(backbone).items()}
    assign(
        encoder,
        {path: (path, "same") for path in variables_by_path(encoder)},
        Tensors(arrays, preset),
        what="a BERT as ours",
    )
    return encoder
