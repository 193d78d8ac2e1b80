"""Repeated blocks, and embeddings and an index drawn at random.

The results of a search in them are meaningless, its cost is not. TensorFlow is
not needed.
"""

import dataclasses
import itertools
import os
import shutil
from collections.abc import Iterable
from collections.abc import Iterator

import numpy as np
import workers

import realm_tf as realm
from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model

_ROWS_PER_SHARD = 50_000
_NUM_CLUSTERS = 1_000


def make_corpus(
    model: str, source: str, folder: str, num_blocks: int, kind: str
) -> tuple[str, str]:
    """Repeats blocks, draws their embeddings and builds an index.

    Keeps each output of an earlier call.

    Args:
        model: str. Its block tower has the width of the embeddings.
        source: str. Blocks to repeat.
        folder: str. Where all outputs go.
        num_blocks: int.
        kind: str. Of the index.

    Returns:
        The directories of the blocks and of the index.
    """
    blocks, embeddings, index = (
        os.path.join(folder, name) for name in ("blocks", "embeddings", kind)
    )
    repeat_blocks(source, blocks, num_blocks)
    if not artifact.is_complete(embeddings):
        realm.Embed(
            model=model,
            blocks=blocks,
            output=embeddings,
            rows_per_shard=_ROWS_PER_SHARD,
        ).write_rows(_draw(model, blocks))
    if not artifact.is_complete(index):
        workers.run(
            *("index", "--embeddings", embeddings, "--output", index),
            *("--kind", kind),
        )
    return blocks, index


def repeat_blocks(source: str, output: str, num_blocks: int) -> None:
    """Writes the blocks of another directory, repeated, if they are missing."""
    if artifact.is_complete(output):
        return
    known = Blocks(source)
    blocks = (
        dataclasses.replace(block, block_id=number)
        for number, block in enumerate(itertools.cycle(list(known.read())))
    )
    write_blocks(
        output,
        blocks,
        num_blocks,
        files=[known.file(array_files.VOCABULARY)],
        tokenizer=known.tokenizer,
        max_block_length=known.metadata["max_block_length"],
        fingerprint=fingerprints.fingerprint(
            known.fingerprint, str(num_blocks)
        ),
    )


def write_blocks(
    output: str,
    blocks: Iterator[schema.Block],
    num_blocks: int,
    *,
    files: Iterable[str] = (),
    **metadata,
) -> None:
    """Writes the next blocks of an iterator, beside copies of files."""
    whole, rest = divmod(num_blocks, _ROWS_PER_SHARD)
    rows = [_ROWS_PER_SHARD] * whole + [rest] * bool(rest)
    with artifact.write(output, kind="blocks") as stage:
        for shard, num_rows in enumerate(rows):
            path = stage.path(f"blocks-{shard:05d}{record_files.ENDING}")
            of_shard = list(itertools.islice(blocks, num_rows))
            record_files.write_rows(path, schema.Block, of_shard)
        for path in files:
            shutil.copy(path, stage.directory)
        stage.metadata.update(
            num_blocks=num_blocks, shard_rows=rows, **metadata
        )


def draw_index(model: str, blocks: str, output: str) -> None:
    """Writes an exact index of random rows, if it is missing."""
    if artifact.is_complete(output):
        return
    with artifact.write(
        output,
        kind="index",
        parameters={"kind": "brute_force"},
        parents=_parents(model, blocks),
    ) as stage:
        rows = _draw(model, blocks)
        np.save(stage.path("embeddings.npy"), rows)
        stage.metadata.update(
            num_blocks=len(rows),
            embedding_dim=rows.shape[1],
            fingerprint=fingerprints.fingerprint(output),
            recall_queries=0,
            **{"recall@5": 1.0},
        )


def _parents(model, blocks):
    return {
        "block_tower": Model(model).block_tower,
        "blocks": Blocks(blocks).fingerprint,
    }


def _draw(model, blocks):
    """Rows of length 1 around centres."""
    tower = Model(model).config["block_embedder"]
    width = tower["projection_dim"] or tower["encoder"]["hidden_dim"]
    random = np.random.default_rng(0)
    centres = random.standard_normal((_NUM_CLUSTERS, width), "float32")
    num_blocks = Blocks(blocks).num_blocks
    rows = random.standard_normal((num_blocks, width), "float32")
    rows += centres[random.integers(0, _NUM_CLUSTERS, num_blocks)]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
