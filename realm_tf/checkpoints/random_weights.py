"""Models of random weights, for tests and for training from nothing."""

import functools

import keras_hub
import numpy as np

from realm_tf.artifacts.model_card import Card
from realm_tf.checkpoints.assignment import variables_by_path
from realm_tf.checkpoints.initial import made_embedding
from realm_tf.checkpoints.initial import open_qa
from realm_tf.configs.initial import Random
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.model_directory import LoadedModel
from realm_tf.text.tokenizer import Tokenizer

# Of embedding tables in mimetic weights, times the width: BERT-base's 0.02
# times 768. Then the masked-LM head, which has unit rows of that width, can be
# as sure of a wordpiece from the first step on as BERT-base's.
_EMBEDDING_SCALE = 0.02 * 768


def random(
    recipe: Random,
    vocab: str,
    *,
    reader_layers: int | None = None,
    seed: int = 0,
    **options,
) -> LoadedModel:
    """A model with random weights.

    Cosines make towers a bag of words, a retriever to start from; the paper's
    give random scores, the null block's among them.

    Args:
        recipe: `Random`.
        vocab: str. Path of a vocab.txt.
        reader_layers: int. Layers of the reader. Defaults to all.
        seed: int. Defaults to `0`.
        **options: see `initial.open_qa`.

    Raises:
        InputError: if the heads do not divide the width, or the vocabulary is
            unreadable.
    """
    if recipe.hidden_dim % recipe.num_heads:
        raise InputError(
            "hidden_dim must be a multiple of num_heads. Received: "
            f"hidden_dim={recipe.hidden_dim}, num_heads={recipe.num_heads}"
        )
    tokenizer = Tokenizer.from_file(vocab)

    def make_encoder(layers):
        encoder = BertEncoder(
            tokenizer.vocabulary_size,
            layers,
            recipe.num_heads,
            recipe.hidden_dim,
            recipe.intermediate_dim,
        )
        if recipe.mimetic:
            make_mimetic(encoder, seed)
        return encoder

    return open_qa(
        functools.partial(make_encoder, recipe.num_layers),
        tokenizer,
        Card("random weights."),
        make_reader_encoder=functools.partial(
            make_encoder, reader_layers or recipe.num_layers
        ),
        embedding=made_embedding(recipe),
        seed=seed,
        **options,
    )


def make_mimetic(encoder, seed: int):
    """Random weights of the kind that training brings about.

    BERT's own (a normal of 0.02) were chosen for a width of 768. In a narrow
    model they keep the masked-LM head from being sure of anything, and a head
    of attention that compares wordpieces with each other must first be found
    by chance. Here:

    - queries and keys of a layer begin equal, so that a wordpiece attends to
      those like it;
    - positions are sines and cosines, in which "one to the left" is the same
      linear map everywhere;
    - embedding tables have a standard deviation of 15.4 / width.

    Values, outputs and the feed-forward layers stay as they are.

    Args:
        encoder: `BertEncoder`. Changed in place.
        seed: int. Of queries and keys.

    References:
        [Trockman and Kolter, 2023](https://arxiv.org/abs/2305.09828), who let
        the product of queries and keys resemble the identity.
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), for the
        positions.
    """
    generator = np.random.default_rng(seed)
    variables = variables_by_path(encoder)
    deviation = _EMBEDDING_SCALE / encoder.hidden_dim
    for name in ("token_embedding", "segment_embedding"):
        table = variables[f"{name}/embeddings"]
        values = np.asarray(table)
        table.assign(values * (deviation / values.std()))
    table = variables["position_embedding/embeddings"]
    # A sine's standard deviation is the square root of one half.
    sines = keras_hub.layers.SinePositionEncoding()(np.asarray(table)[None])
    table.assign(sines[0] * (deviation * 2**0.5))
    for index in range(encoder.num_layers):
        attention = f"transformer_layer_{index}/self_attention_layer"
        queries = variables[f"{attention}/query/kernel"]
        drawn = generator.normal(
            scale=encoder.hidden_dim**-0.5, size=queries.shape
        )
        queries.assign(drawn)
        variables[f"{attention}/key/kernel"].assign(drawn)
