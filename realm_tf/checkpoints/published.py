"""Makes a model directory of a published REALM or ORQA checkpoint.

  realm import hf --source DIR --output MODEL
  realm import hf --source DIR --output MODEL --blocks BLOCKS --embeddings OUT
  realm import tf1 --source DIR --vocab vocab.txt --output MODEL

hf: directories that transformers (up to 4.40.2) wrote for RealmForOpenQA,
RealmEmbedder, RealmScorer, RealmKnowledgeAugEncoder or RealmReader. Neither
torch nor transformers is needed, and no code in a file is run.

tf1: what REALM's and ORQA's authors released, TF1 checkpoints and TF-Hub
modules.

--source takes several directories, such as an embedder's and an encoder's: one
model is made of all their parts. A reader that none of them holds begins with
the BERT of the encoder or embedder and a random head, to be fine-tuned.

--blocks writes the texts as blocks, row by row (block_records.npy, blocks.tfr
with titles.tfr), --embeddings the published embeddings of these blocks, ready
for `realm index`.
"""

import collections
import dataclasses
import os

import numpy as np

from realm_tf.articles import published_texts
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.checkpoints import bert
from realm_tf.checkpoints import published_corpus
from realm_tf.errors import InputError

# cli.py passes what it does not know on to the pipeline of --blocks.
ACCEPTS_EXTRA = True

KINDS = ("hf", "tf1")


def add_arguments(parser):
    """Arguments of `realm import`."""
    parser.add_argument("kind", choices=KINDS, help="what the sources are")
    parser.add_argument(
        "--source",
        nargs="+",
        required=True,
        metavar="DIR",
        help="directories that hold the parts",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="model directory to make"
    )
    parser.add_argument(
        "--block-tower",
        metavar="DIR",
        help="where the embedder of the blocks is, if it is another than that "
        "of the questions: fine-tuned checkpoints hold the latter alone",
    )
    parser.add_argument(
        "--vocab", metavar="FILE", help="vocab.txt (default: that of a source)"
    )
    parser.add_argument(
        "--cased",
        action="store_true",
        help="the vocabulary is of a cased BERT (default: as the source's "
        "tokenizer_config.json says, else uncased)",
    )
    parser.add_argument(
        "--num-heads",
        type=int,
        metavar="N",
        help="tf1: attention heads (default: one for 64 of the width)",
    )
    parser.add_argument(
        "--license",
        help="for the model's card (default: what the source's README.md says)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of a random head (default: 0)"
    )
    parser.add_argument(
        "--texts",
        metavar="FILE",
        help=f"with --blocks: {published_corpus.BLOCK_RECORDS}, or "
        f"{published_corpus.BLOCKS_TFR} with {published_texts.TITLES} beside "
        "it (default: that of a source)",
    )
    parser.add_argument(
        "--blocks", metavar="DIR", help="also make a blocks directory"
    )
    parser.add_argument(
        "--max-block-length",
        type=int,
        metavar="N",
        help="with --blocks: most wordpieces of a block with its title, [CLS] "
        "and both [SEP], that models read (default: 288)",
    )
    parser.add_argument(
        "--embeddings",
        metavar="DIR",
        help="also make an embeddings directory; needs --blocks",
    )


def run(args, extra):
    """`realm import`."""
    if args.embeddings and not args.blocks:
        raise InputError(
            "--embeddings needs --blocks: embeddings belong to blocks."
        )
    for line in import_checkpoint(**vars(args), beam_options=extra):
        print(line)


def import_checkpoint(
    kind: str,
    source: list[str],
    output: str,
    *,
    block_tower: str | None = None,
    vocab: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    license: str | None = None,
    seed: int = 0,
    texts: str | None = None,
    blocks: str | None = None,
    max_block_length: int | None = None,
    embeddings: str | None = None,
    beam_options: list[str] = (),
) -> list[str]:
    """Makes a model directory, and blocks and embeddings if asked for.

    What this import has made already is left as it is, so that an interrupted
    one goes on where it was.

    Args:
        kind: str. One of `KINDS`.
        source: list of str. Local directories with the parts.
        output: str. Model directory to make.
        block_tower: str. Directory with the blocks' embedder. Defaults to
            `None`: the same as the questions'.
        vocab: str. A vocab.txt. Defaults to that of a source.
        cased: bool. Defaults to what a source says.
        num_heads: int. Of a TF1 checkpoint; see `tf1.bert_config`.
        license: str. For the card. Defaults to what a source says.
        seed: int. Of a random reader's head.
        texts: str. Where block texts are. Defaults to that of a source.
        blocks: str. Blocks directory to make. Defaults to `None`.
        max_block_length: int. See `operations.chunk.Chunk`. Defaults to 288.
        embeddings: str. Embeddings directory to make. Defaults to `None`.
        beam_options: list of str. For the pipeline that writes blocks.

    Returns:
        list of str: what was read, what not and why, a line each.

    Raises:
        InputError: if parts are missing, damaged or do not fit each other, or
            a directory to make is there and not of this import.
    """
    opened = [_open(kind, directory, num_heads) for directory in source]
    tower = _open(kind, block_tower, num_heads) if block_tower else None
    parameters = {
        "from": f"import {kind}",
        "sources": [os.path.abspath(directory) for directory in source],
        "block_tower": block_tower and os.path.abspath(block_tower),
        "seed": seed,
    }
    if artifact.is_complete(output):
        made = artifact.read(output, kind=schema.MODEL)["parameters"]
        lines = [published_corpus.there_already(output, made == parameters)]
    else:
        lines = _write_model(
            output,
            opened,
            tower,
            vocab=vocab,
            cased=cased,
            license=license,
            parameters=parameters,
        )
    rows = next(
        (o.block_embeddings for o in opened if o.block_embeddings), None
    )
    if blocks:
        lines += published_corpus.write_blocks(
            output,
            blocks,
            texts,
            sources=[source.directory for source in opened],
            rows=rows,
            max_block_length=max_block_length,
            beam_options=beam_options,
        )
    if embeddings:
        lines += published_corpus.write_embeddings(
            output, blocks, embeddings, rows
        )
    elif rows:
        lines.append(
            f"{rows.num_rows:,} embeddings of blocks were not asked for: "
            "--blocks and --embeddings write them."
        )
    return lines


@dataclasses.dataclass(frozen=True)
class Opened:
    """A source directory.

    Args:
        directory: str.
        makers: dict. Name of each part (`hugging_face.EMBEDDER`, ...) to the
            function that makes it.
        files: list of str. Those that hold the weights.
        ignored: function that gives a dict of tensor name to the reason why
            it was not read, after the makers were called.
        block_embeddings: `BlockEmbeddings` or `None`.
    """

    directory: str
    makers: dict
    files: list
    ignored: object
    block_embeddings: published_corpus.BlockEmbeddings | None


def _open(kind, directory, num_heads):
    return (
        _open_hf(directory) if kind == "hf" else _open_tf1(directory, num_heads)
    )


def _open_hf(directory):
    from realm_tf.checkpoints import hugging_face

    checkpoint = hugging_face.open_checkpoint(directory)
    parts = checkpoint.parts()
    makers = {
        hugging_face.EMBEDDER: checkpoint.embedder,
        hugging_face.QUERY_EMBEDDER: lambda: checkpoint.embedder(
            hugging_face.QUERY_EMBEDDER
        ),
        hugging_face.READER: checkpoint.reader,
        hugging_face.ENCODER: checkpoint.knowledge_augmented_encoder,
    }
    if not set(makers) & set(parts):
        raise InputError(
            f"{directory} holds a plain BERT: start from it with "
            f"`realm init --from hf --source {directory}`."
        )
    name = hugging_face.BLOCK_EMBEDDINGS
    has_rows = name in checkpoint.tensors.names()
    return Opened(
        directory,
        {part: make for part, make in makers.items() if part in parts},
        checkpoint.files,
        lambda: checkpoint.ignored,
        published_corpus.BlockEmbeddings(checkpoint.tensors, name)
        if has_rows
        else None,
    )


def _open_tf1(directory, num_heads):
    from realm_tf.checkpoints import tensor_bundle
    from realm_tf.checkpoints import tf1

    make = {
        "embedder": tf1.make_embedder,
        "reader": tf1.make_reader,
        "encoder": tf1.make_knowledge_augmented_encoder,
    }
    prefixes = tensor_bundle.find_checkpoints(directory)
    makers, files, ignored, rows = {}, [], {}, None
    for prefix in prefixes:
        bundle = tensor_bundle.TensorBundle(prefix)
        parts = tf1.classify(bundle.names())
        for part in parts:
            if part.kind == "block_emb":
                rows = published_corpus.BlockEmbeddings(
                    bundle, f"{part.scope}block_emb"
                )
            elif part.kind in make:
                _add(
                    makers,
                    part.kind,
                    _maker(make[part.kind], bundle, part.scope, num_heads),
                    directory,
                )
        files += bundle.files()
        ignored |= tf1.ignored_names(bundle.names(), *parts)
    if not makers and rows is None:
        raise InputError(
            f"{directory} holds no part of a REALM: expected TF1 checkpoints "
            "(*.index) with an embedder, an encoder, a reader or block_emb."
        )
    return Opened(directory, makers, files, lambda: ignored, rows)


def _maker(make, bundle, scope, num_heads):
    return lambda: make(bundle, scope=scope, num_heads=num_heads)


def _add(found, part, value, directory):
    if part in found:
        raise InputError(
            f"{directory} holds a second {part}: give one --source a part."
        )
    found[part] = value


def _write_model(output, opened, tower, *, vocab, cased, license, parameters):
    """Makes the model directory; returns lines that say of what."""
    import keras

    from realm_tf.artifacts import model_directory
    from realm_tf.artifacts.model_card import Card

    keras.utils.set_random_seed(parameters["seed"])
    model, lines = _make_model(opened, tower)
    sources = [*opened, tower] if tower else opened
    directories = [source.directory for source in sources]
    tokenizer = bert.find_tokenizer(directories, vocab, cased=cased)
    _check_vocabulary(model, tokenizer)
    lines += _ignored_lines(sources)
    license = license or bert.find_license(directories)
    card = Card(
        origin=f"weights read with `realm {parameters['from']}`.",
        license=license,
        sources=tuple(
            (path, fingerprints.sha256(path))
            for source in sources
            for path in source.files
        ),
        notes=tuple(lines),
    )
    loaded = model_directory.LoadedModel(model, tokenizer, card=card)
    model_directory.save(loaded, output, parameters=parameters)
    return [
        *lines,
        f"{output}: {model.count_params():,} parameters, license {license}",
    ]


def _make_model(opened, tower):
    """`OpenQa` of all parts; and lines that say where each is from."""
    from realm_tf.models.open_qa import OpenQa
    from realm_tf.models.reader import Reader

    makers, homes = {}, {}
    for source in opened:
        for part, make in source.makers.items():
            _add(makers, part, make, source.directory)
            homes[part] = source.directory
    if "embedder" not in makers:
        raise InputError(
            f"{', '.join(s.directory for s in opened)} holds no embedder (it "
            f"holds {', '.join(makers) or 'no part'}): name a directory with "
            "one, too, such as --source EMBEDDER ENCODER."
        )
    if {"reader", "encoder"} <= set(makers):
        raise InputError(
            "The sources hold a reader and a masked-LM encoder, which are two "
            "BERTs, but a model has one for both: leave one of the sources "
            "out."
        )
    lines = [f"{part}: from {homes[part]}" for part in makers]
    query_embedder, block_embedder, tower_line = _make_towers(makers, tower)
    encoder = None
    if "reader" in makers:
        reader = makers["reader"]()
    elif "encoder" in makers:
        encoder = makers["encoder"]()
        reader = Reader(encoder.encoder)
        lines.append("reader: the BERT of the encoder, its head is random")
    else:
        reader = Reader(_copy(query_embedder.encoder))
        lines.append("reader: the BERT of the embedder, its head is random")
    model = OpenQa(
        query_embedder,
        block_embedder,
        reader,
        knowledge_augmented_encoder=encoder,
    )
    return model, lines + tower_line


def _make_towers(makers, tower):
    block_embedder = makers["embedder"]()
    query_embedder = block_embedder
    if "query_embedder" in makers:
        query_embedder = makers["query_embedder"]()
        if _are_equal(query_embedder, block_embedder):
            query_embedder = block_embedder
    if tower is None:
        return query_embedder, block_embedder, []
    if "embedder" not in tower.makers:
        raise InputError(f"--block-tower {tower.directory} has no embedder.")
    line = f"block tower: from {tower.directory}"
    return query_embedder, tower.makers["embedder"](), [line]


def _are_equal(model, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(model.get_weights(), other.get_weights(), strict=True)
    )


def _copy(encoder):
    copied = type(encoder).from_config(encoder.get_config())
    copied.set_weights(encoder.get_weights())
    return copied


def _check_vocabulary(model, tokenizer):
    for name, encoder in (
        ("query tower", model.query_embedder.encoder),
        ("block tower", model.block_embedder.encoder),
        ("reader", model.reader.encoder),
    ):
        if encoder.vocabulary_size != tokenizer.vocabulary_size:
            raise InputError(
                f"The vocabulary has {tokenizer.vocabulary_size:,} "
                f"wordpieces, the {name} {encoder.vocabulary_size:,}: they do "
                "not belong together. Name the right vocab.txt with --vocab."
            )


def _ignored_lines(sources):
    """How many tensors were not read, by reason."""
    reasons = collections.Counter()
    for source in sources:
        reasons.update(source.ignored().values())
    return [
        f"{count} tensors not read: {reason}"
        for reason, count in sorted(reasons.items())
    ]
