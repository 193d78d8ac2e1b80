"""Makes towers and a reader of one BERT, to start from."""

import dataclasses
from collections.abc import Callable
from typing import Any

from realm_tf.errors import InputError

# Cosines lie between -1 and 1; times 20 the best few blocks share p(z|x).
# sentence-transformers trains such models with the same factor
# (MultipleNegativesRankingLoss, scale=20).
COSINE_SCORE_SCALE = 20.0


@dataclasses.dataclass(frozen=True)
class Start:
    """A BERT to start from, with what a model directory needs of it.

    Args:
        make_encoder: function without arguments that gives a `BertEncoder`
            with the weights; for the towers and for the reader.
        tokenizer: `Tokenizer`.
        card: `Card`.
        make_masked_lm: function that gives a `KnowledgeAugmentedEncoder`, for
            weights that come with a masked-LM head. Defaults to `None`.
        make_reader_encoder: function that gives another `BertEncoder` for the
            reader. Defaults to `None`: the same as for the towers.
    """

    make_encoder: Callable
    tokenizer: Any
    card: Any
    make_masked_lm: Callable | None = None
    make_reader_encoder: Callable | None = None


def open_qa(
    start: Start,
    *,
    cosine: bool = False,
    projection_dim: int | None = 128,
    reader_layers: int | None = None,
    seed: int = 0,
):
    """A model whose towers and reader begin with one BERT.

    Args:
        start: `Start`.
        cosine: bool. Embed as MiniLM: the mean of the wordpieces, without
            projection, compared by cosines times `COSINE_SCORE_SCALE`.
            Defaults to `False`: BERT's pooled [CLS] through a projection, as
            the paper, which is random.
        projection_dim: int. Width of the projection. Defaults to `128`.
        reader_layers: int. Lowest layers that the reader takes, which leaves
            a masked-LM head behind. Defaults to all.
        seed: int. Of projection and reader's head. Defaults to `0`.

    Returns:
        `LoadedModel`.

    Raises:
        InputError: if there are not so many layers.
    """
    import keras

    from realm_tf.artifacts.model_directory import LoadedModel
    from realm_tf.models.embedder import Embedder
    from realm_tf.models.open_qa import OpenQa
    from realm_tf.models.reader import Reader

    keras.utils.set_random_seed(seed)
    embedder = Embedder(
        start.make_encoder(),
        pooling="mean" if cosine else "cls",
        projection_dim=None if cosine else projection_dim,
        normalize=cosine,
    )
    masked_lm = None
    if reader_layers is None and start.make_masked_lm:
        masked_lm = start.make_masked_lm()
        encoder = masked_lm.encoder
    else:
        make = start.make_reader_encoder or start.make_encoder
        encoder = lowest_layers(make(), reader_layers)
    model = OpenQa(
        embedder,
        embedder,
        Reader(encoder),
        knowledge_augmented_encoder=masked_lm,
        score_scale=COSINE_SCORE_SCALE if cosine else 1.0,
    )
    return LoadedModel(
        model,
        start.tokenizer,
        # Sentence encoders are trained on single texts.
        block_segment_ids=(0, 0) if cosine else (0, 1),
        card=start.card,
    )


def lowest_layers(encoder, num_layers: int | None):
    """A BERT of the lowest layers of another; itself, if these are all.

    Args:
        encoder: `BertEncoder`.
        num_layers: int or `None`. `None` is all.

    Raises:
        InputError: if it has not so many.
    """
    if num_layers in (None, encoder.num_layers):
        return encoder
    if not 1 <= num_layers <= encoder.num_layers:
        raise InputError(
            f"--reader-layers must be from 1 to {encoder.num_layers}, as many "
            f"as there are. Received: {num_layers}"
        )
    lower = type(encoder).from_config(
        {**encoder.get_config(), "num_layers": num_layers}
    )
    values = {v.path: v for v in encoder.variables}
    for variable in lower.variables:
        if "seed_generator" not in variable.path:
            variable.assign(values[variable.path])
    return lower
