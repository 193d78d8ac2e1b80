"""Recipes of the Inverse Cloze Task."""

import dataclasses
from typing import Annotated

from realm_tf.configs import recipes
from realm_tf.configs.recipes import Encoders
from realm_tf.configs.recipes import Lengths
from realm_tf.configs.recipes import Optimizer
from realm_tf.configs.recipes import Range


@dataclasses.dataclass(frozen=True)
class IctRecipe(recipes.Recipe):
    """Numbers of one run of `realm ict`.

    Args:
        num_steps: int.
        batch_size: int. Examples of a step, and so candidates of each query;
            of all devices together. One block alone is always found.
        optimizer: `Optimizer`.
        lengths: `Lengths`.
        remove_probability: float. How often the block goes without the
            sentence that looks for it.
        encoders: `Encoders`. Of the towers.
        log: `Log`.
        seed: int. Order, sentences and dropout.
    """

    num_steps: recipes.Positive = 100_000
    batch_size: Annotated[int, Range(2)] = 4096
    optimizer: Optimizer = Optimizer(learning_rate=1e-4)
    lengths: Lengths = Lengths()
    remove_probability: recipes.Share = 0.9
    encoders: Encoders = Encoders()
    log: recipes.Log = recipes.Log()
    seed: recipes.Natural = 0


# `realm ict --recipe wiki-small`: a user's 50,000 passages and a 6-layer,
# 384-wide encoder, of which the upper half learns: 2 to 5 seconds a step on
# two CPU cores.
_WIKI_SMALL = IctRecipe(
    num_steps=600,
    batch_size=32,
    optimizer=Optimizer(learning_rate=5e-5),
    lengths=Lengths(max_query_length=48, max_block_length=128),
    encoders=Encoders(freeze_word_embeddings=True, num_frozen_layers=3),
)

RECIPES = {
    # Guu et al., 2020, appendix A, after Lee et al., 2019, section 9.2:
    # batches of 4096, 100k steps at 1e-4. A TPU pod's work (64 cores there).
    # Not run at full size here.
    "paper": IctRecipe(),
    "wiki-small": _WIKI_SMALL,
    # For a corpus of the size of the embedded one.
    "quickstart": _WIKI_SMALL.replace(num_steps=100, batch_size=16),
    # Unit tests: seconds.
    "tiny": IctRecipe(
        num_steps=7,
        batch_size=4,
        optimizer=Optimizer(learning_rate=1e-2),
        lengths=Lengths(max_query_length=12, max_block_length=24),
        log=recipes.Log(log_every=1),
    ),
}
