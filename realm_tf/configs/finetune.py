"""Recipes of open-QA fine-tuning."""

import dataclasses
import functools

from realm_tf.configs import recipes


@dataclasses.dataclass(frozen=True)
class OpenQaRecipe:
    """Numbers of one fine-tuning run.

    Args:
        num_epochs: int. Passes over the questions, at most.
        batch_size: int. Questions of one step.
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`. BERT's
            has none; recipes for small budgets were tuned with it.
        num_candidates: int. Blocks in the retriever's loss.
        num_reader_blocks: int. Blocks read for a question in training.
        read_an_answer: bool. See `RetrieveAndRead`.
        match_whole_words: bool. See `RetrieveAndRead`.
        retriever: str. Whose blocks are read: the model's own (`"realm"`), or
            those of `"bm25"` or `"hybrid"`, found once before the first step.
        refresh_every: int. Steps between two embeddings of all blocks with
            the query tower, which is then the blocks' tower too, while
            training waits; 0, as in the paper, keeps the index and its tower.
        train_query_tower: bool. Whether the retriever learns, too; without,
            the towers stay as they are and only the reader learns.
        freeze_word_embeddings: bool. Keep the embedding tables of what
            learns.
        num_frozen_layers: int. Lowest reader layers that do not learn.
        patience: int. Stop after so many epochs in a row without a better
            exact match on the questions of dev; 0: never.
        num_dev_questions: int. How many of them are asked after each epoch,
            spread over the file; 0: all.
        log_every: int. Steps between two lines of log.jsonl.
        seed: int. Order of the questions and dropout.

    Raises:
        InputError: if a count that must be at least 1 is not.
    """

    num_epochs: int = 2
    batch_size: int = 16
    learning_rate: float = 1e-5
    bias_correction: bool = False
    num_candidates: int = 5000
    num_reader_blocks: int = 5
    read_an_answer: bool = False
    match_whole_words: bool = True
    retriever: str = "realm"
    refresh_every: int = 0
    train_query_tower: bool = True
    freeze_word_embeddings: bool = False
    num_frozen_layers: int = 0
    patience: int = 0
    num_dev_questions: int = 0
    log_every: int = 10
    seed: int = 0

    def __post_init__(self):
        recipes.check_least(
            self,
            num_epochs=1,
            batch_size=1,
            num_candidates=1,
            num_reader_blocks=1,
            log_every=1,
        )


RECIPES = {
    # Guu et al., 2020, appendix A and the original's launcher: 2 epochs of
    # NQ at 1e-5, 5000 candidates, 5 blocks read (batch size 1 there).
    # An accelerator's work: about 5 x 320 wordpieces a question through
    # BERT-base, forward and back. Not run at full size here.
    "orqa": OpenQaRecipe(),
    # The same for sets of a few thousand questions (WQ, CT): 20 epochs.
    "orqa_small_set": OpenQaRecipe(num_epochs=20),
    # `realm finetune --recipe laptop`: an hour of two CPU cores for some
    # thousand questions and a 6-layer, 384-wide reader.
    "laptop": OpenQaRecipe(
        num_epochs=3,
        learning_rate=5e-5,
        bias_correction=True,
        num_candidates=100,
        num_reader_blocks=2,
        read_an_answer=True,
        freeze_word_embeddings=True,
    ),
    # `realm quickstart`: minutes on two CPU cores. Small batches and a high
    # rate, because the steps are few; what is read is the best block that
    # holds an answer. With more blocks the reader also learns which to trust:
    # three answered better over a larger corpus, in 2.2 times the minutes
    # (docs/open_qa.md).
    "quickstart": OpenQaRecipe(
        num_epochs=1,
        batch_size=8,
        learning_rate=1e-4,
        bias_correction=True,
        num_candidates=20,
        num_reader_blocks=1,
        read_an_answer=True,
        train_query_tower=False,
        freeze_word_embeddings=True,
    ),
    # Unit tests: seconds.
    "tiny": OpenQaRecipe(
        num_epochs=2,
        batch_size=4,
        learning_rate=1e-3,
        bias_correction=True,
        num_candidates=8,
        num_reader_blocks=2,
    ),
}

# One of these by name, with `name=value` changes.
get_recipe = functools.partial(recipes.get_recipe, RECIPES)
