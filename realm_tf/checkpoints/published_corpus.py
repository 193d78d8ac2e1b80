"""The texts and embeddings of blocks that published checkpoints carry."""

import dataclasses
import json
import os

import numpy as np

from realm_tf.articles import readers
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import index_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.checkpoints import bert
from realm_tf.errors import InputError
from realm_tf.text.blocks import MAX_BLOCK_LENGTH

BLOCK_RECORDS = "block_records.npy"
BLOCKS_TFR = "blocks.tfr"
# Blocks that are embedded anew, to see whether the tower is that of the rows.
_NUM_CHECKED = 8
# Float32 sums in another order; embeddings are about 10 long.
_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class BlockEmbeddings:
    """Published embeddings of all blocks, read in pieces.

    Args:
        tensors: what has `shape` and `read`.
        name: str. Of the tensor.
    """

    tensors: object
    name: str

    @property
    def num_rows(self) -> int:
        """Number of blocks."""
        return self.tensors.shape(self.name)[0]

    def read(self, start: int, limit: int) -> np.ndarray:
        """float32 rows.

        Raises:
            InputError: if one holds NaN or infinity.
        """
        rows = np.asarray(self.tensors.read(self.name, start, limit), "float32")
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{self.tensors.source}: row {start + int(finite.argmin())} "
                f"of {self.name} holds NaN or infinity."
            )
        return rows


def there_already(directory: str, is_ours: bool) -> str:
    """What is said of a complete directory that was to be made.

    Args:
        directory: str.
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


def write_blocks(
    model, blocks, texts, *, sources, rows, max_block_length, beam_options
) -> list[str]:
    """Writes the texts as a blocks directory.

    Args:
        model: str. Model directory, for its vocabulary.
        blocks: str. The directory to make.
        texts: str. File of the texts, or `None`: look in `sources`.
        sources: list of str. Directories of the checkpoint.
        rows: `BlockEmbeddings` that belong to them, or `None`.
        max_block_length: int. See `realm chunk`.
        beam_options: list of str.

    Returns:
        list of str, what there is to say.

    Raises:
        InputError: if there are no texts, or not as many as rows.
    """
    from realm_tf.operations.chunk import Chunk

    if texts is None:
        texts = bert.find(sources, BLOCK_RECORDS, BLOCKS_TFR)
    if texts is None:
        raise InputError(
            f"No source holds {BLOCK_RECORDS} or {BLOCKS_TFR}: name the "
            "texts with --texts."
        )
    if artifact.is_complete(blocks):
        made = artifact.read(blocks, kind=schema.BLOCKS)["parameters"]
        is_ours = (made.get("inputs"), made.get("max_block_length")) == (
            [os.path.abspath(texts)],
            max_block_length or MAX_BLOCK_LENGTH,
        )
        return [there_already(blocks, is_ours)]
    is_tfrecord = not texts.endswith(".npy")
    made = Chunk(
        input=texts,
        output=blocks,
        vocab=os.path.join(model, "vocab.txt"),
        unit="rows",
        format=readers.ORQA if is_tfrecord else readers.BLOCK_RECORDS,
        lowercase=_lowercase(model),
        keep_all_titles=True,
        max_block_length=max_block_length,
        beam_options=beam_options,
    ).run()
    num_blocks = made.num_blocks
    if rows and num_blocks != rows.num_rows:
        remove(blocks)
        raise InputError(
            f"{texts} holds {num_blocks:,} texts that are not empty, the "
            f"checkpoint {rows.num_rows:,} embeddings: they do not belong "
            "together."
        )
    return [f"{blocks}: {num_blocks:,} blocks"]


def _lowercase(model):
    config = json.loads(Path(os.path.join(model, "config.json")).read_text())
    return config["lowercase"]


def write_embeddings(model, blocks, embeddings, rows) -> list[str]:
    """Writes published embeddings as an embeddings directory.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        embeddings: str. The directory to make.
        rows: `BlockEmbeddings`, or `None`.

    Returns:
        list of str, what there is to say.

    Raises:
        InputError: if there are none, or they do not belong to the others.
    """
    from realm_tf.artifacts import model_directory
    from realm_tf.beam_pipelines import embed_blocks

    if rows is None:
        raise InputError(
            "No source holds block_emb: compute the embeddings with "
            "`realm embed`."
        )
    metadata = artifact.read(blocks, kind=schema.BLOCKS)
    tower = artifact.read(model, kind=schema.MODEL)["block_tower"]
    parents = {"block_tower": tower, "blocks": metadata["fingerprint"]}
    if artifact.is_complete(embeddings):
        made = artifact.read(embeddings, kind=schema.EMBEDDINGS)["parents"]
        return [there_already(embeddings, made == parents)]
    loaded = model_directory.load(model)
    width = rows.tensors.shape(rows.name)[1]
    if (metadata["num_blocks"], loaded.model.embedding_dim) != (
        rows.num_rows,
        width,
    ):
        raise InputError(
            f"The embeddings are {rows.num_rows:,} of width {width}, but "
            f"{blocks} holds {metadata['num_blocks']:,} blocks and {model} "
            f"embeds with a width of {loaded.model.embedding_dim}."
        )
    difference = _largest_difference(loaded, blocks, metadata, rows)
    with artifact.write(
        embeddings,
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


def _largest_difference(loaded, blocks, metadata, rows):
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    some = list(schema.read_blocks(blocks, limit=_num_checked(rows)))
    embedder = BlockEmbedder(loaded, max_length=metadata["max_block_length"])
    found, _ = embedder.embed_ids(
        [block.title_ids for block in some],
        [block.token_ids for block in some],
    )
    return float(np.abs(found - rows.read(0, len(some))).max())


def _num_checked(rows):
    return min(_NUM_CHECKED, rows.num_rows)
