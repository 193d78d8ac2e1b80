"""Recipes of open-QA fine-tuning."""

import dataclasses
from typing import Annotated
from typing import Literal

from realm_tf.configs import recipes
from realm_tf.configs.recipes import Encoders
from realm_tf.configs.recipes import Optimizer
from realm_tf.errors import InputError

# What the original reads of a question and a block: 32 and 288 wordpieces
# (google-research/language, language/orqa; transformers' reader_seq_len).
MAX_JOINT_LENGTH = 320


@dataclasses.dataclass(frozen=True)
class Candidates(recipes.Group):
    """Which blocks a question learns from.

    Args:
        num_candidates: int. Blocks in the retriever's loss.
        num_reader_blocks: int. Blocks read for a question in training.
        read_an_answer: bool. See `RetrieveAndRead`.
        gold: str. `"ignore"`, `"read"` or `"only"`: what the evidence of a
            question is for, see `RetrieveAndRead`; the paper has none.
        read_titles: bool. Whether the reader reads titles from now on, see
            `Reader`; one that does so already goes on.
        max_joint_length: int. Wordpieces that are read of a question and a
            block, see `Reader`; 0: all.
        match_whole_words: bool. See `RetrieveAndRead`.
        near_miss_share: float. Share of the questions, others in each epoch,
            that are asked as if no block held an answer: the best of the other
            blocks are read, and "none" is right.
        retriever: str. Whose blocks are read: the model's own (`"realm"`), also
            with BM25 beside it (`"hybrid"`), those of `"bm25"`, found once
            before the first step, or those that a `"file"` ranks.
    """

    num_candidates: recipes.Positive = 5000
    num_reader_blocks: recipes.Positive = 5
    read_an_answer: bool = False
    gold: Literal["ignore", "read", "only"] = "ignore"
    read_titles: bool = False
    max_joint_length: recipes.Natural = MAX_JOINT_LENGTH
    match_whole_words: bool = True
    near_miss_share: recipes.Share = 0.0
    retriever: Literal["realm", "bm25", "hybrid", "file"] = "realm"


@dataclasses.dataclass(frozen=True)
class OpenQaRecipe(recipes.Recipe):
    """Numbers of one fine-tuning run.

    Args:
        num_epochs: int. Passes over the questions, at most.
        batch_size: int. Questions of one step.
        optimizer: `Optimizer`.
        candidates: `Candidates`.
        index: `Refresh`. With `refresh_every=0`, as in the paper, index and
            block tower stay as they are; otherwise the query tower is the
            blocks' tower, too.
        none_weight: float. How much it counts that the reader tells blocks
            with an answer from others; see `RetrieveAndRead`. 0: not at all, as
            in the paper, and what the reader knew of it may be lost.
        teacher_weight: float. How much the teachers of a run, if it has any,
            count in the reader's loss beside the answers; see
            `Teachers`.
        teacher_temperature: float. Of the teachers' scores and the reader's;
            see `losses.teacher_loss`.
        train_query_tower: bool. Whether the retriever learns, too; without,
            the towers stay as they are and only the reader learns.
        train_reader: bool. Whether the reader learns; without, it stays as it
            is and the retriever learns alone, which takes a fraction of the
            time.
        encoders: `Encoders`. Embedding tables and dropout of all that learns,
            frozen layers of the reader.
        patience: int. Stop after so many epochs in a row without a better
            exact match on dev; 0: never.
        log: `Log`.
        seed: int. Order of the questions and dropout.
    """

    num_epochs: recipes.Positive = 2
    batch_size: recipes.Positive = 1
    optimizer: Optimizer = Optimizer(learning_rate=1e-5)
    candidates: Candidates = Candidates()
    index: recipes.Refresh = recipes.Refresh(refresh="sync", refresh_every=0)
    none_weight: recipes.Share = 0.0
    teacher_weight: recipes.Share = 0.75
    teacher_temperature: Annotated[float, recipes.Range(0.1, 100)] = 1.0
    train_query_tower: bool = True
    train_reader: bool = True
    encoders: Encoders = Encoders()
    patience: recipes.Natural = 0
    log: recipes.Log = recipes.Log()
    seed: recipes.Natural = 0

    @property
    def learns(self) -> bool:
        """Whether anything does."""
        return self.train_query_tower or self.train_reader

    def check(self) -> None:
        """Refuses what contradicts itself.

        Raises:
            InputError: if the query tower shall learn from blocks that it does
                not find, nothing learns, a gold block is named that nothing
                reads, near misses teach nothing, or something is said of a
                reader that does not learn.
        """
        candidates = self.candidates
        if not self.learns:
            raise InputError(
                "With train_query_tower=false and train_reader=false nothing "
                "learns: leave one of them out."
            )
        is_fixed = candidates.retriever in ("bm25", "file")
        if is_fixed and self.train_query_tower:
            raise InputError(
                f"retriever={candidates.retriever} finds the same blocks "
                "whatever the query tower does: add --set "
                "train_query_tower=false."
            )
        if candidates.gold == "read" and not candidates.read_an_answer:
            raise InputError(
                "gold=read says which block read_an_answer reads: add --set "
                "read_an_answer=true."
            )
        if candidates.near_miss_share and not self.none_weight:
            raise InputError(
                f"near_miss_share={candidates.near_miss_share} asks questions "
                'whose answer is "none", which none_weight=0 does not teach: '
                "add --set none_weight=0.5 or --set near_miss_share=0."
            )
        if candidates.read_titles and not self.train_reader:
            raise InputError(
                "read_titles=true changes what the reader is given, and with "
                "train_reader=false it does not learn to use it: leave one of "
                "them out."
            )


RECIPES = {
    # Guu et al., 2020, appendix A and the original's launcher: 2 epochs of
    # NQ at 1e-5, 5000 candidates, 5 blocks read, a question a step: 158,000
    # changes of the weights. An accelerator's work: about 5 x 320 wordpieces a
    # question through BERT-base, forward and back. Not run at full size here.
    "orqa": OpenQaRecipe(),
    # The same for sets of a few thousand questions (WQ, CT): 20 epochs.
    "orqa_small_set": OpenQaRecipe(num_epochs=20),
    # `realm finetune --recipe laptop`: an hour of two CPU cores for some
    # thousand questions and a 6-layer, 384-wide reader. One of the two blocks
    # holds an answer, the other is mostly a near miss, which teaches "none" a
    # block; that all blocks are such is shown by a tenth of the questions.
    "laptop": OpenQaRecipe(
        num_epochs=3,
        batch_size=16,
        optimizer=Optimizer(learning_rate=5e-5, bias_correction=True),
        candidates=Candidates(
            num_candidates=100,
            num_reader_blocks=2,
            read_an_answer=True,
            near_miss_share=0.1,
        ),
        none_weight=0.5,
        encoders=Encoders(freeze_word_embeddings=True),
    ),
    # `realm quickstart`: minutes on two CPU cores. Small batches and a high
    # rate, because the steps are few; what is read is the best block that
    # holds an answer. With more blocks the reader also learns which to trust:
    # three answered better over a larger corpus, in 2.2 times the minutes
    # (docs/measurements/answers.md). Blocks that all hold an answer would unteach
    # the packaged reader its "none": a fifth of the questions reads the best
    # block without one instead, in the same time.
    "quickstart": OpenQaRecipe(
        num_epochs=1,
        batch_size=8,
        optimizer=Optimizer(learning_rate=1e-4, bias_correction=True),
        candidates=Candidates(
            num_candidates=20,
            num_reader_blocks=1,
            read_an_answer=True,
            near_miss_share=0.2,
        ),
        none_weight=0.5,
        train_query_tower=False,
        encoders=Encoders(freeze_word_embeddings=True),
    ),
    # Unit tests: seconds.
    "tiny": OpenQaRecipe(
        num_epochs=2,
        batch_size=4,
        optimizer=Optimizer(learning_rate=1e-3, bias_correction=True),
        candidates=Candidates(num_candidates=8, num_reader_blocks=2),
    ),
}
