"""Writes the towers of a model in the form of another library."""

import json
import os

import numpy as np

from realm_tf.artifacts.array_files import write_vocabulary
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import presets
from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.assignment import extract
from realm_tf.checkpoints.assignment import have_equal_weights
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import Layout
from realm_tf.errors import InputError
from realm_tf.models import model_directory

SENTENCE_TRANSFORMERS, KERAS_HUB = "sentence-transformers", "keras-hub"
# What `BertBackbone` of Keras Hub has fixed.
_ACTIVATION = "gelu_approximate"
_LAYER_NORM_EPSILON = 1e-12
# Our name of a pooling to that of both libraries.
_POOLINGS = {ours: theirs for theirs, ours in presets.POOLINGS.items()}
_MODULES = "sentence_transformers.models"


def write(model, directory: str, format: str) -> None:
    """Writes a model.

    One directory holds the tower of both, questions and blocks. Two towers of
    different weights are the folders `query_embedder` and `block_embedder`.

    Args:
        model: `Model`.
        directory: str. Where to write.
        format: str. `"sentence-transformers"`, or `"keras-hub"`, which also
            gets the reader's BERT in the folder `reader`.

    Raises:
        InputError: if the format has no place for a part of the model.
    """
    loaded = model_directory.load(model)
    open_qa, tokenizer = loaded.model, loaded.tokenizer
    query, block = open_qa.query_embedder, open_qa.block_embedder
    towers = {"": query}
    if not have_equal_weights(query, block):
        towers = {"query_embedder": query, "block_embedder": block}
    prompts = {
        "query": _prompt(query, tokenizer),
        "document": _prompt(block, tokenizer),
    }
    for name, tower in towers.items():
        path = os.path.join(directory, name)
        if format == SENTENCE_TRANSFORMERS:
            _write_sentence_transformer(tower, prompts, tokenizer, path, model)
        else:
            _write_preset(tower.encoder, tower, tokenizer, path, model)
    if format == KERAS_HUB:
        path = os.path.join(directory, "reader")
        _write_preset(open_qa.reader.encoder, None, tokenizer, path, model)


def _prompt(tower, tokenizer):
    """The text that a tower reads before every other one."""
    pieces = [tokenizer.vocabulary[each] for each in tower.prefix_ids]
    return " ".join([*pieces, ""]).replace(" ##", "")


def _write_sentence_transformer(tower, prompts, tokenizer, directory, model):
    import safetensors.numpy

    if not _is_bare(tower):
        raise InputError(
            f"{model} embeds with pooling {tower.pooling} and projection "
            f"{tower.projection_dim}. Sentence Transformers has the mean and "
            "the first position, without REALM's projection and its LayerNorm."
        )
    encoder = tower.encoder
    _check_bert(encoder, model)
    config = hugging_face.from_encoder_config(encoder.get_config())
    config |= {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "attention_probs_dropout_prob": config["hidden_dropout_prob"],
        "type_vocab_size": 2,
        "pad_token_id": tokenizer.pad_id,
        "torch_dtype": "float32",
    }
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    if tower.normalize:
        modules.append(("Normalize", "2_Normalize"))
    mode = _POOLINGS[tower.pooling]
    contents = {
        "config.json": config,
        "tokenizer_config.json": {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": tokenizer.lowercase,
        },
        "sentence_bert_config.json": {
            "max_seq_length": encoder.max_sequence_length
        },
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": path,
                "type": f"{_MODULES}.{kind}",
            }
            for i, (kind, path) in enumerate(modules)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": encoder.hidden_dim,
            "pooling_mode_cls_token": mode == "cls",
            "pooling_mode_mean_tokens": mode == "mean",
            "include_prompt": True,
        },
        "config_sentence_transformers.json": {
            "prompts": {k: text for k, text in prompts.items() if text},
            "similarity_fn_name": "cosine" if tower.normalize else "dot",
        },
    }
    for name, content in contents.items():
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2))
    write_vocabulary(directory, tokenizer.vocabulary)
    table = hugging_face.NAMES.mapping(Layout(BERT, ""), encoder.num_layers)
    tensors = extract(encoder, table)
    safetensors.numpy.save_file(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        os.path.join(directory, "model.safetensors"),
        # transformers refuses a file without it.
        metadata={"format": "pt"},
    )


def _write_preset(encoder, tower, tokenizer, directory, model):
    """A `BertTextEmbedder`, or a backbone where it has no place for a tower."""
    from keras_hub import models

    _check_bert(encoder, model)
    config = encoder.get_config()
    fixed = config.pop("activation"), config.pop("layer_norm_epsilon")
    if fixed != (_ACTIVATION, _LAYER_NORM_EPSILON):
        raise InputError(
            f"{model} has the activation {fixed[0]} and a LayerNorm epsilon of "
            f"{fixed[1]:g}; Keras Hub's BertBackbone has {_ACTIVATION} and "
            f"{_LAYER_NORM_EPSILON:g} only."
        )
    config.pop("name")
    backbone = models.BertBackbone(**config)
    copy_weights(encoder, backbone)
    its_tokenizer = models.BertTokenizer(
        list(tokenizer.vocabulary), lowercase=tokenizer.lowercase
    )
    if not tower or not _is_bare(tower) or tower.prefix_ids:
        backbone.save_to_preset(directory)
        its_tokenizer.save_to_preset(directory)
        return
    models.BertTextEmbedder(
        backbone,
        models.BertTextEmbedderPreprocessor(
            its_tokenizer, sequence_length=encoder.max_sequence_length
        ),
        pooling_mode=_POOLINGS[tower.pooling],
        normalize=tower.normalize,
    ).save_to_preset(directory)


def _check_bert(encoder, model):
    if encoder.num_relative_buckets:
        raise InputError(
            f"{model} has an encoder of MPNet's shape: --format writes BERTs "
            "only; leave it out, or push the checkpoint that it is from."
        )


def _is_bare(tower):
    return tower.pooling in _POOLINGS and tower.projection_dim is None
