"""Recipes of pre-training."""

import dataclasses
from typing import Literal

from realm_tf.configs import recipes
from realm_tf.configs.recipes import Encoders
from realm_tf.configs.recipes import Lengths
from realm_tf.configs.recipes import Optimizer
from realm_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class MaskedLmWarmUp(recipes.Group):
    """Steps before the others, in which the encoder alone learns.

    It learns to predict masked wordpieces without a retriever: for weights
    that come without a masked-LM head.

    Args:
        masked_lm_steps: int. 0: none.
        masked_lm_own_block: float. Share of these steps' sentences that are
            given the block they are from; see `data.masked_lm_warm_up`.
        masked_lm_answer_block: float. Share that is given another block with
            the masked span.
        masked_lm_other_block: float. Share that is given any other block; the
            rest has the null block.
        masked_lm_window: int. Wordpieces of such a block.
        masked_lm_batch_size: int. Masked sentences of a step.
        masked_lm_learning_rate: float. Highest of these steps.

    Raises:
        InputError: if the shares are more than 1 together.
    """

    masked_lm_steps: recipes.Natural = 0
    masked_lm_own_block: recipes.Share = 0.0
    masked_lm_answer_block: recipes.Share = 0.0
    masked_lm_other_block: recipes.Share = 0.0
    masked_lm_window: recipes.Positive = 128
    masked_lm_batch_size: recipes.Positive = 32
    masked_lm_learning_rate: recipes.LearningRate = 1e-4

    @property
    def with_block(self) -> float:
        """Share of the sentences that are given a block."""
        return (
            self.masked_lm_own_block
            + self.masked_lm_answer_block
            + self.masked_lm_other_block
        )

    def __post_init__(self):
        super().__post_init__()
        # Sums of decimal shares are off by less than this.
        if self.with_block > 1 + 1e-9:
            raise InputError(
                "masked_lm_own_block, masked_lm_answer_block and "
                "masked_lm_other_block of a recipe must be together at most "
                f"1. Received: {self.with_block}"
            )


@dataclasses.dataclass(frozen=True)
class Masking(recipes.Group):
    """What is masked.

    Args:
        mode: str. `"salient"`, `"uniform"` or `"random_span"`; see
            `data.masked_queries`.
        max_masked: int. Masked wordpieces of a query.
        mask_numbers: bool. Whether salient spans that the tagger calls numbers
            are masked, too. The paper's are names and dates.
    """

    mode: Literal["salient", "uniform", "random_span"] = "salient"
    max_masked: recipes.Positive = 10
    mask_numbers: bool = False


@dataclasses.dataclass(frozen=True)
class JointLengths(Lengths):
    """How much of a text is read.

    Args:
        max_joint_length: int. Wordpieces of query and body together.

    Raises:
        InputError: if a query leaves no room for a body.
    """

    max_query_length: recipes.QueryLength = 96
    max_joint_length: int = 384

    def __post_init__(self):
        super().__post_init__()
        if self.max_joint_length <= self.max_query_length:
            raise InputError(
                "max_joint_length of a recipe must be at least "
                f"{self.max_query_length + 1}, one more than "
                "max_query_length. Received: "
                f"max_joint_length={self.max_joint_length}"
            )


@dataclasses.dataclass(frozen=True)
class PretrainRecipe(recipes.Recipe):
    """Numbers of one run of `realm pretrain`.

    Args:
        num_steps: int. 0 leaves it at `masked_lm_steps`.
        batch_size: int. Masked sentences of a step.
        optimizer: `Optimizer`.
        num_retrieved: int. Candidates besides the null block.
        marginalization: str. `"token"` or `"span"`; see
            `models.realm.RealmModel`.
        index: `Refresh`.
        masked_lm: `MaskedLmWarmUp`.
        masking: `Masking`.
        lengths: `JointLengths`.
        encoders: `Encoders`. Dropout and embedding tables of all encoders, the
            reader's too; frozen layers of the towers.
        num_held_out: int. Passages that nothing is learned from: before the
            first step, at each refresh of the index and after the last their
            sentences are predicted, and the best state is kept. 0: none, and
            the last state is kept, as in the paper.
        log: `Log`.
        seed: int. Order, masks and dropout.

    Raises:
        InputError: if values do not go together.
    """

    num_steps: recipes.Natural = 200_000
    batch_size: recipes.Positive = 512
    optimizer: Optimizer = Optimizer(learning_rate=3e-5)
    num_retrieved: recipes.Positive = 7
    marginalization: Literal["token", "span"] = "token"
    index: recipes.Refresh = recipes.Refresh()
    masked_lm: MaskedLmWarmUp = MaskedLmWarmUp()
    masking: Masking = Masking()
    lengths: JointLengths = JointLengths()
    encoders: Encoders = Encoders()
    num_held_out: recipes.Natural = 0
    log: recipes.Log = recipes.Log(log_every=50)
    seed: recipes.Natural = 0

    def __post_init__(self):
        super().__post_init__()
        query, window = (
            self.lengths.max_query_length,
            self.masked_lm.masked_lm_window,
        )
        limit = self.lengths.max_joint_length
        if self.masked_lm.with_block and query + window + 1 > limit:
            raise InputError(
                "A query of max_query_length and masked_lm_window wordpieces "
                "with [SEP] must fit into max_joint_length. Received: "
                f"{query} + {window} + 1 > {limit}"
            )


# A user's 50,000 passages on two CPU cores: MiniLM with a reader of three
# layers (`realm init --from minilm --reader-layers 3`), of whose towers the
# upper two layers learn; blocks of 64 wordpieces.
_WIKI_SMALL = PretrainRecipe(
    num_steps=400,
    batch_size=8,
    optimizer=Optimizer(learning_rate=5e-5, bias_correction=True),
    index=recipes.Refresh(refresh_every=100),
    masked_lm=MaskedLmWarmUp(
        masked_lm_steps=1200,
        masked_lm_own_block=0.55,
        masked_lm_answer_block=0.3,
        masked_lm_other_block=0.05,
        masked_lm_window=60,
        masked_lm_batch_size=16,
        # At 4e-4 it learns to read sooner and answers worse: MiniLM's weights
        # forget.
        masked_lm_learning_rate=1e-4,
    ),
    lengths=JointLengths(
        max_query_length=40, max_block_length=64, max_joint_length=104
    ),
    encoders=Encoders(
        freeze_word_embeddings=True, num_frozen_layers=4, dropout=0.0
    ),
    log=recipes.Log(log_every=10),
)

RECIPES = {
    # Guu et al., 2020, section 4.3 and appendix: 64 TPU cores train, 16 embed.
    # Not run at full size here.
    "paper": PretrainRecipe(),
    "wiki-small": _WIKI_SMALL,
    # Random encoders, 128 wide, of two layers (the reader: four), over the
    # same blocks.
    "small": _WIKI_SMALL.replace(
        num_steps=500,
        batch_size=32,
        learning_rate=1e-4,
        refresh_every=25,
        masked_lm_steps=2000,
        masked_lm_own_block=0.4,
        masked_lm_answer_block=0.45,
        masked_lm_batch_size=32,
        masked_lm_learning_rate=1e-3,
        freeze_word_embeddings=False,
        num_frozen_layers=0,
    ),
    # Unit tests: seconds.
    "tiny": PretrainRecipe(
        num_steps=6,
        batch_size=2,
        optimizer=Optimizer(learning_rate=1e-2),
        num_retrieved=2,
        index=recipes.Refresh(refresh="sync", refresh_every=2),
        masking=Masking(max_masked=4),
        lengths=JointLengths(
            max_query_length=16, max_block_length=24, max_joint_length=32
        ),
        log=recipes.Log(log_every=2),
    ),
}
