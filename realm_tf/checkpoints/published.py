"""Models, and embeddings of blocks, of published REALM and ORQA checkpoints."""

import numpy as np

from realm_tf.checkpoints.assignment import have_equal_weights
from realm_tf.checkpoints.initial import copy_layers
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader

# Blocks that are embedded again, to see whether the tower is that of the rows.
_NUM_CHECKED = 8
# Float32 sums in another order; embeddings are about 10 long.
_TOLERANCE = 1e-3


def make_model(opened: list[Source], tower: Source | None):
    """A model of all parts of some sources.

    Args:
        opened: list of `Source`.
        tower: `Source` of the blocks' embedder, if it is another, or `None`.

    Returns:
        `(OpenQa, list of str)`: also where each part is from, a line each.

    Raises:
        InputError: if parts are missing, damaged or do not fit each other.
    """
    makers, lines = {}, []
    for source in opened:
        if source.unread:
            lines.append(f"{source}: {len(source.unread)} tensors not read")
        for part in sorted(source.makers.keys() - {BERT}):
            add_maker(makers, part, source.makers[part], str(source))
            lines.append(f"{part}: from {source}")
    if EMBEDDER not in makers:
        raise InputError(
            f"{', '.join(map(str, opened))} holds no embedder (it "
            f"holds {', '.join(makers) or 'no part of a REALM'}): name a "
            "directory with one, too, such as --source EMBEDDER ENCODER. To "
            "start from a plain BERT, use `realm init`."
        )
    if {READER, ENCODER} <= set(makers):
        raise InputError(
            "The sources hold a reader and a masked-LM encoder, two BERTs, but "
            "a model has one for both: leave one of the sources out."
        )
    block_embedder = query_embedder = makers[EMBEDDER]()
    if QUERY_EMBEDDER in makers:
        found = makers[QUERY_EMBEDDER]()
        if not have_equal_weights(found, block_embedder):
            query_embedder = found
    if tower:
        if EMBEDDER not in tower.makers:
            raise InputError(f"--block-tower {tower} has no embedder.")
        block_embedder = tower.makers[EMBEDDER]()
        lines.append(f"block tower: from {tower}")
    encoder = makers[ENCODER]() if ENCODER in makers else None
    if READER in makers:
        reader = makers[READER]()
    else:
        bert = (encoder or query_embedder).encoder
        # The embedder keeps its own.
        bert = bert if encoder else copy_layers(bert, bert.num_layers)
        reader = Reader(bert)
        part = ENCODER if encoder else EMBEDDER
        lines.append(f"reader: the BERT of the {part}, its head is random")
    model = OpenQa(
        query_embedder,
        block_embedder,
        reader,
        knowledge_augmented_encoder=encoder,
    )
    return model, lines


def check_embeddings(model, blocks, rows) -> list[str]:
    """Compares published embeddings with those of a model's block tower.

    Args:
        model: `Model`.
        blocks: `Blocks`.
        rows: `BlockEmbeddings`, or `None`.

    Returns:
        list of str: a warning if they differ.

    Raises:
        InputError: if there are none, or not one of each block.
    """
    if rows is None:
        raise InputError(
            "No source holds block_emb: compute the embeddings with "
            "`realm embed`."
        )
    loaded = model_directory.load(model)
    width = loaded.model.embedding_dim
    shape = rows.tensors.shape(rows.name)
    if shape != (blocks.num_blocks, width):
        raise InputError(
            f"The embeddings have the shape {shape}, but {blocks} holds "
            f"{blocks.num_blocks} blocks and {model} embeds with a width of "
            f"{width}."
        )
    difference = _largest_difference(loaded, blocks, rows)
    if difference <= _TOLERANCE:
        return []
    return [
        f"warning: {_NUM_CHECKED} blocks embedded with the block tower differ "
        f"from their published embeddings by up to {difference:.3g}: these are "
        "another tower's, or include titles that the texts lack. Name their "
        "tower with --block-tower (a fine-tuned checkpoint contains the "
        "questions' tower alone), or embed no further blocks with this model."
    ]


def _largest_difference(loaded, blocks, rows):
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    some = list(blocks.read(limit=min(_NUM_CHECKED, len(rows))))
    max_length = blocks.metadata["max_block_length"]
    embedder = BlockEmbedder(loaded, max_length=max_length)
    found, _ = embedder.embed_ids(
        [block.title_ids for block in some],
        [block.token_ids for block in some],
    )
    return float(np.abs(found - rows[: len(some)]).max())
