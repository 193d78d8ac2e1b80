"""Recipes of pre-training."""

import dataclasses
import functools

from realm_tf.configs import recipes
from realm_tf.errors import InputError

# Where candidates are found, and how that can be.
SEARCHES = {"device": ("exact", "approximate"), "host": ("exact", "scann")}
REFRESHES = ("process", "thread", "pipeline", "sync")
# `data.masking` and `losses` check the names of modes and marginalizations.


@dataclasses.dataclass(frozen=True)
class PretrainRecipe:
    """Numbers of one run of `realm pretrain`.

    Args:
        num_steps: int. 0 leaves it at `masked_lm_steps`.
        batch_size: int. Masked sentences of a step.
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`.
        num_retrieved: int. Candidates besides the null block.
        num_spare: int. See `models.realm.RealmModel`.
        rerank: bool. See there.
        marginalization: str. `"token"` or `"span"`; see there.
        train_block_tower: bool. See there.
        retrieval: str. Where candidates are found: `"device"`, in the step,
            with the whole index and all wordpieces in the device's memory;
            `"host"`, by the input pipeline, for a corpus that does not fit.
        retrieval_prefetch: int. Batches that the host retrieves ahead; 0
            with `refresh="sync"`.
        search: str. `"exact"`; on the device also `"approximate"`
            (`ApproximateMaxK`, faster on a TPU), on the host also `"scann"`
            (TensorFlow backend).
        search_rows: int. Rows of the index that the device scores at a time;
            0 is all. See `BruteForce`.
        refresh: str. Who embeds all blocks anew: `"process"`, one of its own,
            while training goes on; `"thread"`, so in this process;
            `"pipeline"`, a process that runs `realm embed` and `realm index`,
            for Dataflow or Flink; `"sync"`, the trainer, which waits: exact,
            for experiments.
        refresh_every: int. Steps after which the index is made anew; 0 never.
        stale_factor: int. Multiplies `refresh_every`: the ablation with a
            stale index.
        masked_lm_steps: int. Steps before, in which the encoder alone learns
            to predict masked wordpieces, without a retriever: for weights
            that come without a masked-LM head.
        masked_lm_own_block: float. Share of these steps' sentences that are
            given the block they are from; see `data.masked_lm_warm_up`.
        masked_lm_answer_block: float. Share that is given another block with
            what is masked.
        masked_lm_other_block: float. Share that is given any other block; the
            rest has the null block.
        masked_lm_window: int. Wordpieces of such a block.
        masked_lm_batch_size: int. Of these.
        masked_lm_learning_rate: float. Highest of these.
        mode: str. What is masked: `"salient"`, `"uniform"` or `"span"`; see
            `data.masking`.
        max_query_length: int. Wordpieces with [CLS] and [SEP].
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
        max_joint_length: int. Wordpieces of query and body together.
        max_masked: int. Masked wordpieces of a query.
        freeze_word_embeddings: bool. Keep all embedding tables.
        num_frozen_layers: int. Lowest layers of the towers that do not
            learn.
        num_frozen_reader_layers: int. The same of a reader that has an
            encoder of its own.
        dropout: float. Rate in all encoders. 0 is faster to learn from where
            a run is too short to learn anything by heart.
        gradient_checkpointing: bool. Keep less in the device's memory and
            compute it again, for larger batches; see
            `models.transformer_encoder`.
        mixed_precision: bool. Compute in bfloat16, on a GPU or TPU; weights
            stay float32.
        log_every: int. Steps of one line of the log, each their mean.
        measure_duty_cycle: bool. Measure at the end what share of a step
            search, embedding and encoding take: each is compiled by itself.
        seed: int. Order, masks and dropout.

    Raises:
        InputError: if a number is out of its range.
    """

    num_steps: int = 200_000
    batch_size: int = 512
    learning_rate: float = 3e-5
    bias_correction: bool = False
    num_retrieved: int = 7
    num_spare: int = 8
    rerank: bool = False
    marginalization: str = "token"
    train_block_tower: bool = True
    retrieval: str = "device"
    retrieval_prefetch: int = 2
    search: str = "exact"
    search_rows: int = 65_536
    refresh: str = "process"
    refresh_every: int = 500
    stale_factor: int = 1
    masked_lm_steps: int = 0
    masked_lm_own_block: float = 0.0
    masked_lm_answer_block: float = 0.0
    masked_lm_other_block: float = 0.0
    masked_lm_window: int = 128
    masked_lm_batch_size: int = 32
    masked_lm_learning_rate: float = 1e-4
    mode: str = "salient"
    max_query_length: int = 96
    max_block_length: int = 288
    max_joint_length: int = 384
    max_masked: int = 10
    freeze_word_embeddings: bool = False
    num_frozen_layers: int = 0
    num_frozen_reader_layers: int = 0
    dropout: float = 0.1
    gradient_checkpointing: bool = False
    mixed_precision: bool = False
    log_every: int = 50
    measure_duty_cycle: bool = True
    seed: int = 0

    def __post_init__(self):
        recipes.check_least(
            self,
            num_steps=0,
            batch_size=1,
            num_retrieved=1,
            num_spare=0,
            retrieval_prefetch=0,
            search_rows=0,
            refresh_every=0,
            stale_factor=1,
            masked_lm_steps=0,
            masked_lm_batch_size=1,
            masked_lm_window=1,
            max_query_length=3,
            max_block_length=4,
            max_joint_length=self.max_query_length + 1,
            max_masked=1,
            num_frozen_layers=0,
            num_frozen_reader_layers=0,
            log_every=1,
            seed=0,
        )
        recipes.check_range(
            self,
            dropout=recipes.DROPOUT,
            masked_lm_own_block=(0, 1),
            masked_lm_answer_block=(0, 1),
            masked_lm_other_block=(0, 1),
        )
        has_blocks = (
            self.masked_lm_own_block
            + self.masked_lm_answer_block
            + self.masked_lm_other_block
        )
        # Sums of decimal shares are off by less than this.
        if has_blocks > 1 + 1e-9:
            raise InputError(
                "masked_lm_own_block, masked_lm_answer_block and "
                "masked_lm_other_block of a recipe must be together at most "
                f"1. Received: {has_blocks}"
            )
        joint = self.max_query_length + self.masked_lm_window + 1
        if has_blocks and joint > self.max_joint_length:
            raise InputError(
                "A query of max_query_length and masked_lm_window wordpieces "
                "with [SEP] must fit into max_joint_length. Received: "
                f"{self.max_query_length} + {self.masked_lm_window} + 1 > "
                f"{self.max_joint_length}"
            )
        for name, choices in (
            ("refresh", REFRESHES),
            ("retrieval", tuple(SEARCHES)),
        ):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} of a recipe must be one of {', '.join(choices)}. "
                    f"Received: {name}={getattr(self, name)}"
                )
        if self.search not in SEARCHES[self.retrieval]:
            raise InputError(
                f"search of a recipe with retrieval={self.retrieval} must be "
                f"one of {', '.join(SEARCHES[self.retrieval])}. "
                f"Received: search={self.search}"
            )
        is_exact = self.retrieval == "host" and self.refresh == "sync"
        if is_exact and self.retrieval_prefetch:
            raise InputError(
                "refresh=sync is exact, so the host may not retrieve ahead: "
                "set retrieval_prefetch=0. Received: "
                f"retrieval_prefetch={self.retrieval_prefetch}"
            )


RECIPES = {
    # Guu et al., 2020, section 4.3 and appendix: 64 TPU cores train, 16 embed.
    # Not run at full size here.
    "paper": PretrainRecipe(mixed_precision=True),
    # A user's 50,000 passages on two CPU cores: MiniLM with a reader of three
    # layers (`realm init --from minilm --reader-layers 3`), of whose towers
    # the upper two layers learn; blocks of 64 wordpieces.
    "wiki-small": PretrainRecipe(
        num_steps=400,
        batch_size=8,
        learning_rate=5e-5,
        bias_correction=True,
        num_retrieved=7,
        refresh_every=100,
        masked_lm_steps=1200,
        masked_lm_own_block=0.55,
        masked_lm_answer_block=0.3,
        masked_lm_other_block=0.05,
        masked_lm_window=60,
        masked_lm_batch_size=16,
        # At 4e-4 it reads sooner and answers worse: MiniLM's weights forget.
        masked_lm_learning_rate=1e-4,
        max_query_length=40,
        max_block_length=64,
        max_joint_length=104,
        freeze_word_embeddings=True,
        num_frozen_layers=4,
        dropout=0.0,
        log_every=10,
    ),
    # Random encoders, 128 wide, of two layers (the reader: four), over the
    # same blocks.
    "small": PretrainRecipe(
        num_steps=500,
        batch_size=32,
        learning_rate=1e-4,
        bias_correction=True,
        num_retrieved=7,
        refresh_every=25,
        masked_lm_steps=2000,
        masked_lm_own_block=0.4,
        masked_lm_answer_block=0.45,
        masked_lm_other_block=0.05,
        masked_lm_window=60,
        masked_lm_batch_size=32,
        masked_lm_learning_rate=1e-3,
        max_query_length=40,
        max_block_length=64,
        max_joint_length=104,
        dropout=0.0,
        log_every=10,
    ),
    # Unit tests: seconds.
    "tiny": PretrainRecipe(
        num_steps=6,
        batch_size=2,
        learning_rate=1e-2,
        num_retrieved=2,
        num_spare=3,
        refresh="sync",
        refresh_every=2,
        max_query_length=16,
        max_block_length=24,
        max_joint_length=32,
        max_masked=4,
        log_every=2,
        measure_duty_cycle=False,
    ),
}

# What the masked-LM steps read of a recipe.
_MASKED_LM_FIELDS = (
    "bias_correction",
    "masked_lm_steps",
    "masked_lm_own_block",
    "masked_lm_answer_block",
    "masked_lm_other_block",
    "masked_lm_window",
    "masked_lm_batch_size",
    "masked_lm_learning_rate",
    "mode",
    "max_query_length",
    "max_masked",
    "freeze_word_embeddings",
    "num_frozen_reader_layers",
    "dropout",
    "gradient_checkpointing",
    "mixed_precision",
    "log_every",
    "seed",
)


def masked_lm_alone(
    recipe: PretrainRecipe, base: PretrainRecipe
) -> PretrainRecipe:
    """The masked-LM steps of a recipe, and no others.

    What only the other steps read is taken from `base`, so that recipes which
    differ in nothing else begin with one warm-up.

    Args:
        recipe: `PretrainRecipe`.
        base: `PretrainRecipe`.
    """
    fields = {name: getattr(recipe, name) for name in _MASKED_LM_FIELDS}
    joint = recipe.max_query_length + recipe.masked_lm_window + 1
    return dataclasses.replace(
        base,
        **fields,
        num_steps=0,
        # Nothing is longer; a base may be shorter.
        max_joint_length=max(joint, base.max_joint_length),
    )


# One of these by name, with `name=value` changes.
get_recipe = functools.partial(recipes.get_recipe, RECIPES)
