"""The output of a training run while it is being made."""

import os
import sys

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.data.tokenized_passages import TokenizedPassages
from realm_tf.training import hosts

# What only the run needs: removed at its end.
WORK = "run"
# Where `training.resume` keeps its state.
CHECKPOINT = f"{WORK}/checkpoint"
# Of the masked-LM warm-up.
MASKED_LM_CHECKPOINT = f"{WORK}/masked_lm_checkpoint"
CHECKPOINTS = (CHECKPOINT, MASKED_LM_CHECKPOINT)
# Where trainer and index builder meet.
EXCHANGE = f"{WORK}/index_exchange"
# Embeddings that the index in training has and had.
INDEX = f"{WORK}/index"
# The best weights so far.
SELECTION = f"{WORK}/selection"
# Curves and samples for TensorBoard; kept.
TENSORBOARD = "tensorboard"

_PASSAGES = f"{WORK}/passages.arrow"


def logs(recipe, stage, name: str) -> dict:
    """The arguments of `resume.fit` that say what is logged, and where.

    Args:
        recipe: `Recipe` with `log`.
        stage: `artifact.Stage`.
        name: str. Of the log's file.
    """
    board = os.path.join(TENSORBOARD, name.removesuffix(".jsonl"))
    return {
        "log": stage.path(name),
        "log_every": recipe.log.log_every,
        "tensorboard": stage.path(board) if recipe.log.tensorboard else None,
    }


def open_blocks(blocks: Blocks, max_length: int) -> BlockRecords:
    """The blocks by id; prints on stderr how many the recipe cuts off.

    Args:
        blocks: `Blocks`.
        max_length: int. Of the recipe, with [CLS] and both [SEP].
    """
    opened = blocks.records
    num_cut = int((opened.count_wordpieces() + 3 > max_length).sum())
    if num_cut:
        print(
            f"{num_cut:,} of {len(opened):,} blocks in {blocks} are longer "
            f"than max_block_length={max_length} of the recipe: their ends "
            "are not read. If these are more than a few long sentences, run "
            f"`realm chunk --max-block-length {max_length}`, or choose a "
            "longer one with --set.",
            file=sys.stderr,
            flush=True,
        )
    return opened


def open_passages(passages: Passages, tokenizer, stage) -> TokenizedPassages:
    """The passages as wordpieces, tokenised once into the stage.

    Args:
        passages: `Passages`.
        tokenizer: `Tokenizer`. Of the model.
        stage: `artifact.Stage`.
    """
    path = stage.path(_PASSAGES)
    if hosts.is_first() and not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        TokenizedPassages.write(path, passages, tokenizer)
    hosts.meet("passages are tokenised")
    return TokenizedPassages(path)
