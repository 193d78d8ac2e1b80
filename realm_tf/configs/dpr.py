"""Recipes of supervised training of the retriever."""

import dataclasses
from typing import Annotated

from realm_tf.configs import recipes
from realm_tf.configs.recipes import Encoders
from realm_tf.configs.recipes import Lengths
from realm_tf.configs.recipes import Optimizer
from realm_tf.configs.recipes import Range
from realm_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Negatives(recipes.Group):
    """Which of BM25's blocks a question learns from.

    Args:
        num_retrieved: int. Blocks of BM25 among which the positive is looked
            for; a question without one is dropped.
        num_hard_negatives: int. Drawn for each question in each epoch; 0
            leaves the other questions' positives alone.
        num_negative_candidates: int. How many of BM25's best blocks without
            an answer they are drawn from.

    Raises:
        InputError: if more are drawn than there are.
    """

    num_retrieved: recipes.Positive = 100
    num_hard_negatives: recipes.Natural = 1
    num_negative_candidates: recipes.Positive = 20

    def __post_init__(self):
        super().__post_init__()
        if self.num_hard_negatives > self.num_negative_candidates:
            raise InputError(
                "num_hard_negatives of a recipe cannot be more than the "
                "num_negative_candidates that they are drawn from. Received: "
                f"num_hard_negatives={self.num_hard_negatives}, "
                f"num_negative_candidates={self.num_negative_candidates}"
            )


@dataclasses.dataclass(frozen=True)
class DprRecipe(recipes.Recipe):
    """Numbers of one run of `realm finetune --recipe dpr`.

    Args:
        num_epochs: int. Passes over the questions.
        batch_size: int. Questions of a step, of all devices together. With
            its positives and hard negatives, a step has `batch_size * (1 +
            num_hard_negatives)` blocks, candidates of each question. One
            block alone is always found.
        optimizer: `Optimizer`.
        negatives: `Negatives`.
        lengths: `Lengths`.
        encoders: `Encoders`. Of the towers.
        log: `Log`.
        seed: int. Order of the questions, negatives and dropout.
    """

    num_epochs: recipes.Positive = 40
    batch_size: Annotated[int, Range(2)] = 128
    optimizer: Optimizer = Optimizer(learning_rate=1e-5, bias_correction=True)
    negatives: Negatives = Negatives()
    lengths: Lengths = Lengths(max_block_length=256)
    encoders: Encoders = Encoders()
    log: recipes.Log = recipes.Log()
    seed: recipes.Natural = 0


RECIPES = {
    # Karpukhin et al., 2020, section 5: batches of 128 questions with one
    # hard negative each, 40 epochs, Adam at 1e-5 with warm-up and linear
    # decay, dropout 0.1; section 4.2: positives among BM25's 100 best. 256
    # wordpieces as in facebookresearch/DPR (conf/encoder/hf_bert.yaml), for
    # passages of 100 words (`realm chunk --unit words`). Weight decay is
    # BERT's 0.01, none in that code; which of BM25's blocks negatives are
    # drawn from is our choice. An accelerator's work: 256 blocks a step
    # through BERT-base. Not run at full size here.
    "dpr": DprRecipe(),
    # The same for sets of a few thousand questions (WQ, CT): 100 epochs.
    "dpr_small_set": DprRecipe(num_epochs=100),
    # `realm finetune --recipe dpr_laptop`: some thousand questions and
    # 6-layer, 384-wide towers that retrieve already (MiniLM), of which the
    # upper half learns, on two CPU cores.
    "dpr_laptop": DprRecipe(
        num_epochs=3,
        batch_size=16,
        optimizer=Optimizer(learning_rate=2e-5, bias_correction=True),
        lengths=Lengths(max_query_length=32, max_block_length=192),
        encoders=Encoders(freeze_word_embeddings=True, num_frozen_layers=3),
    ),
    # Unit tests: seconds.
    "dpr_tiny": DprRecipe(
        num_epochs=3,
        batch_size=3,
        optimizer=Optimizer(learning_rate=1e-2, bias_correction=True),
        negatives=Negatives(num_negative_candidates=3),
        lengths=Lengths(max_query_length=12, max_block_length=24),
        log=recipes.Log(log_every=1),
    ),
}
