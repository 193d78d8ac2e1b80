"""Models whose towers and reader begin with one BERT."""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import keras

from realm_tf.artifacts.model_card import Card
from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.opening import find_header
from realm_tf.checkpoints.opening import find_tokenizer
from realm_tf.checkpoints.opening import open_source
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import Embedding
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.model_directory import LoadedModel
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.text.tokenizer import Tokenizer

# Cosines lie between -1 and 1; times 20 the best few blocks share p(z|x).
# sentence-transformers trains such models with the same factor
# (MultipleNegativesRankingLoss, scale=20).
COSINE_SCORE_SCALE = 20.0
# Of a BERT that was not trained to embed, what learns from less than a random
# projection: as MiniLM's.
# Rows of a word embedding beyond its vocabulary, less than this (our choice).
_MOST_PADDING = 128
COSINE = Embedding("mean", None, normalize=True)


def from_source(
    kind: str,
    source: str,
    *,
    vocab: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    projection_dim: int | None = None,
    cosine: bool | None = None,
    query_prefix: str | None = None,
    block_prefix: str | None = None,
    **options,
):
    """A model that begins with a BERT from files.

    Args:
        kind: str. `"hf"`, `"tf1"`, `"garden"` or `"keras-hub"`.
        source: str. A directory; of the second and third also the prefix of a
            checkpoint, of the last also the name of a preset.
        vocab: str. Its vocab.txt. Defaults to the one beside it.
        cased: bool. Whether that is a cased BERT's, which files of the second
            and third kind do not say. Defaults to `False`.
        num_heads: int. Of the second kind; see `tf1.bert_config`.
        projection_dim: int. Width of the embeddings. Defaults to what the source
            says, or 128.
        cosine: bool. Embed as `COSINE`. Defaults to `None`: not.
        query_prefix: str. Read before questions. Defaults to what the source
            says, or nothing.
        block_prefix: str. The same of blocks.
        **options: see `open_qa`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if something is missing, damaged or no BERT.
    """
    make_embedding = functools.partial(
        _embedding,
        source,
        projection_dim=projection_dim,
        cosine=cosine,
        prefixes={"query_prefix": query_prefix, "block_prefix": block_prefix},
    )
    if kind == "keras-hub":
        if vocab or cased:
            raise InputError(
                "A Keras Hub preset brings its tokenizer: leave --vocab and "
                "--cased out."
            )
        return _from_preset(source, make_embedding, **options)
    opened = open_source(kind, source, num_heads)
    if BERT not in opened.makers:
        raise InputError(
            f"{source} holds {', '.join(opened.makers)} of a REALM: use "
            f"`realm import {kind} --source {source}`."
        )
    return open_qa(
        opened.makers[BERT],
        find_tokenizer([opened.directory], vocab, cased=cased),
        Card(
            f"BERT read with `realm init --from {kind}` from {source}.",
            sources=opened.checksums(),
            **find_header([opened.directory]),
        ),
        make_masked_lm=opened.makers.get(ENCODER),
        embedding=make_embedding(opened.embedding),
        **options,
    )


def _from_preset(preset, make_embedding, **options):
    make_encoder, tokenizer, said = _open_preset(preset)
    card = Card(f"BERT from the Keras Hub preset {preset}.")
    embedding = make_embedding(said)
    return open_qa(
        make_encoder, tokenizer, card, embedding=embedding, **options
    )


def _embedding(source, said, *, projection_dim, cosine, prefixes):
    """How the towers embed: as a source says, or as was asked for."""
    if said and (projection_dim or cosine):
        raise InputError(
            f"{source} says itself how its BERT embeds texts: leave "
            "--set cosine and --set projection_dim out."
        )
    found = said or (COSINE if cosine else Embedding())
    changes = {k: text for k, text in prefixes.items() if text is not None}
    if projection_dim and not cosine:
        changes["projection_dim"] = projection_dim
    return dataclasses.replace(found, **changes)


def _open_preset(preset):
    """The BERT of a preset, or a directory, of Keras Hub and its tokenizer.

    Returns:
        `(function that makes a BertEncoder, Tokenizer, Embedding)`, the last
        `None` unless it is a `TextEmbedder`'s. The backbone has the tanh GELU
        and a LayerNorm epsilon of 1e-12, whatever it was converted from.
    """
    import keras_hub

    # There is no public way to ask.
    from keras_hub.src.utils import preset_utils

    said = None
    try:
        if preset_utils.check_file_exists(preset, "task.json"):
            task = preset_utils.load_json(preset, "task.json")
            if task["class_name"] == "BertTextEmbedder":
                said = _of_text_embedder(task["config"])
        backbone = keras_hub.models.BertBackbone.from_preset(preset)
        tokenizer = keras_hub.models.BertTokenizer.from_preset(preset)
    except Exception as error:  # Whatever loaders of many hosts raise.
        raise InputError(
            f"--source {preset}: Keras Hub could not load it as a BERT "
            f"({type(error).__name__}: {error})."
        ) from error

    # Those arguments that both have, of one name.
    ours = inspect.signature(BertEncoder).parameters
    config = backbone.get_config()
    sizes = {name: config[name] for name in ours if name in config}

    def make_encoder():
        encoder = BertEncoder(**sizes)
        copy_weights(backbone, encoder)
        return encoder

    vocabulary = tokenizer.get_vocabulary()
    tokenizer = Tokenizer(vocabulary, lowercase=tokenizer.lowercase)
    return make_encoder, tokenizer, said


def _of_text_embedder(config):
    """What a `BertTextEmbedder` of Keras Hub says of itself."""
    poolings = {"mean": "mean", "cls": "first"}
    if config["pooling_mode"] not in poolings:
        raise InputError(
            f"It pools by {config['pooling_mode']}: expected "
            f"{' or '.join(poolings)}."
        )
    return Embedding(
        poolings[config["pooling_mode"]], None, config["normalize"]
    )


def open_qa(
    make_encoder: Callable,
    tokenizer: Tokenizer,
    card: Card,
    *,
    make_masked_lm: Callable | None = None,
    make_reader_encoder: Callable | None = None,
    embedding: Embedding,
    reader_layers: int | None = None,
    seed: int = 0,
) -> LoadedModel:
    """A model whose towers and reader begin with one BERT.

    Args:
        make_encoder: function without arguments that gives a `BertEncoder`
            with the weights; for the towers and for the reader.
        tokenizer: `Tokenizer`.
        card: `Card`.
        make_masked_lm: function that gives a `KnowledgeAugmentedEncoder`, for
            weights that come with a masked-LM head. Defaults to `None`.
        make_reader_encoder: function that gives another `BertEncoder` for the
            reader. Defaults to `None`: the same as for the towers.
        embedding: `Embedding`. What is normalised is compared by cosines times
            `COSINE_SCORE_SCALE`. Two towers, of the same weights, if questions
            and blocks have different prefixes.
        reader_layers: int. Lowest layers that the reader takes, which leaves
            a masked-LM head behind. Defaults to all.
        seed: int. Of projection and reader's head. Defaults to `0`.

    Raises:
        InputError: if there are not so many layers, or the vocabulary is not
            that of the weights.
    """
    keras.utils.set_random_seed(seed)
    make_tower = functools.partial(
        _make_tower, make_encoder, tokenizer, embedding
    )
    query_embedder = block_embedder = make_tower(embedding.query_prefix)
    if embedding.query_prefix != embedding.block_prefix:
        block_embedder = make_tower(embedding.block_prefix)
        block_embedder.set_weights(query_embedder.get_weights())
    masked_lm = None
    if reader_layers is None and make_masked_lm:
        masked_lm = make_masked_lm()
        encoder = masked_lm.encoder
    else:
        encoder = (make_reader_encoder or make_encoder)()
        if reader_layers not in (None, encoder.num_layers):
            encoder = copy_layers(encoder, reader_layers)
    check_vocabulary(encoder, tokenizer)
    model = OpenQa(
        query_embedder,
        block_embedder,
        Reader(encoder),
        knowledge_augmented_encoder=masked_lm,
        score_scale=COSINE_SCORE_SCALE if embedding.normalize else 1.0,
    )
    # Sentence encoders are trained on single texts.
    segment_ids = (0, 1) if embedding.projection_dim else (0, 0)
    return LoadedModel(model, tokenizer, segment_ids, card=card)


def check_vocabulary(encoder, tokenizer):
    """Refuses a tokenizer that cannot be that of a BERT, by their sizes."""
    known, rows = tokenizer.vocabulary_size, encoder.vocabulary_size
    # Tables are padded to a multiple of some power of two.
    if not 0 <= rows - known < _MOST_PADDING:
        raise InputError(
            f"The vocabulary has {known:,} wordpieces, the weights "
            f"{rows:,}: they do not belong together. Name the right vocab.txt "
            "with --vocab."
        )


def _make_tower(make_encoder, tokenizer, embedding, prefix):
    return Embedder(
        make_encoder(),
        pooling=embedding.pooling,
        projection_dim=embedding.projection_dim,
        normalize=embedding.normalize,
        prefix_ids=tuple(map(int, tokenizer.tokenize(prefix).ids)),
    )


def copy_layers(encoder, num_layers: int):
    """Another BERT of the lowest layers of one.

    Args:
        encoder: `BertEncoder`.
        num_layers: int.

    Raises:
        InputError: if it has not so many.
    """
    if not 1 <= num_layers <= encoder.num_layers:
        raise InputError(
            f"--reader-layers must be from 1 to {encoder.num_layers}, as many "
            f"as there are. Received: {num_layers}"
        )
    lower = type(encoder).from_config(
        {**encoder.get_config(), "num_layers": num_layers}
    )
    copy_weights(encoder, lower)
    return lower
