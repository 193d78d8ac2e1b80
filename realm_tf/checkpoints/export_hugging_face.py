"""Writes a model in the files that Hugging Face's transformers loads."""

import json
import os

import numpy as np

from realm_tf.artifacts import matching
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import hugging_face_names
from realm_tf.checkpoints.assignment import extract
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.errors import InputError

# RealmConfig's own defaults, of transformers 4.40.2.
_NUM_CANDIDATES = 8
_READER_BEAM_SIZE = 5
_SEARCHER_BEAM_SIZE = 5000
_READER_SEQ_LEN = 320
_CLASSES = {
    "embedder": "RealmEmbedder",
    "scorer": "RealmScorer",
    "reader": "RealmReader",
    "encoder": "RealmKnowledgeAugEncoder",
    "openqa": "RealmForOpenQA",
}


def write(model, directory: str, blocks=None, index=None) -> dict[str, str]:
    """Writes one directory for each class of transformers' REALM.

    Args:
        model: `Model`.
        directory: str. Where they are made.
        blocks: `Blocks`. Defaults to `None`: no `openqa`.
        index: `Index` over these blocks.

    Returns:
        dict of the directories' names to the names of the classes.

    Raises:
        InputError: if the model has something that transformers' REALM does
            not, or model, blocks and index do not match.
    """
    loaded = model.load()
    open_qa = loaded.model
    for tower in {
        id(t): t for t in (open_qa.query_embedder, open_qa.block_embedder)
    }.values():
        _check_tower(tower, open_qa.score_scale, model)
    parts = _parts(open_qa)
    if blocks:
        matching.check_index(index, blocks=blocks, model=model)
        parts["openqa"] = _open_qa(open_qa, parts["reader"], blocks, index)
    for name, (tensors, config) in parts.items():
        path = os.path.join(directory, name)
        _write(path, _CLASSES[name], tensors, config, loaded.tokenizer)
    if blocks:
        records = np.empty(blocks.num_blocks, object)
        for block in blocks.read():
            records[block.block_id] = block.text.encode("utf-8")
        path = os.path.join(directory, "openqa", "block_records.npy")
        with Path(path).open("wb") as file:
            np.save(file, records, allow_pickle=True)
    return {name: _CLASSES[name] for name in parts}


def _check_tower(tower, score_scale, model):
    if (
        tower.pooling != "cls"
        or tower.projection_dim is None
        or tower.normalize
        or score_scale != 1
    ):
        raise InputError(
            f"{model} embeds with pooling {tower.pooling}, projection "
            f"{tower.projection_dim}, normalize {tower.normalize} and score "
            f"scale {score_scale:g}; transformers' REALM has [CLS] with a "
            "projection and plain inner products only, so it cannot hold it."
        )
    if tower.layer_norm_epsilon != tower.encoder.layer_norm_epsilon:
        raise InputError(
            f"{model}: the projection's LayerNorm has an epsilon of "
            f"{tower.layer_norm_epsilon:g}, its BERT's "
            f"{tower.encoder.layer_norm_epsilon:g}; transformers' REALM has "
            "one for both."
        )


def _parts(open_qa):
    """Name of each class's directory to `(tensors, configuration)`."""
    block = _embedder(open_qa.block_embedder)
    parts = {}
    if open_qa.share_embedders:
        parts["embedder"] = block
    else:
        query, config = _embedder(open_qa.query_embedder)
        if config != block[1]:
            raise InputError(
                "The towers differ in size: transformers' RealmScorer has one "
                "configuration for both."
            )
        parts["scorer"] = (
            {
                **_prefixed("embedder.", block[0]),
                **_prefixed("query_embedder.", query),
            },
            config,
        )
    reader = open_qa.reader
    parts["reader"] = (
        _extract(READER, reader),
        {
            **_bert_config(reader.encoder),
            "span_hidden_size": reader.span_hidden_dim,
            "max_span_width": reader.max_span_width,
            "reader_layer_norm_eps": reader.layer_norm_epsilon,
        },
    )
    encoder = open_qa.knowledge_augmented_encoder
    if encoder is not None:
        parts["encoder"] = (
            _extract(ENCODER, encoder),
            _bert_config(encoder.encoder),
        )
    return parts


def _embedder(embedder):
    return _extract(EMBEDDER, embedder), {
        **_bert_config(embedder.encoder),
        "retriever_proj_size": embedder.projection_dim,
    }


def _open_qa(open_qa, reader, blocks, index):
    """As `_parts`, of a `RealmForOpenQA`; `reader` is the reader's."""
    embedder, embedder_config = _embedder(open_qa.query_embedder)
    reader, reader_config = reader
    both = {**embedder_config, **reader_config}
    if {k: both[k] for k in embedder_config} != embedder_config:
        raise InputError(
            "Reader and query tower differ in size: transformers' "
            "RealmForOpenQA has one configuration for both. Leave --blocks and "
            "--index out."
        )
    tensors = {
        hugging_face.BLOCK_EMBEDDINGS: index.embeddings,
        **_prefixed("embedder.", embedder),
        **_prefixed("reader.", reader),
    }
    return tensors, {
        **both,
        "num_block_records": blocks.num_blocks,
        "searcher_beam_size": min(_SEARCHER_BEAM_SIZE, blocks.num_blocks),
        "reader_beam_size": min(_READER_BEAM_SIZE, blocks.num_blocks),
        "reader_seq_len": _READER_SEQ_LEN,
    }


def _extract(part, model):
    num_layers = model.encoder.num_layers
    return extract(model, hugging_face_names.mapping(part, num_layers))


def _bert_config(encoder):
    config = hugging_face_names.from_encoder_config(encoder.get_config())
    return {
        **config,
        "attention_probs_dropout_prob": config["hidden_dropout_prob"],
        "type_vocab_size": 2,
    }


def _prefixed(prefix, tensors):
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def _write(directory, architecture, tensors, config, tokenizer):
    import safetensors.numpy

    Path(directory).mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [architecture],
        "model_type": "realm",
        "pad_token_id": tokenizer.pad_id,
        "num_candidates": _NUM_CANDIDATES,
        "torch_dtype": "float32",
        **config,
    }
    for name, content in (
        ("config.json", json.dumps(config, indent=2, sort_keys=True)),
        ("vocab.txt", "\n".join(tokenizer.vocabulary) + "\n"),
        (
            "tokenizer_config.json",
            json.dumps(
                {
                    "tokenizer_class": "RealmTokenizer",
                    "do_lower_case": tokenizer.lowercase,
                }
            ),
        ),
    ):
        write_text(os.path.join(directory, name), content)
    # transformers refuses a file that does not say whose names these are.
    content = safetensors.numpy.save(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        metadata={"format": "pt"},
    )
    path = os.path.join(directory, "model.safetensors")
    with Path(path).open("wb") as file:
        file.write(content)
