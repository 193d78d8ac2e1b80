"""Recipes of the BERT tagger."""

import dataclasses
import functools

from realm_tf.configs import recipes


@dataclasses.dataclass(frozen=True)
class TaggerRecipe:
    """Numbers of one training run of `realm train-tagger`.

    Args:
        num_epochs: int. Passes over the sentences.
        batch_size: int. Sentences of one step, of 32 wordpieces each; of
            shorter ones there are more, see
            `tagging.sentence_batches.batches_by_length`.
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`. BERT's
            has none; recipes for small budgets were tuned with it.
        dropout: float. Before the last layer; the encoder keeps its own.
        max_length: int. Most wordpieces of a row; longer sentences are read
            in windows.
        freeze_word_embeddings: bool. Keep the encoder's embedding tables,
            more than half of a small BERT's weights; the shape table learns.
        num_frozen_layers: int. Lowest encoder layers that do not learn.
        seed: int. Order of the sentences and dropout.

    Raises:
        InputError: if a number is out of its range.
    """

    num_epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-5
    bias_correction: bool = False
    dropout: float = 0.1
    max_length: int = 256
    freeze_word_embeddings: bool = False
    num_frozen_layers: int = 0
    seed: int = 0

    def __post_init__(self):
        recipes.check_least(
            self,
            num_epochs=1,
            batch_size=1,
            max_length=8,
        )
        recipes.check_range(self, dropout=recipes.DROPOUT)


RECIPES = {
    # Devlin et al., 2018, appendix A.3: 3 epochs of batches of 32 at 5e-5.
    # For BERT-base and an accelerator. Not run at full size here.
    "bert": TaggerRecipe(),
    # `realm train-tagger`: half an hour of two CPU cores for CoNLL-2003 and
    # a 6-layer, 384-wide encoder, whose small width bears a higher rate.
    "laptop": TaggerRecipe(
        num_epochs=4,
        batch_size=24,
        learning_rate=2e-4,
        bias_correction=True,
        freeze_word_embeddings=True,
    ),
    # Unit tests: seconds.
    "tiny": TaggerRecipe(
        num_epochs=5,
        batch_size=1,
        learning_rate=1e-2,
        bias_correction=True,
        dropout=0.0,
        max_length=32,
    ),
}

# One of these by name, with `name=value` changes.
get_recipe = functools.partial(recipes.get_recipe, RECIPES)
