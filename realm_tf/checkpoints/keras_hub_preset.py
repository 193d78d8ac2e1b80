"""Weights of Keras Hub's BERT presets; its names are ours."""

import numpy as np

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
    """A preset's backbone and its tokenizer as ours.

    Args:
        preset: str. A name that Keras Hub knows, which it downloads, or a
            directory that it wrote.

    Returns:
        `(keras_hub.models.BertBackbone, Tokenizer)`.

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
    return backbone, Tokenizer(vocabulary, lowercase=tokenizer.lowercase)


def make_bert(backbone) -> BertEncoder:
    """A `BertEncoder` with the weights of a `BertBackbone`.

    Args:
        backbone: `keras_hub.models.BertBackbone`. It has the tanh GELU and a
            LayerNorm epsilon of 1e-12, whatever it was converted from.

    Raises:
        InputError: if a variable is missing, unknown or misshapen.
    """
    config = backbone.get_config()
    encoder = BertEncoder(**{name: config[name] for name in _ARGUMENTS})
    theirs = _by_path(backbone)
    ours = _by_path(encoder)
    if {k: v.shape for k, v in theirs.items()} != {
        k: v.shape for k, v in ours.items()
    }:
        differing = {
            path
            for path in {*ours, *theirs}
            if path not in ours
            or path not in theirs
            or ours[path].shape != theirs[path].shape
        }
        raise InputError(
            f"The backbone {backbone.name} is no BERT as ours: "
            f"{', '.join(sorted(differing))} are missing, unknown or of "
            "another shape."
        )
    for path, variable in ours.items():
        variable.assign(np.asarray(theirs[path]))
    return encoder


def _by_path(model):
    return {
        v.path: v for v in model.variables if "seed_generator" not in v.path
    }
