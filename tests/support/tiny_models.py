"""Random models of a few weights."""

from realm_tf.checkpoints import random_weights
from realm_tf.configs.initial import Random
from realm_tf.models import model_directory
from realm_tf.models.bert_encoder import BertEncoder

_SIZES = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 8,
    "projection_dim": 4,
}


def spread(model, factor: float = 25.0) -> None:
    """Makes matrices larger than BERT's initial 0.02.

    There all texts have almost the same embedding, so that rows that were
    mixed up would still pass.
    """
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(factor * variable)


def save(
    vocabulary: str,
    output: str,
    *,
    factor: float = 25.0,
    seed: int = 0,
    **sizes,
) -> str:
    """Writes a model directory, as `realm init --from random` does."""
    recipe = Random(**{**_SIZES, **sizes})
    loaded = random_weights.random(recipe, vocabulary, seed=seed)
    spread(loaded.model, factor)
    model_directory.save(loaded, output, parameters={"from": "random"})
    return output


def encoder(vocabulary_size: int, **changes) -> BertEncoder:
    """An encoder of one layer of width 8."""
    sizes = {
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 12,
        "max_sequence_length": 64,
    }
    return BertEncoder(vocabulary_size, **{**sizes, **changes})
