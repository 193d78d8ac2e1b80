"""Recipes of the BERT tagger."""

import dataclasses
from typing import Annotated

from realm_tf.configs import recipes
from realm_tf.configs.recipes import Freezing
from realm_tf.configs.recipes import Optimizer
from realm_tf.configs.recipes import Range


@dataclasses.dataclass(frozen=True)
class TaggerRecipe(recipes.Recipe):
    """Numbers of one training run of `realm train-tagger`.

    Args:
        num_epochs: int. Passes over the sentences.
        batch_size: int. Sentences of one step, of 32 wordpieces each; of
            shorter ones there are more, see
            `tagging.sentence_batches.SentenceEncoder.batches`.
        optimizer: `Optimizer`.
        dropout: float. Before the last layer; the encoder keeps its own.
        max_length: int. Most wordpieces of a row; longer sentences are read
            in windows.
        freezing: `Freezing`. Of the encoder: its embedding tables are more
            than half of a small BERT's weights; the shape table learns.
        seed: int. Order of the sentences and dropout.
    """

    num_epochs: recipes.Positive = 3
    batch_size: recipes.Positive = 32
    optimizer: Optimizer = Optimizer(learning_rate=5e-5)
    dropout: recipes.Dropout = 0.1
    max_length: Annotated[int, Range(8)] = 256
    freezing: Freezing = Freezing()
    seed: recipes.Natural = 0


RECIPES = {
    # Devlin et al., 2018, appendix A.3: 3 epochs of batches of 32 at 5e-5.
    # For BERT-base and an accelerator. Not run at full size here.
    "bert": TaggerRecipe(),
    # `realm train-tagger`: half an hour of two CPU cores for CoNLL-2003 and
    # a 6-layer, 384-wide encoder, whose small width bears a higher rate.
    "laptop": TaggerRecipe(
        num_epochs=4,
        batch_size=24,
        optimizer=Optimizer(learning_rate=2e-4, bias_correction=True),
        freezing=Freezing(freeze_word_embeddings=True),
    ),
    # Unit tests: seconds.
    "tiny": TaggerRecipe(
        num_epochs=5,
        batch_size=1,
        optimizer=Optimizer(learning_rate=1e-2, bias_correction=True),
        dropout=0.0,
        max_length=32,
    ),
}
