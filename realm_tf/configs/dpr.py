"""Recipes of supervised training of the retriever."""

import dataclasses
import functools

from realm_tf.configs import recipes
from realm_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class DprRecipe:
    """Numbers of one run of `realm finetune --retriever-loss dpr`.

    Args:
        num_epochs: int. Passes over the questions.
        batch_size: int. Questions of a step, of all devices together. With
            its positives and hard negatives, a step has `batch_size * (1 +
            num_hard_negatives)` blocks, candidates of each question.
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`.
        num_retrieved: int. Blocks of BM25 among which the positive is looked
            for; a question without one is dropped.
        num_hard_negatives: int. Drawn anew for each question and epoch; 0
            leaves the other questions' positives alone.
        num_negative_candidates: int. How many of BM25's best blocks without
            an answer they are drawn from.
        max_query_length: int. Wordpieces with [CLS] and [SEP].
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
        freeze_word_embeddings: bool. Keep the towers' embedding tables.
        num_frozen_layers: int. Lowest layers of the towers that do not learn.
        dropout: float. Rate in the towers' encoders.
        mixed_precision: bool. Compute in bfloat16, on a GPU or TPU; weights
            stay float32.
        seed: int. Order of the questions, negatives and dropout.

    Raises:
        InputError: if a number is out of its range.
    """

    num_epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-5
    bias_correction: bool = True
    num_retrieved: int = 100
    num_hard_negatives: int = 1
    num_negative_candidates: int = 20
    max_query_length: int = 64
    max_block_length: int = 256
    freeze_word_embeddings: bool = False
    num_frozen_layers: int = 0
    dropout: float = 0.1
    mixed_precision: bool = False
    seed: int = 0

    def __post_init__(self):
        recipes.check_least(
            self,
            num_epochs=1,
            # One block alone is always found.
            batch_size=2,
            num_retrieved=1,
            num_hard_negatives=0,
            num_negative_candidates=1,
            max_query_length=3,
            max_block_length=4,
            num_frozen_layers=0,
            seed=0,
        )
        if self.num_hard_negatives > self.num_negative_candidates:
            raise InputError(
                "num_hard_negatives of a recipe cannot be more than the "
                "num_negative_candidates that they are drawn from. Received: "
                f"num_hard_negatives={self.num_hard_negatives}, "
                f"num_negative_candidates={self.num_negative_candidates}"
            )
        recipes.check_range(self, dropout=recipes.DROPOUT)


RECIPES = {
    # Karpukhin et al., 2020, section 5: batches of 128 questions with one
    # hard negative each, 40 epochs, Adam at 1e-5 with warm-up and linear
    # decay, dropout 0.1; section 4.2: positives among BM25's 100 best. 256
    # wordpieces as in facebookresearch/DPR (conf/encoder/hf_bert.yaml), for
    # passages of 100 words (`realm chunk --unit words`). Weight decay is
    # BERT's 0.01, none in that code; which of BM25's blocks negatives are
    # drawn from is our choice. An accelerator's work: 256 blocks a step
    # through BERT-base. Not run at full size here.
    "dpr": DprRecipe(mixed_precision=True),
    # The same for sets of a few thousand questions (WQ, CT): 100 epochs.
    "dpr_small_set": DprRecipe(num_epochs=100, mixed_precision=True),
    # `realm finetune --retriever-loss dpr`: some thousand questions and
    # 6-layer, 384-wide towers that retrieve already (MiniLM), of which the
    # upper half learns, on two CPU cores.
    "laptop": DprRecipe(
        num_epochs=3,
        batch_size=16,
        learning_rate=2e-5,
        max_query_length=32,
        max_block_length=192,
        freeze_word_embeddings=True,
        num_frozen_layers=3,
    ),
    # Unit tests: seconds.
    "tiny": DprRecipe(
        num_epochs=3,
        batch_size=3,
        learning_rate=1e-2,
        num_negative_candidates=3,
        max_query_length=12,
        max_block_length=24,
    ),
}

# One of these by name, with `name=value` changes.
get_recipe = functools.partial(recipes.get_recipe, RECIPES)
