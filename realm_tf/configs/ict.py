"""Recipes of the Inverse Cloze Task."""

import dataclasses
import functools

from realm_tf.configs import recipes


@dataclasses.dataclass(frozen=True)
class IctRecipe:
    """Numbers of one run of `realm ict`.

    Args:
        num_steps: int.
        batch_size: int. Examples of a step, and so candidates of each query;
            of all devices together.
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`.
        max_query_length: int. Wordpieces with [CLS] and [SEP].
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
        remove_probability: float. How often the block goes without the
            sentence that looks for it.
        freeze_word_embeddings: bool. Keep the towers' embedding tables.
        num_frozen_layers: int. Lowest layers of the towers that do not learn.
        dropout: float. Rate in all encoders. 0 is faster to learn from where
            a run is too short to learn anything by heart.
        mixed_precision: bool. Compute in bfloat16, on a GPU or TPU; weights
            stay float32.
        seed: int. Order, sentences and dropout.

    Raises:
        InputError: if a number is out of its range.
    """

    num_steps: int = 100_000
    batch_size: int = 4096
    learning_rate: float = 1e-4
    bias_correction: bool = False
    max_query_length: int = 64
    max_block_length: int = 288
    remove_probability: float = 0.9
    freeze_word_embeddings: bool = False
    num_frozen_layers: int = 0
    dropout: float = 0.1
    mixed_precision: bool = False
    seed: int = 0

    def __post_init__(self):
        recipes.check_least(
            self,
            num_steps=1,
            # One block alone is always found.
            batch_size=2,
            max_query_length=3,
            max_block_length=4,
            num_frozen_layers=0,
            seed=0,
        )
        recipes.check_range(
            self, remove_probability=(0, 1), dropout=recipes.DROPOUT
        )


RECIPES = {
    # Guu et al., 2020, appendix A, after Lee et al., 2019, section 9.2:
    # batches of 4096, 100k steps at 1e-4. A TPU pod's work (64 cores there).
    # Not run at full size here.
    "paper": IctRecipe(mixed_precision=True),
    # `realm ict --recipe wiki-small`: a user's 50,000 passages and a 6-layer,
    # 384-wide encoder, of which the upper half learns: 2 to 5 seconds a step
    # on two CPU cores.
    "wiki-small": IctRecipe(
        num_steps=600,
        batch_size=32,
        learning_rate=5e-5,
        max_query_length=48,
        max_block_length=128,
        freeze_word_embeddings=True,
        num_frozen_layers=3,
    ),
    # A short stage of `realm quickstart`.
    "quickstart": IctRecipe(
        num_steps=100,
        batch_size=16,
        learning_rate=5e-5,
        max_query_length=48,
        max_block_length=128,
        freeze_word_embeddings=True,
        num_frozen_layers=3,
    ),
    # Unit tests: seconds.
    "tiny": IctRecipe(
        num_steps=7,
        batch_size=4,
        learning_rate=1e-2,
        max_query_length=12,
        max_block_length=24,
    ),
}

# One of these by name, with `name=value` changes.
get_recipe = functools.partial(recipes.get_recipe, RECIPES)
