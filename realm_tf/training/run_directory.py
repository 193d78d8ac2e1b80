"""The output of a training run while it is being made."""

import sys

from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.data import packed_passages
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
# The weights of the best epochs.
SELECTION = f"{WORK}/selection"

_PACKED_BLOCKS = f"{WORK}/packed_blocks"
_PACKED_PASSAGES = f"{WORK}/packed_passages"


def open_blocks(
    blocks: Blocks, stage, max_length: int
) -> packed_blocks.PackedBlocks:
    """Blocks of either kind; not yet packed, they are packed in the stage.

    If the recipe cuts some of them off, it is said on stderr.

    Args:
        blocks: `Blocks`.
        stage: `artifact.Stage`.
        max_length: int. Of the recipe, with [CLS] and both [SEP].
    """
    packed = blocks
    if not blocks.is_packed:
        packed = Blocks(stage.path(_PACKED_BLOCKS))
        if hosts.is_first() and not packed.is_complete:
            packed_blocks.pack_blocks(blocks.path, packed.path)
        hosts.meet("blocks are packed")
    opened = packed_blocks.PackedBlocks(packed)
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


def open_passages(
    passages: Passages, tokenizer, stage
) -> packed_passages.PackedPassages:
    """Annotated passages of either kind; see `open_blocks`.

    Args:
        passages: `Passages`.
        tokenizer: `Tokenizer`. Of the model.
        stage: `artifact.Stage`.
    """
    packed = passages
    if not passages.is_packed:
        packed = Passages(stage.path(_PACKED_PASSAGES))
        if hosts.is_first() and not packed.is_complete:
            packed_passages.pack_passages(passages.path, tokenizer, packed.path)
        hosts.meet("passages are packed")
    return packed_passages.PackedPassages(packed)
