"""Embeddings of blocks that published checkpoints carry."""

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import index_files
from realm_tf.artifacts import schema
from realm_tf.errors import InputError

# Blocks that are embedded anew, to see whether the tower is that of the rows.
_NUM_CHECKED = 8
# Float32 sums in another order; embeddings are about 10 long.
_TOLERANCE = 1e-3


def there_already(directory, is_ours: bool) -> str:
    """What is said of a complete directory that was to be made.

    Args:
        directory: `Artifact`.
        is_ours: bool. Whether it is what would be made.

    Raises:
        InputError: if it is not.
    """
    if not is_ours:
        raise InputError(
            f"{directory} exists already and was made of something else. "
            "Remove it or choose another directory."
        )
    return f"{directory}: there already"


def write_embeddings(model, blocks, embeddings, rows) -> list[str]:
    """Writes published embeddings as an embeddings directory.

    Args:
        model: `Model`.
        blocks: `Blocks`.
        embeddings: `Embeddings`. To be made.
        rows: `BlockEmbeddings`, or `None`.

    Returns:
        list of str, what there is to say.

    Raises:
        InputError: if there are none, or they do not belong to the others.
    """
    from realm_tf.beam_pipelines import embed_blocks

    if rows is None:
        raise InputError(
            "No source holds block_emb: compute the embeddings with "
            "`realm embed`."
        )
    parents = {"block_tower": model.block_tower, "blocks": blocks.fingerprint}
    if embeddings.is_complete:
        return [there_already(embeddings, embeddings.parents == parents)]
    loaded = model.load()
    width = rows.tensors.shape(rows.name)[1]
    if (blocks.num_blocks, loaded.model.embedding_dim) != (
        rows.num_rows,
        width,
    ):
        raise InputError(
            f"The embeddings are {rows.num_rows:,} of width {width}, but "
            f"{blocks} holds {blocks.num_blocks:,} blocks and {model} "
            f"embeds with a width of {loaded.model.embedding_dim}."
        )
    difference = _largest_difference(loaded, blocks, rows)
    with artifact.write(
        str(embeddings),
        kind=schema.EMBEDDINGS,
        parameters={"rows_per_shard": index_files.ROWS_PER_SHARD},
        parents=parents,
        resumable=True,
    ) as stage:
        names = embed_blocks.write_rows(
            stage.directory, rows, index_files.ROWS_PER_SHARD
        )
        stage.metadata.update(
            num_blocks=rows.num_rows,
            dtype="float32",
            shards=names,
            fingerprint=fingerprints.fingerprint(*map(str, parents.values())),
            largest_difference=difference,
        )
    lines = [f"{embeddings}: {rows.num_rows:,} embeddings"]
    if difference > _TOLERANCE:
        lines.append(
            f"warning: {_NUM_CHECKED} blocks embedded with the block tower "
            f"differ from their published embeddings by up to {difference:.3g}:"
            " these are another tower's. Name it with --block-tower (a "
            "fine-tuned checkpoint holds the questions' tower alone), or embed "
            "no further blocks with this model."
        )
    return lines


def _largest_difference(loaded, blocks, rows):
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    some = list(blocks.read(limit=min(_NUM_CHECKED, rows.num_rows)))
    max_length = blocks.metadata["max_block_length"]
    embedder = BlockEmbedder(loaded, max_length=max_length)
    found, _ = embedder.embed_ids(
        [block.title_ids for block in some],
        [block.token_ids for block in some],
    )
    return float(np.abs(found - rows.read(0, len(some))).max())
