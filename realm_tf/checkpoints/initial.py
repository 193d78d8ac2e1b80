"""Models whose towers and reader begin with one BERT."""

import dataclasses
import functools
from collections.abc import Callable

import keras

from realm_tf.artifacts.model_card import Card
from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.opening import find_header
from realm_tf.checkpoints.opening import open_source
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import Embedding
from realm_tf.checkpoints.tokenizer_files import find_tokenizer
from realm_tf.configs.initial import FromBert
from realm_tf.configs.initial import Random
from realm_tf.errors import InputError
from realm_tf.models.embedder import Embedder
from realm_tf.models.model_directory import LoadedModel
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.text.tokenizer import Tokenizer

# Cosines lie between -1 and 1; times 20 the best few blocks share p(z|x).
# sentence-transformers trains such models with the same factor
# (MultipleNegativesRankingLoss, scale=20).
COSINE_SCORE_SCALE = 20.0
# Rows of a word embedding beyond its vocabulary, less than this (our choice).
_MOST_PADDING = 128
# As MiniLM embeds. A BERT that was not trained to embed learns from less by it
# than by a random projection.
COSINE = Embedding("mean", None, normalize=True)


def from_source(
    kind: str,
    source: str,
    recipe: FromBert,
    *,
    vocab: str | None = None,
    **options,
):
    """A model that begins with a BERT from files.

    Args:
        kind: str. See `open_source`.
        source: str. See `open_source`.
        recipe: `FromBert`.
        vocab: str. Its vocab.txt. Defaults to the one beside it.
        **options: see `open_qa`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if something is missing, damaged or no BERT.
    """
    opened = open_source(kind, source, recipe.num_heads)
    if BERT not in opened.makers:
        raise InputError(
            f"{source} holds {', '.join(opened.makers)} and no BERT to begin "
            f"with: use `realm import {kind} --source {source}` for parts of a "
            "REALM, and --reader for a reader alone."
        )
    embedding = opened.embedding
    if embedding and (recipe.projection_dim or recipe.cosine):
        raise InputError(
            f"{source} says itself how its BERT embeds texts: leave "
            "--set cosine and --set projection_dim out."
        )
    if not embedding:
        embedding = made_embedding(recipe)
    if recipe.dot:
        embedding = dataclasses.replace(embedding, normalize=False)
    return open_qa(
        opened.makers[BERT],
        opened.tokenizer or find_tokenizer([opened.directory], vocab),
        Card(
            f"BERT read with `realm init --from {kind}` from {source}.",
            sources=opened.checksums(),
            **find_header([opened.directory]),
        ),
        make_masked_lm=opened.makers.get(ENCODER),
        embedding=dataclasses.replace(
            embedding,
            query_prefix=recipe.query_prefix or embedding.query_prefix,
            block_prefix=recipe.block_prefix or embedding.block_prefix,
        ),
        **options,
    )


def made_embedding(recipe: FromBert | Random) -> Embedding:
    """How a BERT embeds that was not trained to."""
    if recipe.cosine:
        return COSINE
    return Embedding(projection_dim=recipe.projection_dim or 128)


def open_qa(
    make_encoder: Callable,
    tokenizer: Tokenizer,
    card: Card,
    *,
    make_masked_lm: Callable | None = None,
    make_reader_encoder: Callable | None = None,
    make_reader: Callable | None = None,
    embedding: Embedding,
    reader_layers: int | None = None,
    reader: str | None = None,
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
        make_reader: function of that encoder that gives the `Reader`. Defaults
            to `None`: one that is untrained, with a "none" to learn.
        embedding: `Embedding`. What is normalised is compared by cosines times
            `COSINE_SCORE_SCALE`. Two towers, of the same weights, if questions
            and blocks have different prefixes.
        reader_layers: int. Lowest layers that the reader takes, which leaves
            a masked-LM head behind. Defaults to all.
        reader: str. Another source of Hugging Face's that the reader is read
            from, see `open_reader`; it leaves a masked-LM head behind, too.
            Defaults to `None`.
        seed: int. Of projection and reader's head. Defaults to `0`.

    Raises:
        InputError: if there are not so many layers, the vocabulary is not
            that of the weights, or the source holds no reader for it.
    """
    keras.utils.set_random_seed(seed)
    make_reader = make_reader or functools.partial(Reader, none_span=True)
    make_tower = functools.partial(
        _make_tower, make_encoder, tokenizer, embedding
    )
    query_embedder = block_embedder = make_tower(embedding.query_prefix)
    if embedding.query_prefix != embedding.block_prefix:
        block_embedder = make_tower(embedding.block_prefix)
        block_embedder.set_weights(query_embedder.get_weights())
    masked_lm = None
    if reader:
        made, card = open_reader(reader, tokenizer, card)
    elif reader_layers is None and make_masked_lm:
        masked_lm = make_masked_lm()
        made = make_reader(masked_lm.encoder)
    else:
        encoder = (make_reader_encoder or make_encoder)()
        if reader_layers not in (None, encoder.num_layers):
            encoder = copy_layers(encoder, reader_layers)
        made = make_reader(encoder)
    for part in (query_embedder, made):
        check_vocabulary(part.encoder, tokenizer)
    model = OpenQa(
        query_embedder,
        block_embedder,
        made,
        knowledge_augmented_encoder=masked_lm,
        score_scale=COSINE_SCORE_SCALE if embedding.normalize else 1.0,
    )
    # Sentence encoders are trained on single texts.
    segment_ids = (0, 1) if embedding.projection_dim else (0, 0)
    return LoadedModel(model, tokenizer, segment_ids, card=card)


def open_reader(source: str, tokenizer: Tokenizer, card: Card):
    """A reader of a question-answering checkpoint, for the towers of a model.

    Args:
        source: str. Hugging Face's directory or address, of a
            `BertForQuestionAnswering` or `RealmReader`.
        tokenizer: `Tokenizer`. Of the towers.
        card: `Card`. Of the model.

    Returns:
        `Reader`, and the card with what is known of it.

    Raises:
        InputError: if there is no reader, or its wordpieces are not those of
            the towers.
    """
    opened = open_source("hf", source)
    if READER not in opened.makers:
        raise InputError(
            f"--reader {source} holds {', '.join(opened.makers)} and no reader: "
            "expected the start and end logits of a BertForQuestionAnswering."
        )
    own = opened.tokenizer or find_tokenizer([opened.directory])
    if own.fingerprint() != tokenizer.fingerprint():
        raise InputError(
            f"--reader {source} has another vocabulary than the retriever "
            f"({own.vocabulary_size:,} wordpieces, lower-casing "
            f"{own.lowercase}, and {tokenizer.vocabulary_size:,}, "
            f"{tokenizer.lowercase}), but both read the same wordpieces of a "
            "block: take a reader of the retriever's vocabulary."
        )
    license = find_header([opened.directory]).get("license", "not stated")
    return opened.makers[READER](), dataclasses.replace(
        card,
        sources=card.sources + opened.checksums(),
        notes=(*card.notes, f"Its reader is {source}, license {license}."),
    )


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
    config = encoder.get_config() | {"num_layers": num_layers}
    lower = type(encoder).from_config(config)
    copy_weights(encoder, lower)
    return lower
