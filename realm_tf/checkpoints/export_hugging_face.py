"""Writes a model as directories that Hugging Face's transformers loads.

  realm export-checkpoint --to hf --model MODEL --output DIR
  realm export-checkpoint --to hf --model MODEL --output DIR \\
      --blocks BLOCKS --index INDEX

transformers has had REALM up to 4.40.2. DIR gets one directory for each of its
classes: embedder (RealmEmbedder; scorer, RealmScorer, if questions and blocks
have towers of their own), reader (RealmReader), encoder
(RealmKnowledgeAugEncoder, if there is a masked-LM head) and, with blocks and
index, openqa (RealmForOpenQA with block_records.npy, whose texts are in memory
while it is written; it has no titles).

It knows REALM's own towers only: [CLS] with a projection, inner products.
"""

import json
import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints.assignment import extract
from realm_tf.errors import InputError

FORMATS = ("hf",)
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


def add_arguments(parser):
    """Arguments of `realm export-checkpoint`."""
    parser.add_argument(
        "--to", required=True, choices=FORMATS, help="whose format"
    )
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="model directory"
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the directory to make"
    )
    parser.add_argument(
        "--blocks", metavar="DIR", help="blocks directory, for openqa"
    )
    parser.add_argument(
        "--index", metavar="DIR", help="index directory of these blocks"
    )


def run(args, extra):
    """`realm export-checkpoint`."""
    if bool(args.blocks) != bool(args.index):
        raise InputError(
            "--blocks and --index belong together: give both or none."
        )
    names = export(
        args.model, args.output, blocks=args.blocks, index=args.index
    )
    for name in names:
        print(f"{os.path.join(args.output, name)}: {_CLASSES[name]}")


def export(
    model: str,
    output: str,
    *,
    blocks: str | None = None,
    index: str | None = None,
) -> list[str]:
    """Writes the directories.

    Args:
        model: str. Model directory.
        output: str. The directory to make, with one in it for each class.
        blocks: str. Blocks directory. Defaults to `None`: no `openqa`.
        index: str. Index directory over these blocks.

    Returns:
        list of str, the names of the directories.

    Raises:
        InputError: if the model has something that transformers' REALM does
            not, or model, blocks and index do not belong together.
    """
    from realm_tf.artifacts import model_directory

    loaded = model_directory.load(model)
    open_qa = loaded.model
    for tower in {
        id(t): t for t in (open_qa.query_embedder, open_qa.block_embedder)
    }.values():
        _check_tower(tower, open_qa.score_scale, model)
    parts = _parts(open_qa)
    with artifact.write(
        output,
        kind=schema.HUGGING_FACE,
        parameters={"with_blocks": bool(blocks)},
        parents={"model": loaded.metadata["fingerprint"]},
    ) as stage:
        for name, (tensors, config) in parts.items():
            _write(stage.path(name), _CLASSES[name], tensors, config, loaded)
        if blocks:
            _write_open_qa(stage.path("openqa"), loaded, parts, blocks, index)
            parts["openqa"] = None
        stage.metadata["classes"] = {name: _CLASSES[name] for name in parts}
    return list(parts)


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
        extract(reader, hugging_face.reader_mapping(reader.encoder.num_layers)),
        {
            **_bert_config(reader.encoder),
            "span_hidden_size": reader.span_hidden_dim,
            "max_span_width": reader.max_span_width,
            "reader_layer_norm_eps": reader.layer_norm_epsilon,
        },
    )
    encoder = open_qa.knowledge_augmented_encoder
    if encoder is not None:
        mapping = hugging_face.knowledge_augmented_encoder_mapping(
            encoder.encoder.num_layers
        )
        parts["encoder"] = (
            extract(encoder, mapping),
            _bert_config(encoder.encoder),
        )
    return parts


def _embedder(embedder):
    mapping = hugging_face.embedder_mapping(embedder.encoder.num_layers)
    return extract(embedder, mapping), {
        **_bert_config(embedder.encoder),
        "retriever_proj_size": embedder.projection_dim,
    }


def _bert_config(encoder):
    config = hugging_face.from_encoder_config(encoder.get_config())
    return {
        **config,
        "attention_probs_dropout_prob": config["hidden_dropout_prob"],
        "type_vocab_size": 2,
    }


def _prefixed(prefix, tensors):
    return {f"{prefix}{name}": value for name, value in tensors.items()}


def _write(directory, architecture, tensors, config, loaded):
    import safetensors.numpy

    Path(directory).mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": [architecture],
        "model_type": "realm",
        "pad_token_id": loaded.tokenizer.pad_id,
        "num_candidates": _NUM_CANDIDATES,
        "torch_dtype": "float32",
        **config,
    }
    for name, content in (
        ("config.json", json.dumps(config, indent=2, sort_keys=True)),
        ("vocab.txt", "\n".join(loaded.tokenizer.vocabulary) + "\n"),
        (
            "tokenizer_config.json",
            json.dumps(
                {
                    "tokenizer_class": "RealmTokenizer",
                    "do_lower_case": loaded.tokenizer.lowercase,
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


def _write_open_qa(directory, loaded, parts, blocks, index):
    from realm_tf.artifacts import index_files

    metadata = artifact.read(blocks, kind=schema.BLOCKS)
    index_files.check_parents(
        index,
        block_tower=loaded.block_tower_fingerprint(),
        blocks=metadata["fingerprint"],
    )
    embedder, embedder_config = _embedder(loaded.model.query_embedder)
    reader, reader_config = parts["reader"]
    both = {**embedder_config, **reader_config}
    if {k: both[k] for k in embedder_config} != embedder_config:
        raise InputError(
            "Reader and query tower differ in size: transformers' "
            "RealmForOpenQA has one configuration for both. Leave --blocks and "
            "--index out."
        )
    num_blocks = metadata["num_blocks"]
    _write(
        directory,
        _CLASSES["openqa"],
        {
            hugging_face.BLOCK_EMBEDDINGS: index_files.load_embeddings(index),
            **_prefixed("embedder.", embedder),
            **_prefixed("reader.", reader),
        },
        {
            **both,
            "num_block_records": num_blocks,
            "searcher_beam_size": min(_SEARCHER_BEAM_SIZE, num_blocks),
            "reader_beam_size": min(_READER_BEAM_SIZE, num_blocks),
            "reader_seq_len": _READER_SEQ_LEN,
        },
        loaded,
    )
    records = np.empty(num_blocks, object)
    for block in schema.read_blocks(blocks):
        records[block.block_id] = block.text.encode("utf-8")
    with Path(os.path.join(directory, "block_records.npy")).open("wb") as file:
        np.save(file, records, allow_pickle=True)
