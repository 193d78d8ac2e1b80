"""Models whose towers and reader begin with one BERT."""

import inspect
from collections.abc import Callable

import keras

from realm_tf.artifacts.model_card import Card
from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import find_license
from realm_tf.checkpoints.source import find_tokenizer
from realm_tf.checkpoints.source import open_source
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


def from_source(
    kind: str,
    source: str,
    *,
    vocab: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
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
        **options: see `open_qa`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if something is missing, damaged or no BERT.
    """
    if kind == "keras-hub":
        if vocab or cased:
            raise InputError(
                "A Keras Hub preset brings its tokenizer: leave --vocab and "
                "--cased out."
            )
        make_encoder, tokenizer = _open_preset(source)
        card = Card(f"BERT from the Keras Hub preset {source}.")
        return open_qa(make_encoder, tokenizer, card, **options)
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
            find_license([opened.directory]),
            opened.checksums(),
        ),
        make_masked_lm=opened.makers.get(ENCODER),
        **options,
    )


def _open_preset(preset):
    """The BERT of a preset, or a directory, of Keras Hub and its tokenizer.

    Returns:
        `(function that makes a BertEncoder, Tokenizer)`. The backbone has the
        tanh GELU and a LayerNorm epsilon of 1e-12, whatever it was converted
        from.
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

    # Those arguments that both have, of one name.
    ours = inspect.signature(BertEncoder).parameters
    config = backbone.get_config()
    sizes = {name: config[name] for name in ours if name in config}

    def make_encoder():
        encoder = BertEncoder(**sizes)
        copy_weights(backbone, encoder)
        return encoder

    vocabulary = tokenizer.get_vocabulary()
    return make_encoder, Tokenizer(vocabulary, lowercase=tokenizer.lowercase)


def open_qa(
    make_encoder: Callable,
    tokenizer: Tokenizer,
    card: Card,
    *,
    make_masked_lm: Callable | None = None,
    make_reader_encoder: Callable | None = None,
    cosine: bool = False,
    projection_dim: int | None = 128,
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
        cosine: bool. Embed as MiniLM: the mean of the wordpieces, without
            projection, compared by cosines times `COSINE_SCORE_SCALE`.
            Defaults to `False`: BERT's pooled [CLS] through a projection, as
            the paper, which is random.
        projection_dim: int. Width of the projection. Defaults to `128`.
        reader_layers: int. Lowest layers that the reader takes, which leaves
            a masked-LM head behind. Defaults to all.
        seed: int. Of projection and reader's head. Defaults to `0`.

    Raises:
        InputError: if there are not so many layers.
    """
    keras.utils.set_random_seed(seed)
    embedder = Embedder(
        make_encoder(),
        pooling="mean" if cosine else "cls",
        projection_dim=None if cosine else projection_dim,
        normalize=cosine,
    )
    masked_lm = None
    if reader_layers is None and make_masked_lm:
        masked_lm = make_masked_lm()
        encoder = masked_lm.encoder
    else:
        encoder = (make_reader_encoder or make_encoder)()
        if reader_layers not in (None, encoder.num_layers):
            encoder = copy_layers(encoder, reader_layers)
    model = OpenQa(
        embedder,
        embedder,
        Reader(encoder),
        knowledge_augmented_encoder=masked_lm,
        score_scale=COSINE_SCORE_SCALE if cosine else 1.0,
    )
    # Sentence encoders are trained on single texts.
    segment_ids = (0, 0) if cosine else (0, 1)
    return LoadedModel(model, tokenizer, segment_ids, card=card)


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
