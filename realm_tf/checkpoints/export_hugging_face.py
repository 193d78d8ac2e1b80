"""Writes a model in the files that Hugging Face's transformers loads."""

import json
import os

import numpy as np

from realm_tf.artifacts import matching
from realm_tf.artifacts.array_files import write_vocabulary
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.assignment import extract
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.errors import InputError

# RealmConfig's own defaults, of transformers 4.40.2.
_READER_BEAM_SIZE = 5
_SEARCHER_BEAM_SIZE = 5000
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
    query, block = open_qa.query_embedder, open_qa.block_embedder
    for tower in (query, block):
        _check_tower(tower, open_qa.score_scale, model)
    embedder, reader = _embedder(query), _reader(open_qa.reader)
    if query is block:
        parts = {"embedder": embedder, "reader": reader}
    else:
        towers = {"embedder": _embedder(block), "query_embedder": embedder}
        parts = {"scorer": _joined(towers), "reader": reader}
    encoder = open_qa.knowledge_augmented_encoder
    if encoder is not None:
        parts["encoder"] = _extract(ENCODER, encoder)
    if blocks:
        matching.check_index(index, blocks=blocks, model=model)
        parts["openqa"] = _open_qa(embedder, reader, index)
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
        or tower.prefix_ids
        or score_scale != 1
        or tower.layer_norm_epsilon != tower.encoder.layer_norm_epsilon
    ):
        raise InputError(
            f"{model} embeds with pooling {tower.pooling}, projection "
            f"{tower.projection_dim}, normalize {tower.normalize}, "
            f"{len(tower.prefix_ids)} wordpieces before a text, score scale "
            f"{score_scale:g} and a LayerNorm epsilon of the projection of "
            f"{tower.layer_norm_epsilon:g}; transformers' REALM has [CLS] with "
            "a projection, plain inner products and the epsilon of its BERT "
            "only, so it cannot hold it."
        )


def _extract(part, model, **more):
    """`(tensors, configuration)` of a part; `more` is for the latter."""
    encoder = model.encoder
    config = hugging_face.from_encoder_config(encoder.get_config())
    table = hugging_face.mapping(part, encoder.num_layers)
    return extract(model, table), {
        **config,
        "attention_probs_dropout_prob": config["hidden_dropout_prob"],
        "type_vocab_size": 2,
        **more,
    }


def _embedder(embedder):
    return _extract(
        EMBEDDER, embedder, retriever_proj_size=embedder.projection_dim
    )


def _reader(reader):
    if reader.reads_titles:
        raise InputError(
            "The reader reads titles, and transformers' REALM has none to read: "
            "it cannot hold it."
        )
    return _extract(
        READER,
        reader,
        span_hidden_size=reader.span_hidden_dim,
        max_span_width=reader.max_span_width,
        reader_layer_norm_eps=reader.layer_norm_epsilon,
        # There is no word for all of it there.
        reader_seq_len=reader.max_joint_length
        or reader.encoder.max_sequence_length,
    )


def _open_qa(embedder, reader, index):
    """As `_extract`, of a `RealmForOpenQA`."""
    tensors, config = _joined({"embedder": embedder, "reader": reader})
    tensors[hugging_face.BLOCK_EMBEDDINGS] = index.embeddings
    num_blocks = len(index.embeddings)
    return tensors, {
        **config,
        "num_block_records": num_blocks,
        "searcher_beam_size": min(_SEARCHER_BEAM_SIZE, num_blocks),
        "reader_beam_size": min(_READER_BEAM_SIZE, num_blocks),
    }


def _joined(parts):
    """Two parts as one, with the tensors below their names."""
    tensors, joined = {}, {}
    for name, (values, config) in parts.items():
        if any(
            joined.get(key, value) != value for key, value in config.items()
        ):
            raise InputError(
                f"{' and '.join(parts)} differ in size: transformers' REALM "
                "has one configuration for both."
            )
        joined |= config
        tensors |= {f"{name}.{key}": value for key, value in values.items()}
    return tensors, joined


def _write(directory, architecture, tensors, config, tokenizer):
    import safetensors.numpy

    Path(directory).mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [architecture],
        "model_type": "realm",
        "pad_token_id": tokenizer.pad_id,
        "torch_dtype": "float32",
        **config,
    }
    tokenizer_config = {
        "tokenizer_class": "RealmTokenizer",
        "do_lower_case": tokenizer.lowercase,
    }
    files = {
        "config.json": json.dumps(config, indent=2, sort_keys=True),
        "tokenizer_config.json": json.dumps(tokenizer_config),
    }
    for name, content in files.items():
        write_text(os.path.join(directory, name), content)
    write_vocabulary(directory, tokenizer.vocabulary)
    # transformers refuses a file that does not say whose names these are.
    content = safetensors.numpy.save(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        metadata={"format": "pt"},
    )
    (Path(directory) / "model.safetensors").write_bytes(content)
