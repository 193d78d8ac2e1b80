"""The output of a training run while it is being made."""

import contextlib
import sys

from realm_tf.artifacts import artifact
from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import packed_passages
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError

# Where `training.resume` keeps its state, inside the directory.
CHECKPOINT = "checkpoint"
# Of the steps before, without blocks.
MASKED_LM_CHECKPOINT = "masked_lm_checkpoint"
# Where trainer and index builder meet.
EXCHANGE = "index_exchange"
# Versions of the index that the input pipeline searches.
RETRIEVAL = "host_retrieval"

_PACKED_BLOCKS = "packed_blocks"
_PACKED_PASSAGES = "packed_passages"


@contextlib.contextmanager
def write_model(output: str, *, parameters: dict, parents: dict, own_files=()):
    """A model directory that takes a long time to make; see `artifact.write`.

    Stopped, the run leaves its state there and goes on with it. A mistake in
    the input leaves nothing, as starting again would not help. What only the
    run needs is removed at the end.

    Args:
        output: str. The directory to make, on a local disk.
        parameters: dict. As `artifact.write`.
        parents: dict. As `artifact.write`.
        own_files: tuple of str. Names of further files and directories that
            only the run needs.

    Yields:
        `artifact.Stage`.

    Raises:
        InputError: if `output` is remote, or exists.
    """
    if is_remote(output):
        raise InputError(
            f"{output} is not on a local disk, where a run that is stopped "
            "keeps its state. Choose a local directory and copy it after."
        )
    with artifact.write(
        output,
        kind=schema.MODEL,
        parameters=parameters,
        parents=parents,
        resumable=True,
    ) as stage:
        try:
            yield stage
        except InputError:
            remove(stage.directory)
            raise
        for name in (
            CHECKPOINT,
            MASKED_LM_CHECKPOINT,
            EXCHANGE,
            RETRIEVAL,
            _PACKED_BLOCKS,
            _PACKED_PASSAGES,
            *own_files,
        ):
            remove(stage.path(name))


def check_blocks(blocks: str, loaded, *, model: str, recipe=None) -> dict:
    """The metadata of blocks, if a model can be trained on them.

    Args:
        blocks: str. Directory of `realm chunk`, or of `realm pack`.
        loaded: `LoadedModel`.
        model: str. Its directory.
        recipe: dataclass. Its `max_query_length`, `max_block_length` and
            `max_joint_length`, those that it has, are what the encoders must
            take. Defaults to `None`: nothing.

    Raises:
        InputError: if the vocabularies differ or an encoder takes less.
    """
    metadata = packed_blocks.read_metadata(blocks)
    if metadata["tokenizer"] != loaded.tokenizer.fingerprint():
        raise InputError(
            f"{blocks} was cut with another vocabulary than that of {model}: "
            "run `realm chunk` with the model's vocab.txt."
        )
    for name, tower in (
        ("max_query_length", loaded.model.query_embedder),
        ("max_block_length", loaded.model.block_embedder),
        ("max_joint_length", loaded.model.reader),
    ):
        length = getattr(recipe, name, 0)
        if length > tower.encoder.max_sequence_length:
            raise InputError(
                f"The encoders of {model} take "
                f"{tower.encoder.max_sequence_length} wordpieces. Received: "
                f"{name}={length}"
            )
    return metadata


def open_blocks(
    blocks: str, stage, *, max_length: int
) -> packed_blocks.PackedBlocks:
    """Blocks of either kind; not yet packed, they are packed in the stage.

    If the recipe cuts some of them off, it is said on stderr.

    Args:
        blocks: str. Directory of `realm chunk`, or of `realm pack`.
        stage: `artifact.Stage`.
        max_length: int. Of the recipe, with [CLS] and both [SEP].
    """
    if packed_blocks.read_metadata(blocks)["kind"] == schema.BLOCKS:
        packed = stage.path(_PACKED_BLOCKS)
        if not artifact.is_complete(packed):
            packed_blocks.pack_blocks(blocks, packed)
        blocks = packed
    opened = packed_blocks.PackedBlocks(blocks)
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
    annotated: str, tokenizer, stage
) -> packed_passages.PackedPassages:
    """Annotated passages of either kind; see `open_blocks`.

    Args:
        annotated: str. Directory of `realm annotate`, or of `realm pack`.
        tokenizer: `Tokenizer`. Of the model.
        stage: `artifact.Stage`.

    Raises:
        InputError: if they were packed with another vocabulary.
    """
    metadata = packed_passages.read_metadata(annotated)
    if metadata["kind"] == schema.ANNOTATED:
        packed = stage.path(_PACKED_PASSAGES)
        if not artifact.is_complete(packed):
            packed_passages.pack_passages(annotated, tokenizer, packed)
        annotated = packed
    elif metadata["parameters"]["tokenizer"] != tokenizer.fingerprint():
        raise InputError(
            f"{annotated} was packed with another vocabulary than the "
            "model's: run `realm pack` with --model."
        )
    return packed_passages.PackedPassages(annotated)
