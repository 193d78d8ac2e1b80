"""Writes the towers and the reader of a model as presets of Keras Hub."""

import os

from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.errors import InputError

# What `BertBackbone` has fixed.
_ACTIVATION = "gelu_approximate"
_LAYER_NORM_EPSILON = 1e-12
# Our name of a pooling to that of `BertTextEmbedder`.
_POOLINGS = {"mean": "mean", "first": "cls"}


def write(model, directory: str) -> dict[str, str]:
    """Writes one preset for each tower and one for the reader's BERT.

    Args:
        model: `Model`.
        directory: str. Where they are made.

    Returns:
        dict of the presets' names to the names of their classes.

    Raises:
        InputError: if its BERTs are of a kind that `BertBackbone` is not.
    """
    loaded = model.load()
    open_qa, written = loaded.model, {}
    towers = {"embedder": open_qa.query_embedder}
    if not open_qa.share_embedders:
        towers = {
            "query_embedder": open_qa.query_embedder,
            "block_embedder": open_qa.block_embedder,
        }
    for name, part in {**towers, "reader": open_qa.reader}.items():
        _check(part.encoder, model)
        made = _task(part, loaded.tokenizer) if name in towers else None
        if made is None:
            made = _backbone(part.encoder)
            _tokenizer(loaded.tokenizer).save_to_preset(
                os.path.join(directory, name)
            )
        made.save_to_preset(os.path.join(directory, name))
        written[name] = type(made).__name__
    return written


def _check(encoder, model):
    if (encoder.activation, encoder.layer_norm_epsilon) != (
        _ACTIVATION,
        _LAYER_NORM_EPSILON,
    ):
        raise InputError(
            f"{model} has the activation {encoder.activation} and a LayerNorm "
            f"epsilon of {encoder.layer_norm_epsilon:g}; Keras Hub's "
            f"BertBackbone has {_ACTIVATION} and {_LAYER_NORM_EPSILON:g} only, "
            "so it cannot hold it."
        )


def _task(tower, tokenizer):
    """A `BertTextEmbedder` that gives a tower's embeddings, if one does."""
    if tower.pooling not in _POOLINGS or tower.projection_dim is not None:
        return None
    if tower.prefix_ids:
        return None
    import keras_hub

    backbone = _backbone(tower.encoder)
    return keras_hub.models.BertTextEmbedder(
        backbone,
        keras_hub.models.BertTextEmbedderPreprocessor(
            _tokenizer(tokenizer),
            sequence_length=tower.encoder.max_sequence_length,
        ),
        pooling_mode=_POOLINGS[tower.pooling],
        normalize=tower.normalize,
    )


def _backbone(encoder):
    import keras_hub

    config = encoder.get_config()
    for name in ("name", "activation", "layer_norm_epsilon"):
        config.pop(name)
    backbone = keras_hub.models.BertBackbone(**config)
    copy_weights(encoder, backbone)
    return backbone


def _tokenizer(tokenizer):
    import keras_hub

    return keras_hub.models.BertTokenizer(
        list(tokenizer.vocabulary), lowercase=tokenizer.lowercase
    )
